r"""ImageNet with the Model Garden's ResNet50, fine-tuned (Rank4Class, Table 11).

    python -m rank4class.scripts.train --config=imagenet_resnet50 \
        --config.data.path=FOLDER --config.encoder.path=CHECKPOINT --workdir=runs/imagenet_resnet50

FOLDER holds `train/<synset>/*.JPEG` and `val/<synset>/*.JPEG`, or records of TensorFlow Datasets or of the
Model Garden, on disk or in object storage. CHECKPOINT is a Model Garden backbone trained on ImageNet, as in
the paper, or Keras's file of ResNet50 weights; without it the initial weights are random.

Batch size, epochs, Adam and the learning rate follow the paper (1e-5 or 3e-6 was best for most of its
combinations); the linear decay does not. Training images are cropped at random and flipped as in the Model
Garden.

Running time: not measured; it requires an accelerator. Expected in percent, softmax with dot, by the paper:
top-1 error 23.74, top-5 error 6.90, NDCG@5 85.74.
"""

from rank4class.pipelines import config


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="imagenet", augmentation="random_crop"),
        encoder=config.Encoder(name="resnet50"),
        optimizer=config.Optimizer(name="adam", learning_rate=1e-5, decay="linear"),
        batch_size=64,
        epochs=50.0,
    )
