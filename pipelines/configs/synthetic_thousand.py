r"""Synthetic vectors of 1,000 classes, for losses that depend on the number of classes.

    python -m rank4class.scripts.sweep --config=synthetic_thousand --workdir=runs/synthetic_thousand \
        --losses=softmax,rescaled_mse,mse --interactions=dot \
        --tune=optimizer.learning_rate=0.001,0.003,0.01,0.03

Running time: not measured.
"""

from rank4class.pipelines import config


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="synthetic", num_classes=1000, num_examples=50_000, width=64, spread=1.0),
        encoder=config.Encoder(name="identity"),
        optimizer=config.Optimizer(name="adam", learning_rate=3e-3, decay="linear"),
        batch_size=256,
        epochs=30.0,
    )
