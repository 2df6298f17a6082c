r"""WordNet as a reverse dictionary of 83,118 words, by the frozen MiniLM encoder of definitions and words.

    python -m rank4class.scripts.train --config=reverse_dictionary \
        --config.data.path=FOLDER --config.data.tests=TESTS --workdir=runs/reverse_dictionary

FOLDER holds WordNet 3.0 (Debian's package `wordnet-base` installs it in /usr/share/wordnet), and TESTS the
test sets of Hill et al., whose 200 descriptions are then the test split; without it the test split is drawn.
`rank4class evaluate --workdir=runs/reverse_dictionary --data.path=TESTS/unseen.tsv` evaluates the words
without a training definition. `--config.data.gcide=FILE` adds 84,521 definitions to the 89,142 of training;
Debian's package `dict-gcide` installs /usr/share/dictd/gcide.dict.dz.

Running time: 16 CPU minutes, most of them for encoding the texts once. Expected on the 200 descriptions, in
percent (seed 0): accuracy of the first word 12.0, of 10 words 60.5, of 100 words 87.5; on the 500 unseen
words 9.6, 29.2 and 46.0. With GCIDE, twice the texts: 13.0, 61.0 and 92.0, on the unseen words 9.2, 29.0
and 47.0.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_minilm_frozen


def get_config() -> config.Experiment:
    experiment = goemotions_minilm_frozen.get_config()
    experiment.data = config.Data(name="reverse_dictionary", max_length=64)
    experiment.class_encoder = config.ClassEncoder(name="frozen_text")
    experiment.interaction = config.Interaction(name="cosine", temperature=0.05)
    experiment.candidates = config.Candidates(name="sampled")
    experiment.batch_size = 512
    experiment.epochs = 3.0
    experiment.metrics = ("top1_accuracy", "top10_accuracy", "top100_accuracy", "median_rank")
    experiment.monitor = "top10_accuracy"
    experiment.calibration = "none"
    return experiment
