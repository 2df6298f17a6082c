r"""Images of one to four digits: prediction of the digits and their number (n-choose-k, section 5.1).

    python -m rank4class.scripts.train --config=scripts/research/configs/embedded_digits.py \
        --config.data.path=FOLDER --workdir=runs/embedded_digits

FOLDER holds MNIST's files (the `t10k` files are sufficient); without it scikit-learn's digits are used. The
scores and the logits of the count are linear in 1000 features of a restricted Boltzmann machine.
`embedded_digits_logistic` is logistic regression on the same features.

Running time: 95 to 112 s per run on 2 busy cores, after 4 minutes for the machine. Expected on 10,000 test
images of MNIST's digits, over five splits: nll 3.29, exact match 25.6 percent. The paper reports 1.95, and
does not describe its digits and its machine.
"""

from rank4class.pipelines import config
from rank4class.scripts.research.datasets import embedded_digits  # noqa: F401, registers it


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="embedded_digits", features="rbm"),
        encoder=config.Encoder(name="identity"),
        class_encoder=config.ClassEncoder(weight_decay=1e-5),
        interaction=config.Interaction(use_bias=True),
        loss=config.Loss(name="n_choose_k"),
        count_prior=config.CountPrior(name="learned", most=10),  # it learns that counts are 1 to 4
        optimizer=config.Optimizer(name="adam", learning_rate=3e-3, decay="linear"),
        batch_size=100,
        epochs=20.0,
        monitor="nll",
        metrics=("nll", "exact_match", "precision@1"),
    )
