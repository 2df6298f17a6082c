"""Registered datasets: files, annotations, and ranges of options."""

import inspect
import math
import pathlib

import pytest

from rank4class import data

PLAIN_TYPES = (str, int, float, bool, str | None, int | None, float | None, tuple[str, ...])
# Values out of range, for every dataset with an option of this name.
OUT_OF_RANGE = {
    "validation_fraction": (0.0, 1.0, -0.5, math.nan),
    "test_fraction": (0.0, 1.0, 1.5, math.nan),
    "release": ("10m",),
    "on_invalid_row": ("drop",),
    "imbalance": (0.5, math.nan),
}
NO_RANGE = {
    "added", "path", "tfds_dir", "classes", "multi_label", "text_column", "text_pair_column", "label_column",
    "image_column", "vector_column", "feature_columns", "label_separator", "label_columns",
    "exclude_known", "feature_names", "label", "tests", "gcide",
    "split_seed",  # which `pipelines.task_data.checks` checks
}  # fmt: skip
WITH_FOLDS = [(name, "validation_fraction", 0.0) for name in ("image_folder", "table", "text_file")]
OPTIONS = [(name, option) for name in data.DATASETS for option in data.DATASETS.options(name)]


def test_unknown_names_and_options():
    with pytest.raises(ValueError, match=r"dataset='digit': unknown. Did you mean 'digits'\? There are: "):
        data.get("digit")
    with pytest.raises(ValueError, match="path: dataset 'digits' has no such option. It has: imbalance"):
        data.get("digits", path="x")


@pytest.mark.parametrize("name", ["image_folder", "imagenet", "letor", "mind", "table", "text_file", "xmc"])
def test_required_options(name):
    with pytest.raises(ValueError, match=f"^path: dataset '{name}' requires it. Set it."):
        data.get(name)


def test_files_register_the_dataset_of_their_name():
    folder = pathlib.Path(__file__).parent / "datasets"
    stems = {path.stem for path in folder.glob("*.py")}
    names = {stem for stem in stems if not stem.endswith(("_test", "_builder"))} - {"__init__"}
    assert names == {name for name in data.DATASETS if data.DATASETS.module_of_user(name) is None}
    assert all(f"{name}_test" in stems for name in names)


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_options_have_plain_types(name, option):
    parameter = inspect.signature(data.DATASETS[name]).parameters[option]
    assert parameter.annotation in PLAIN_TYPES
    assert parameter.default is not None or isinstance(None, parameter.annotation)
    assert (option in OUT_OF_RANGE) != (option in NO_RANGE), f"{option}: add it to one of the two tables"


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        (name, option, value)
        for name, option in OPTIONS
        for value in OUT_OF_RANGE.get(option, ())
        if (name, option, value) not in WITH_FOLDS
    ],
)
def test_values_out_of_range(name, option, value):
    parameters = inspect.signature(data.DATASETS[name]).parameters.values()
    required = {each.name: "nowhere" for each in parameters if each.default is inspect.Parameter.empty}
    with pytest.raises(ValueError, match=rf"^data\.{option}={value!r}: .+\. [A-Z].+\.$"):
        data.get(name, **required, **{option: value})
