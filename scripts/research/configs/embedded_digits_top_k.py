r"""Images of several digits with one label, trained for top-K accuracy (n-choose-k, section 5.3).

    python -m rank4class.scripts.sweep --config=scripts/research/configs/embedded_digits_top_k.py \
        --config.data.path=FOLDER --config.loss.k=3 --workdir=runs/embedded_digits_top_3 \
        --losses=top_k_gain --interactions=dot --seed=0 \
        --tune=class_encoder.weight_decay=0.00003,0.0003,0.003,0.03

FOLDER holds MNIST's files (the `t10k` files are sufficient). Scores are linear in the pixels; the label is
one of the digits of an image. `--config.loss.k` is the K of the loss; the default 1 is the softmax.

Running time: 50 s per run on 2 busy cores. Expected on 10,000 test images, in percent, over ten splits
with k = 3: top-1 accuracy 35.0, top-3 66.6, top-5 83.2. The paper's Table 1 has 35.3, 67.1 and 83.4.
"""

from rank4class.pipelines import config
from rank4class.scripts.research.datasets import embedded_digits  # noqa: F401, registers it


def get_config() -> config.Experiment:
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
