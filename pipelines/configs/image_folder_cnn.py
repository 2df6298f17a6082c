r"""Images of the user, one folder per class, with a small convolutional network.

    python -m rank4class.scripts.train --config=image_folder_cnn \
        --config.data.path=FOLDER --workdir=runs/mine

FOLDER holds a folder of images for each class, or `train` with these folders, and optionally `validation` and
`test`. A missing split is drawn: a tenth of the images each. To fine-tune a ResNet50, set
`--encoder=resnet50 --config.encoder.path=WEIGHTS --config.data.image_size=224`.

Running time: two minutes on 2 cores for 8,000 images at --config.data.image_size=32. Expected at that size on
a subset of CIFAR-10 as image files (1,000 drawn for the test), in percent: top-1 error 50.9, NDCG@5 72.6.
"""

from rank4class.pipelines import config


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="image_folder", image_size=64, augmentation="random_crop"),
        encoder=config.Encoder(name="small_cnn"),
        optimizer=config.Optimizer(name="adam", learning_rate=1e-3, decay="linear"),
        batch_size=32,
        epochs=10.0,
    )
