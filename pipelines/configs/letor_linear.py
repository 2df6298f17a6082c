r"""Learning to rank with scores that are linear in a document's features (n-choose-k paper, section 5.2).

    python -m rank4class.scripts.sweep --config=letor_linear \
        --config.data.path=FOLDER --workdir=runs/letor \
        --losses=n_choose_k,softmax,pairwise_logistic,approx_ndcg --interactions=dot \
        --tune=encoder.weight_decay=0.001,0.01,0.1,1,10

FOLDER holds a fold of LETOR or MSLR, or LightGBM's example of learning to rank, whose grades are 0 to 4. For
other grades, set `loss.levels` to the highest grade plus one. As in the paper, only the strength of the L2
penalty is tuned. The paper averages five folds: run each, with the path of `Fold1` to `Fold5`. Its
Precision@K is that of the highest grade, here `grade4_precision@K`; `precision@K` counts all grades above 0.

`softmax` sums the cross entropy over the relevant documents, each weighted by its grade. This is the top-one
cross entropy of ListNet, except that target probabilities are proportional to the grades instead of their
softmax, and that the weight of a query is the sum of its grades.

Running time: 14 CPU seconds per run, with the start. Expected on LightGBM's example in five folds (`reproduce
--only=n_choose_k/letor_lightgbm`), NDCG@10 on 251 test queries in percent, mean over five seeds: n_choose_k
74.1, softmax 74.3, pairwise_logistic 74.0, approx_ndcg 74.5. The paper's data, LETOR 3.0, was not available.
"""

from rank4class.pipelines import config

CUTOFFS = tuple(f"ndcg@{k}" for k in range(1, 11))


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="letor"),
        encoder=config.Encoder(name="items", hidden=(), weight_decay=10.0),
        loss=config.Loss(name="n_choose_k", levels=5),
        optimizer=config.Optimizer(name="adam", learning_rate=2e-2, decay="linear"),
        batch_size=4,
        epochs=10.0,
        monitor="ndcg@10",
        metrics=CUTOFFS,
    )
