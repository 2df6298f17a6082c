r"""Retrieval of relevant items for users, on synthetic data with known structure (Rankmax).

    python -m rank4class.scripts.sweep --config=scripts/research/configs/retrieval_synthetic.py \
        --workdir=runs/retrieval --losses=rankmax,softmax,sparsemax,warp --interactions=dot \
        --tune=optimizer.learning_rate=0.003,0.01,0.03

A user is an id with a learned vector. About 48 items of a user are for training, and 6 each for validation
and test, which exclude a user's items of earlier splits from the ranking of the 3,000 items.

Running time: 81 CPU seconds per run, with the start. Expected on the test pairs, in percent, with Rankmax and
learning rate 0.003 over 5 seeds: AP@10 3.7, accuracy 10.3, Recall@100 30.4.
"""

from rank4class.pipelines import config
from rank4class.scripts.research.datasets import synthetic_retrieval  # noqa: F401, registers it


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="synthetic_retrieval", num_classes=3000, num_examples=1000, num_relevant=60),
        encoder=config.Encoder(name="embedding", units=32),
        loss=config.Loss(name="rankmax"),
        optimizer=config.Optimizer(name="adam", learning_rate=3e-3),
        batch_size=64,
        epochs=60.0,
        monitor="map@10",
        metrics=("map@10", "top1_accuracy", "recall@100"),
    )
