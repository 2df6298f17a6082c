r"""GoEmotions with BERT base (Rank4Class, Table 7).

    python -m rank4class.scripts.train --config=goemotions_bert \
        --config.data.path=FOLDER --config.encoder.path=CHECKPOINT --workdir=runs/goemotions_bert

FOLDER holds the published TSV files; without it TensorFlow Datasets downloads them. CHECKPOINT is BERT-Base
uncased, in any format that `models.checkpoints` reads; the paper uses google-research's.

Batch size, length, steps, Adam and the learning rate follow the paper (1e-5 or 3e-6 was best for most of its
combinations). Dropout, pooling, warm-up and linear decay follow BERT's fine-tuning; the paper does not state
them.

Running time: not measured; it requires an accelerator. Expected in percent, softmax with dot, by the paper:
top-1 error 41.00, top-5 error 13.35, NDCG@5 73.90.
"""

from rank4class.pipelines import config


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="goemotions", max_length=32),
        encoder=config.Encoder(name="bert", pooling="pooler", dropout=0.1, output_dropout=0.1),
        optimizer=config.Optimizer(name="adam", learning_rate=1e-5, warmup_fraction=0.1, decay="linear"),
        batch_size=32,
        steps=100_000,
    )
