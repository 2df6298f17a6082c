r"""Texts and labels of the user by their words alone, without an encoder.

    python -m rank4class.scripts.train --config=text_file_words \
        --config.data.path=FILE --workdir=runs/mine

FILE is as in `text_file_minilm`. The head of TF-IDF weights of words and characters is solved.

Running time: some two minutes on 2 cores for 9,003 questions of 77 classes. Expected, top-1 error on the
3,080 test questions of Banking77, in percent: 8.4.
"""

from rank4class.pipelines import config


def get_config() -> config.Experiment:
    return config.Experiment(
        data=config.Data(name="text_file"),
        encoder=config.Encoder(name="words"),
        optimizer=config.Optimizer(name="lbfgs"),
    )
