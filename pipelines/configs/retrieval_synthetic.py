from rank4class.pipelines import config


def get_config():
    return config.Experiment(
        data=config.Data(name="synthetic_retrieval", num_classes=3000, num_examples=1000, num_relevant=60),
        encoder=config.Encoder(name="embedding", units=32),
        loss=config.Loss(name="rankmax"),
        optimizer=config.Optimizer(name="adam", learning_rate=3e-3),
        batch_size=64,
        epochs=60.0,
        evaluations_per_epoch=1,
        monitor="map@10",
        metrics=("map@10", "top1_accuracy", "recall@100"),
    )
