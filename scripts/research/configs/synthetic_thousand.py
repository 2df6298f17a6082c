r"""Synthetic vectors of 1,000 classes, for losses that depend on the number of classes.

    python -m rank4class.scripts.sweep --config=scripts/research/configs/synthetic_thousand.py \
        --workdir=runs/synthetic_thousand --losses=softmax,rescaled_mse,mse --interactions=dot \
        --tune=optimizer.learning_rate=0.001,0.003,0.01,0.03

Running time: 47 s on 2 busy cores. Expected on the 10,000 test vectors, in percent (seed 0): top-1 error
19.1, top-5 error 5.7, NDCG@5 88.3.
"""

from rank4class.pipelines import config
from rank4class.scripts.research.datasets import synthetic  # noqa: F401, registers it


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="synthetic", num_classes=1000, num_examples=50_000, width=32, spread=1.1),
        encoder=config.Encoder(name="identity"),
        optimizer=config.Optimizer(name="adam", learning_rate=3e-3, decay="linear"),
        batch_size=256,
        epochs=30.0,
    )
