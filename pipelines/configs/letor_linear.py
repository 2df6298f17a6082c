r"""Learning to rank with linear scores (n-choose-k paper, section 5.2)."""

from rank4class.pipelines import config

CUTOFFS = tuple(f"ndcg@{k}" for k in range(1, 11))


def get_config():
    return config.Experiment(
        data=config.Data(name="letor"),
        encoder=config.Encoder(name="items", hidden=(), weight_decay=1e-3),
        loss=config.Loss(name="n_choose_k", levels=5),
        optimizer=config.Optimizer(name="adam", learning_rate=2e-2, decay="linear"),
        batch_size=4,
        epochs=10.0,
        monitor="ndcg@10",
        metrics=CUTOFFS,
    )
