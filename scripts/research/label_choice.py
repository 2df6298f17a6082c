r"""Compares choices of the examples to label next: at random, by margin, and those of predict --informative.

    python -m rank4class.scripts.research.label_choice --path=banking77 --path=clinc150 \
        --output=docs/figures/label_choice.json

A first fraction of the training examples is labeled at random, then the same number more by each choice.
"""

from absl import flags

from rank4class.scripts import cli

_PATH = flags.DEFINE_multi_string("path", None, "Folder of examples; may be repeated.", required=True)
_FRACTION = flags.DEFINE_float("fraction", 0.1, "Of the training examples, labeled at first.")
_COUNT = flags.DEFINE_integer("count", 500, "Number of examples to label next.")
_REPETITIONS = flags.DEFINE_integer("repetitions", 5, "Number of draws of the first examples.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the errors.")


def main() -> None:
    from rank4class.pipelines.storage import run_directory
    from rank4class.scripts.research.papers import label_choice

    options = _FRACTION.value, _COUNT.value, _REPETITIONS.value
    result = {path: label_choice.compare(path, *options) for path in _PATH.value}
    if _OUTPUT.value:
        run_directory.write_json(_OUTPUT.value, result)


if __name__ == "__main__":
    cli.run(main)
