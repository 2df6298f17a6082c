r"""Learning to rank with scores that are linear in a document's features (n-choose-k paper, section 5.2).

    python -m rank4class.scripts.sweep --config=letor_linear \
        --config.data.path=FOLDER --workdir=runs/letor \
        --losses=n_choose_k,softmax,pairwise_logistic,approx_ndcg --interactions=dot \
        --tune=encoder.weight_decay=0.001,0.01,0.1,1,10

FOLDER holds a fold of LETOR or MSLR, or LightGBM's example of learning to rank, whose grades go from 0 to
4: for other grades set `loss.levels` to the highest and one more. As in the paper the strength of the L2
penalty is all that is tuned.

`softmax` sums the cross entropy of the documents' shares over the relevant documents, each times its grade:
the top-one cross entropy of ListNet with target shares in proportion to the grades, in place of those of a
softmax of the grades, and a query counts as much as its grades sum to.

Running time: 40 runs in 16 minutes on 2 cores that had other work. Expected on the 50 test queries of
LightGBM's example, NDCG@10 in percent, mean over five seeds: n_choose_k 71.6, softmax 71.6,
pairwise_logistic 71.5, approx_ndcg 74.4; a random order has 58.3. The paper's own data, LETOR 3.0, could
not be had.
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
