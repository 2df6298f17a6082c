r"""MovieLens 100K of the Rankmax paper: ranking of movies for users by their ratings.

    python -m rank4class.scripts.sweep --config=movielens_100k \
        --config.data.path=FOLDER --workdir=runs/movielens_100k \
        --losses=rankmax,softmax,sparsemax --interactions=dot \
        --tune=optimizer.learning_rate=0.003,0.01,0.03

FOLDER holds `ratings.csv` and `movies.csv` of the release "latest-small"; without it TensorFlow Datasets
downloads them. The paper has 600 users, 9,000 movies and 101,000 ratings, much as that of 2018 (610, 9,724
and 100,836); the figures below are from that of 2016 (671, 9,066 and 100,004). The release "100k" of 1998,
with 943 users and 1,682 movies, is that of `rank4class reproduce --only=rankmax/movielens_100k`. The loss of
a user covers all movies of the training split; validation and test exclude a user's movies of earlier splits
from the ranking. The metrics are those of the paper's Table 2; `map@10` divides by the number of relevant
movies, as in TF-Ranking.

Running time: a minute per run on one core. Expected on the test pairs, in percent, mean of ten seeds with the
learning rate 0.003, --config.class_encoder.weight_decay=0.01 and 100 epochs: map@10 9.9, top-1 accuracy 29.4,
recall@100 48.2 (`rank4class reproduce --only=rankmax/table2`). The paper reports for Rankmax AP@10 15.4,
accuracy 34.2, Recall@100 38.7 percent; it does not state the denominator of its average precision, and
ranks movies of earlier splits too, as --config.data.exclude_known=False does. The L2 penalties of users and
movies are --config.encoder.weight_decay and --config.class_encoder.weight_decay.
"""

from rank4class.pipelines import config


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="movielens", release="latest-small"),
        encoder=config.Encoder(name="embedding", units=32),
        loss=config.Loss(name="rankmax"),
        optimizer=config.Optimizer(name="adam", learning_rate=1e-2),
        batch_size=64,
        epochs=60.0,
        patience=10,
        monitor="map@10",
        metrics=("map@10", "top1_accuracy", "recall@100"),
    )
