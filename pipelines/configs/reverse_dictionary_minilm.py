r"""WordNet as a reverse dictionary, with the MiniLM encoder of the definitions fine-tuned.

    python -m rank4class.scripts.train --config=reverse_dictionary_minilm \
        --config.data.path=FOLDER --config.data.tests=TESTS --config.data.gcide=FILE \
        --config.precision=mixed_bfloat16 --workdir=runs/reverse_dictionary_minilm

The folders are those of `reverse_dictionary`. The vectors of the words are computed once, and a linear map of
them is trained: a step encodes the definitions of its batch alone, and scores their words and 4,096 others.
`--class_encoder=text` trains the encoder on the words too: with `--config.candidates.count=1024` and six
epochs 17.0, 62.5 and 89.0 on the descriptions and 15.4, 37.6 and 55.4 on the unseen words, on a GPU.

Running time: 38 minutes on 2 cores with instructions for bfloat16, without them hours. Expected with GCIDE's
definitions on the 200 descriptions, in percent (seed 0): accuracy of the first word 16.5, of 10 words 63.5,
of 100 words 90.0; on the 500 unseen words 14.4, 35.2 and 52.2.
"""

from rank4class.pipelines import config
from rank4class.pipelines.configs import goemotions_minilm, reverse_dictionary


def get_config() -> config.Experiment:
    experiment = reverse_dictionary.get_config()
    tuned = goemotions_minilm.get_config()
    experiment.encoder = tuned.encoder
    experiment.optimizer = tuned.optimizer
    experiment.optimizer.learning_rate = 3e-4
    experiment.data.max_length = 32
    experiment.interaction = config.Interaction(name="cosine", temperature=0.05, learned=True)
    experiment.candidates = config.Candidates(name="sampled", count=4096, power=0.5)
    experiment.epochs = 2.0
    experiment.checkpoint_steps = 100
    return experiment
