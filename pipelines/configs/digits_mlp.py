"""Handwritten digits with a small dense network: the smallest whole run.

    python -m rank4class.scripts.train --config=digits_mlp --workdir=runs/digits_mlp

Running time: 3 s on 2 cores. Expected on the 360 test images, percent, over 5 seeds: top-1 error 2.9, top-5
error 0.2, NDCG@5 98.7.
"""

from rank4class.pipelines import config


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="digits"),
        encoder=config.Encoder(name="mlp"),
        optimizer=config.Optimizer(name="adam", learning_rate=3e-3, decay="linear"),
        batch_size=64,
        epochs=15.0,
    )
