"""Texts and labels from a user's files: TSV, CSV or JSON lines."""

from rank4class.data.dataset import Dataset
from rank4class.data.datasets import table
from rank4class.data.registry import DATASETS


@DATASETS.register("text_file")
def text_file(
    path: str,
    text_column: str = "text",
    text_pair_column: str | None = None,
    label_column: str = "label",
    label_separator: str | None = None,
    label_columns: tuple[str, ...] = (),
    classes: str | None = None,
    validation_fraction: float | None = None,
    test_fraction: float = 0.1,
    split_seed: int = 0,
    added: str | None = None,
    on_invalid_row: str = "fail",
) -> Dataset:
    """Texts or pairs of texts with one or several labels each, from a user's file: `table` of texts.

    Files are UTF-8, and end in `.tsv` (see `rows.tsv_records`), `.csv` or `.jsonl` (one JSON object per
    line), in any case, or compressed in `.tsv.gz`, `.csv.gz` or `.jsonl.gz`. Missing splits are drawn from
    the training file, see `table`. Equal texts (and pairs) are drawn together, and stay in splits that are
    there, with a warning. Comparisons ignore case and white space.

    Args:
      path: a file, from which validation and test are drawn; or a folder with `train`, and optionally
        `validation` (or `dev`, `val`, `valid`) and `test`, each a file of one of the formats. Other files of
        a format are invalid rows, unless they are hidden or `classes`.
      text_column: name in the first line, or key of each JSON object. A number in digits is the position of a
        column, from 1, in a TSV or CSV without a header line.
      text_pair_column: column of a second text, which may be empty; None reads no pair.
      label_column: column of the class, a string, or a whole number in JSON; spaces around it are removed. A
        JSON list is several labels.
      label_separator, label_columns: see `table`.
      classes: file with the names of all classes, one per line, in the order of their ids. Those without a
        training example need a class encoder that reads their names. None sorts the classes of the training
        file, integers by value.
      validation_fraction, test_fraction: fraction of the different texts to draw, in (0, 1).
        A validation fraction of 0 draws no validation split; optimizer "lbfgs" then validates by folds. None
        is 0.1, and 0 for "lbfgs" with fewer than 2,000 training examples.
      split_seed: seed of the splits, at least 0.
      added: another file with the same columns, such as examples of new classes, all of which train: the
        other splits are those without it.
      on_invalid_row: "fail" or "skip", see `rows.BadRows`. A row is invalid if it has other columns than the
        first line, is not a JSON object, lacks or repeats a key, is not UTF-8, has a NUL character, no text,
        no or an unknown label, an empty or repeated one of several, or a decimal number as label.

    Returns:
      A `Dataset` with the features `text`, and `text_pair` with a `text_pair_column`, strings `[N]`.
    """
    return table.table(**locals())
