r"""WordNet as a reverse dictionary, with the MiniLM encoder of definitions and words fine-tuned.

    python -m rank4class.scripts.train --config=reverse_dictionary_minilm \
        --config.data.path=FOLDER --config.data.tests=TESTS --workdir=runs/reverse_dictionary_minilm

The folders are those of `reverse_dictionary`. A step encodes the definitions of a batch, their words, and
256 other words.

Running time: 5 to 8 s a step on 2 cores, or 2 to 3 hours. Expected after the first epoch, in percent of the
validation definitions (seed 0): accuracy of the first word 19.7, of 10 words 40.9, of 100 words 59.8; not
measured after the second, nor on the test sets.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_minilm, reverse_dictionary


def get_config() -> config.Experiment:
    experiment = reverse_dictionary.get_config()
    tuned = goemotions_minilm.get_config()
    experiment.encoder, experiment.optimizer = tuned.encoder, tuned.optimizer
    experiment.class_encoder = config.ClassEncoder(name="text")
    experiment.interaction = config.Interaction(name="cosine", temperature=0.05, learned=True)
    experiment.candidates = config.Candidates(name="sampled", count=256)
    experiment.batch_size = 128
    experiment.epochs = 2.0
    experiment.checkpoint_steps = 100
    return experiment
