r"""Images of several digits with one label: is it among the first K? (n-choose-k, section 5.3)

    python -m rank4class.scripts.sweep --config=pipelines/configs/embedded_digits_top_k.py \
        --config.data.path=FOLDER --config.loss.k=3 --workdir=runs/embedded_digits_top_3 \
        --losses=top_k_gain --interactions=dot
"""

from rank4class.pipelines import config


def get_config():
    return config.Experiment(
        data=config.Data(name="embedded_digits", features="pixels", multi_label=False),
        encoder=config.Encoder(name="identity"),
        class_encoder=config.ClassEncoder(weight_decay=3e-3),
        interaction=config.Interaction(use_bias=True),
        loss=config.Loss(name="top_k_gain"),
        optimizer=config.Optimizer(name="adam", learning_rate=3e-3, decay="linear"),
        batch_size=250,
        epochs=25.0,
        monitor="top1_accuracy",
        metrics=("top1_accuracy", "top3_accuracy", "top5_accuracy"),
    )
