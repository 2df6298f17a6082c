r"""Images of one to four digits by logistic regression, beside `embedded_digits` (n-choose-k, section 5.1).

    python -m rank4class.scripts.train --config=embedded_digits_logistic \
        --config.data.path=FOLDER --workdir=runs/embedded_digits_logistic

Each digit comes on its own; the law of their number is what follows from that, the Poisson-binomial one.

Running time: 72 to 104 s a run on 2 cores that had other work, after 4 minutes for the features. Expected on
10,000 test images of MNIST's digits, over 3 seeds: nll 4.19, exact match 12.9 percent. The paper has 2.84,
see `embedded_digits`.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import embedded_digits


def get_config() -> config.Experiment:
    independent = {
        "loss.name": "sigmoid_cross_entropy",
        "count_prior.name": "poisson_binomial",
        "class_encoder.weight_decay": 1e-6,
    }
    return config.override(embedded_digits.get_config(), independent)
