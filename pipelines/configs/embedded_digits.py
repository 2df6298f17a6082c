r"""Images of one to four digits: which are shown, and how many (n-choose-k, section 5.1).

    python -m rank4class.scripts.train --config=embedded_digits \
        --config.data.path=FOLDER --workdir=runs/embedded_digits

FOLDER holds MNIST's files (those of `t10k` alone will do); without it the digits are scikit-learn's. The
scores and the law of the count are linear in 1000 features of a restricted Boltzmann machine. What logistic
regression makes of the same features is in `embedded_digits_logistic`.

Running time: 95 to 112 s a run on 2 cores that had other work, after 4 minutes for the machine. Expected on
10,000 test images of MNIST's digits, over 3 seeds: nll 3.27, exact match 25.8 percent. The paper has 1.95,
with digits and a machine that it does not describe.
"""

from rank4class.pipelines import config


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="embedded_digits", features="rbm"),
        encoder=config.Encoder(name="identity"),
        class_encoder=config.ClassEncoder(weight_decay=1e-5),
        interaction=config.Interaction(use_bias=True),
        loss=config.Loss(name="n_choose_k"),
        count_prior=config.CountPrior(name="learned", most=10),  # of all counts; that it is 1 to 4 it learns
        optimizer=config.Optimizer(name="adam", learning_rate=3e-3, decay="linear"),
        batch_size=100,
        epochs=20.0,
        monitor="nll",
        metrics=("nll", "exact_match", "precision@1"),
    )
