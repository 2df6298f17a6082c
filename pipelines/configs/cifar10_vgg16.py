r"""CIFAR-10 with VGG16 for 32 x 32 images, trained from scratch (Rank4Class, Table 12).

    python -m rank4class.scripts.train --config=pipelines/configs/cifar10_vgg16.py \
        --config.data.path=FOLDER --workdir=runs/cifar10_vgg16

FOLDER holds the published binary files; without it TensorFlow Datasets downloads them. Batch size, epochs
and optimizer are the paper's; of its learning rates this is one that trains from random weights.
"""

from rank4class.pipelines import config


def get_config():
    return config.Experiment(
        data=config.Data(name="cifar10"),
        encoder=config.Encoder(name="vgg16"),
        optimizer=config.Optimizer(name="adam", learning_rate=3e-4, decay="linear"),
        batch_size=64,
        epochs=50.0,
    )
