r"""Plants wrong labels in folders of texts, and compares how many of them check_labels and cleanlab find.

    python -m rank4class.scripts.research.label_peers --path=banking77 --path=clinc150 \
        --output=docs/figures/wrong_labels.json

It needs the package cleanlab.
"""

from absl import flags

from rank4class.scripts import cli

_PATH = flags.DEFINE_multi_string("path", None, "Folder of texts; may be repeated.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the measures.")


def main() -> None:
    from rank4class.pipelines.storage import run_directory
    from rank4class.scripts.research.papers import label_peers

    result = label_peers.compare(_PATH.value)
    if _OUTPUT.value:
        run_directory.write_json(_OUTPUT.value, result)


if __name__ == "__main__":
    cli.run(main)
