"""Tables: formats, inputs, several labels, splits, and errors for invalid ones."""

import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import sklearn.datasets

from rank4class import data
from rank4class.data import lazy_arrays
from rank4class.data.readers import arrow_files, tables
from rank4class.data.readers.columns import Columns

rng = np.random.default_rng(0)
X = np.round(rng.normal(size=[60, 4]), 3).astype(np.float32)
Y = np.arange(60) % 12
SEVERAL = [sorted({i % 5, i * i % 5}) if i % 7 else [] for i in range(60)]


def load(path, **options):
    fractions = {"validation_fraction": 0.2, "test_fraction": 0.2}
    return data.get("table", path=path, **fractions, **options)


def write_parquet(path, rows=slice(None), **columns):
    columns = {"v": pa.array(list(X[rows]), pa.list_(pa.float32(), 4)), "label": Y[rows], **columns}
    pa.parquet.write_table(pa.table(columns), path)


def write_arrow(path, rows=slice(None)):
    table = pa.table({"label": Y[rows], "v": pa.array(list(X[rows].astype(float)), pa.list_(pa.float64()))})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, 17)


def write_npz(path, rows=slice(None)):
    np.savez(path, x=X[rows].astype(np.float64), y=Y[rows])


def write_svmlight(path, rows=slice(None)):
    sklearn.datasets.dump_svmlight_file(X[rows], Y[rows], str(path), zero_based=False)


def write_csv(path, rows=slice(None)):
    frame = pd.DataFrame(X[rows], columns=["d", "a", "c", "b"]).assign(label=Y[rows])
    frame.to_csv(path, index=False, sep="\t" if str(path).endswith("tsv") else ",")


def write_jsonl(path, rows=slice(None)):
    lines = (json.dumps({"v": x.tolist(), "label": int(y)}) for x, y in zip(X[rows], Y[rows], strict=True))
    path.write_text("".join(f"{line}\n" for line in lines))


WRITERS = {
    "parquet": (write_parquet, {"vector_column": "v"}),
    "feather": (write_arrow, {"vector_column": "v"}),
    "npz": (write_npz, {}),
    "svmlight": (write_svmlight, {}),
    "csv": (write_csv, {"feature_columns": ("d", "a", "c", "b")}),
    "tsv": (write_csv, {"feature_columns": ("d", "a", "c", "b")}),
    "jsonl": (write_jsonl, {"vector_column": "v"}),
}


def contents(dataset):
    """Returns split -> vectors and labels."""
    splits = {name: (split.features["embedding"], split.labels) for name, split in dataset.splits.items()}
    return {n: (x.toarray() if hasattr(x, "toarray") else np.asarray(x), y) for n, (x, y) in splits.items()}


@pytest.mark.parametrize("ending", WRITERS)
def test_formats_of_vectors_agree(tmp_path, ending):
    write, options = WRITERS[ending]
    write(tmp_path / f"mine.{ending}")
    dataset = load(tmp_path / f"mine.{ending}", split_seed=5, **options)
    assert dataset.class_names == tuple(map(str, range(12)))
    splits = contents(dataset)
    assert {name: len(y) for name, (_, y) in splits.items()} == {"validation": 12, "test": 12, "train": 36}
    for name, (x, y) in splits.items():
        assert x.dtype == np.float32
        rows = [int(re.findall(r"\d+", origin)[-1]) for origin in dataset.splits[name].origins]
        rows = np.array(rows) - {"csv": 2, "tsv": 2, "jsonl": 1}.get(ending, 0)
        np.testing.assert_array_equal(x, X[rows])
        np.testing.assert_array_equal(y, Y[rows])
        if name == "test":
            assert rows[:3].tolist() == [3, 5, 9]  # of each format
    (tmp_path / "folder").mkdir()
    for name, rows in {"train": slice(40), "dev": slice(40, 50), "test": slice(50, 60)}.items():
        write(tmp_path / "folder" / f"{name}.{ending}", rows)
    parts = contents(load(tmp_path / "folder", **options))
    np.testing.assert_array_equal(parts["validation"][0], X[40:50])
    path = tmp_path / "folder" / f"test.{ending}"
    labeled = data.get_labeled("table", dataset.class_names, path=path, width=4, **options)
    assert (labeled.labels.tolist(), len(labeled.origins)) == (Y[50:].tolist(), 10)


def test_folders_of_parts(tmp_path):
    write_parquet(tmp_path / "part-0.parquet", slice(25))
    write_parquet(tmp_path / "part-1.parquet", slice(25, 60))
    (tmp_path / "_SUCCESS").write_text("")
    dataset = load(tmp_path, vector_column="v")
    origins = np.concatenate([split.origins for split in dataset.splits.values()])
    assert {f"{tmp_path}/part-0.parquet[24]", f"{tmp_path}/part-1.parquet[34]"} <= set(origins)
    for name, rows in {"train-00000-of-00002": slice(25), "train-00001-of-00002": slice(25, 60)}.items():
        write_parquet(tmp_path / f"{name}.parquet", rows)
    for i in range(2):
        (tmp_path / f"part-{i}.parquet").unlink()
    shards = load(tmp_path, vector_column="v")
    for name, arrays in contents(shards).items():
        tuple(map(np.testing.assert_array_equal, arrays, contents(dataset)[name]))
    write_parquet(
        tmp_path / "test-00000-of-00001-0123456789abcdef.parquet", slice(5)
    )  # of a published dataset
    assert len(load(tmp_path, vector_column="v").splits["test"]) == 5
    for i in range(2):
        (tmp_path / f"train-0000{i}-of-00002.parquet").rename(tmp_path / f"mine-{i}.parquet")
    with pytest.raises(FileNotFoundError, match="train"):
        load(tmp_path, vector_column="v")
    for folder, rows in {"train": slice(48), "test": slice(48, 60)}.items():
        (tmp_path / "arrays" / folder).mkdir(parents=True)
        np.save(tmp_path / "arrays" / folder / "x.npy", X[rows])
        np.save(tmp_path / "arrays" / folder / "y.npy", Y[rows] % 6)
    np.testing.assert_array_equal(contents(load(tmp_path / "arrays"))["test"][0], X[48:])


@pytest.mark.parametrize("several", [False, True])
def test_datasets_of_hugging_face(tmp_path, several):
    names = ["zeta", "alpha", "beta"]
    feature = {"names": names, "_type": "ClassLabel"}
    feature = {"feature": feature, "_type": "Sequence"} if several else feature
    labels = [[i % 3, (i + 1) % 3][: 1 + i % 2] if several else i % 3 for i in range(40)]
    for split, rows in (("train", range(30)), ("test", range(30, 40))):
        folder = tmp_path / split
        folder.mkdir()
        table = pa.table({"text": [f"text {i}" for i in rows], "label": [labels[i] for i in rows]})
        file = pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb")
        with file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, 7)
        (folder / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
        (folder / "dataset_info.json").write_text(json.dumps({"features": {"label": feature}}))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    dataset = load(tmp_path)
    assert dataset.class_names == ("alpha", "beta", "zeta")
    test = dataset.splits["test"]
    assert test.features["text"][0] == "text 30"
    for i, row in enumerate(test.class_matrix(3).toarray()):
        ids = labels[30 + i] if several else [labels[30 + i]]
        assert {dataset.class_names[j] for j in np.flatnonzero(row)} == {names[j] for j in ids}


def test_images(tmp_path):
    (tmp_path / "images").mkdir()
    for i in range(20):
        (tmp_path / "images" / f"{i}.png").write_bytes(b"%d" % i)
    frame = pd.DataFrame({"image": [f"images/{i}.png" for i in range(20)], "label": list("ab") * 10})
    frame.to_csv(tmp_path / "mine.csv", index=False)
    dataset = load(tmp_path / "mine.csv", image_column="image")
    files = np.concatenate([split.features["file"] for split in dataset.splits.values()])
    assert set(files) == {str(tmp_path / "images" / f"{i}.png") for i in range(20)}
    (tmp_path / "images" / "3.png").unlink()
    message = r"csv:5: image: .*/images/3\.png: no such file\. Correct the path\. To skip it"
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "mine.csv", image_column="image")


LABELED = pd.DataFrame({"text": [f"text {i}" for i in range(60)]})


def write_several(path, form):
    names = [[f"c{i}" for i in ids] for ids in SEVERAL]
    if form == "separator":
        LABELED.assign(label=[" ;".join(each) for each in names]).to_csv(path / "mine.csv", index=False)
        return path / "mine.csv", {"label_separator": ";"}
    if form == "columns":
        flags = {f"c{i}": [i in ids for ids in SEVERAL] for i in range(5)}
        LABELED.assign(**flags).to_csv(path / "mine.tsv", index=False, sep="\t")
        return path / "mine.tsv", {"label_columns": tuple(flags)}
    if form == "json":
        LABELED.assign(label=names).to_json(path / "mine.jsonl", orient="records", lines=True)
        return path / "mine.jsonl", {}
    LABELED.assign(label=names).to_parquet(path / "mine.parquet")
    return path / "mine.parquet", {}


@pytest.mark.parametrize("form", ["separator", "columns", "json", "lists"])
def test_several_labels(tmp_path, caplog, form):
    path, options = write_several(tmp_path, form)
    names = ["table"] if form == "lists" else ["table", "text_file"]
    for name in names:
        dataset = data.get(name, path=path, split_seed=2, **options)
        assert dataset.class_names == ("c0", "c1", "c2", "c3", "c4")
        assert {n: len(s) for n, s in dataset.splits.items()} == {"validation": 6, "test": 6, "train": 48}
        for split in dataset.splits.values():
            rows = [int(text.removeprefix("text ")) for text in split.features["text"]]
            expected = [[float(i in SEVERAL[row]) for i in range(5)] for row in rows]
            np.testing.assert_array_equal(split.labels.toarray(), expected)
            assert split.labels.dtype == np.float32
        assert dataset.splits["train"].class_counts(5).all()
    assert "metrics of ranks are the worst: 5 of train, 0 of validation, 4 of test" in caplog.text


def test_several_labels_of_arrays(tmp_path):
    flags = np.array([[i in ids for i in range(5)] for ids in SEVERAL])
    np.savez(tmp_path / "mine.npz", x=X, y=flags)
    sklearn.datasets.dump_svmlight_file(X, flags, f"{tmp_path}/mine.svm", zero_based=False, multilabel=True)
    for name in ("mine.npz", "mine.svm"):
        dataset = load(tmp_path / name, split_seed=2)
        assert dataset.class_names == tuple("01234")
        for split in dataset.splits.values():
            rows = [int(re.findall(r"\d+", origin)[-1]) for origin in split.origins]
            np.testing.assert_array_equal(split.labels.toarray(), flags[rows])


def test_inputs_that_are_not_named(tmp_path):
    write_csv(tmp_path / "mine.csv")
    dataset = load(tmp_path / "mine.csv")
    assert dataset.columns == ("d", "a", "c", "b")
    x, _ = contents(dataset)["test"]
    rows = [int(origin.rpartition(":")[2]) - 2 for origin in dataset.splits["test"].origins]
    np.testing.assert_array_equal(x, X[rows])
    write_parquet(tmp_path / "mine.parquet", text=[f"text {i}" for i in range(60)], other=Y)
    assert list(load(tmp_path / "mine.parquet").splits["train"].features) == ["text"]
    write_jsonl(tmp_path / "mine.jsonl")
    write_parquet(tmp_path / "mine.parquet", other=Y)
    for ending in ("jsonl", "parquet"):
        dataset = load(tmp_path / f"mine.{ending}")
        assert dataset.splits["train"].features["embedding"].shape == (36, 4)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "label": Y})
    frame.to_csv(tmp_path / "index.csv")  # with the index, a column without a name
    frame.iloc[1:].to_csv(tmp_path / "positions.csv", index=False, header=False)
    lines = "".join(json.dumps({"a": x, "tags": ["u"], "b": 1, "label": "y"}) + "\n" for x in (None, 1, 2))
    (tmp_path / "first.jsonl").write_text(lines)
    decimals = pa.array(Y).cast(pa.decimal128(19, 0))
    pa.parquet.write_table(pa.table({"a": decimals, "b": X[:, 0], "label": decimals}), tmp_path / "d.parquet")
    for name, options, expected in (
        ("index.csv", {}, ("a", "b")),
        ("positions.csv", {"label_column": "3"}, ("1", "2")),
        ("first.jsonl", {}, ("a", "b")),
        ("d.parquet", {}, ("a", "b")),
    ):
        columns = Columns.of_options({"label_column": "label", **options})
        assert tables.choose_inputs(columns, str(tmp_path / name)).feature_columns == expected
    dataset = load(tmp_path / "d.parquet")
    assert dataset.class_names == tuple(map(str, range(12)))
    x, y = contents(dataset)["test"]
    np.testing.assert_array_equal(x[:, 0], y)


def csv_of(**columns):
    return lambda path: pd.DataFrame(columns).to_csv(path / "mine.csv", index=False)


def parquet_of(**columns):
    return lambda path: pa.parquet.write_table(pa.table(columns), path / "mine.parquet")


def npz_of(**arrays):
    return lambda path: np.savez(path / "mine.npz", **arrays)


def twice(path):
    table = pa.Table.from_arrays([TEN] * 3, ["text", "text", "label"])
    pa.parquet.write_table(table, path / "mine.parquet")


TEN = list("ab") * 5
TEXTS = {"text": list("stuvwxyzpq"), "label": ["a;b"] * 10}
FLAGS = csv_of(**TEXTS, x=["1", "0"] * 5, y=["0", "2"] * 5)
SPLIT = {"label_separator": ";"}
VECTOR = {"vector_column": "v"}


@pytest.mark.parametrize(
    ("write", "options", "message"),
    [
        (csv_of(**TEXTS), {"label_separator": "|"}, r"data\.label_separator='\|': separates no labels in"),
        (csv_of(**TEXTS), {"label_separator": ""}, r"data\.label_separator='': empty\. Set it to"),
        (csv_of(**TEXTS | {"label": ["a;;b"] * 10}), SPLIT, r"csv:2: 'label' is empty\. To skip it"),
        (csv_of(**TEXTS | {"label": ["a;a"] * 10}), SPLIT, r"csv:2: label 'a' is repeated\. Remove one"),
        (FLAGS, {"label_columns": ("x", "y")}, r"csv:3: y '2' is neither 0 nor 1\. .* To skip it"),
        (FLAGS, {"label_columns": ("x",)}, r"data\.label_columns=\('x',\): it takes at least two"),
        (
            FLAGS,
            {"label_columns": ("x", "z")},
            r"no column 'z'\. .* among them with data\.label_columns, or rename one\.$",
        ),
        (csv_of(**TEXTS), {"image_column": "Text"}, r"no column 'Text'\. Did you mean 'text'\?"),
        (csv_of(**TEXTS), {"text_column": "text", **VECTOR}, r"data\.text_column=text, data\.vector_col"),
        (csv_of(**TEXTS), {"image_column": "text"}, r"csv:2: text: .*/s: no such file\. Correct the path\."),
        (csv_of(a=list("abcdefghij"), label=TEN), {}, r"csv: no column 'text', of vectors, of numbers or of"),
        (csv_of(a=[*"123456789", "x"], label=TEN), {}, r"csv:11: a 'x' is not a number\. Correct it\. To"),
        (csv_of(a=[*"123456789", "nan"], label=TEN), {}, r"csv:11: a number is missing, or not finite"),
        (parquet_of(v=[[1.0, 2.0]] * 9 + [[1.0]], label=TEN), VECTOR, r"quet\[9\]: 1 values, but 2 in the"),
        (parquet_of(v=[[1.0, np.nan]] * 10, label=TEN), VECTOR, r"parquet\[0\]: a number is missing, or"),
        (parquet_of(v=TEN, label=TEN), VECTOR, r"parquet\[0\]: v 'a' is not a list of numbers\. Correct"),
        (parquet_of(a=range(10), label=np.arange(10) / 4), {}, r"parquet\[1\]: label 0\.25 is a decimal"),
        (parquet_of(a=range(10), label=[None, *TEN[1:]]), {}, r"parquet\[0\]: 'label' is empty\. To skip it"),
        (twice, {}, r"parquet: several columns 'text'\. The columns are .*\. Rename all but one\."),
        (lambda path: (path / "mine.parquet").write_bytes(b"PAR1"), {}, r"mine\.parquet: cannot be read: .*"),
        (npz_of(x=X, y=Y / 8), {}, r"mine\.npz\[1\]: y 0\.125 is a decimal number, not a class\. Write"),
        (npz_of(x=X, y=Y[1:]), {}, r"mine\.npz: y has shape \(59,\), but x has 60 rows\. Give \[N\], or 0"),
        (npz_of(x=X, y=Y), {"text_column": "a"}, r"data\.text_column: .*npz has no columns\. Leave it out\."),
        (npz_of(z=X, y=Y), {}, r"mine\.npz: arrays z, y, no array named 'x'\. Rename one\."),
        (lambda path: (path / "mine.json").write_text("[]"), {}, r"json: unknown format\. Give a file that"),
        (lambda path: (path / "mine.svm").write_text("1 0:2\n2 1:3\n"), {}, r"svm: cannot be read: Invalid"),
    ],
)
def test_invalid_tables(tmp_path, write, options, message):
    write(tmp_path)
    [path] = tmp_path.iterdir()
    with pytest.raises(ValueError, match=message):
        load(path, **options)


def test_invalid_rows_are_skipped(tmp_path):
    vectors = [*map(list, X.astype(float)), [1.0], None, [np.nan] * 4, [0.5] * 4]
    labels = [*map(str, Y), "0", "0", "0", None]
    pa.parquet.write_table(pa.table({"v": vectors, "label": labels}), tmp_path / "mine.parquet")
    dataset = load(tmp_path / "mine.parquet", vector_column="v", on_invalid_row="skip")
    assert sum(map(len, dataset.splits.values())) == 60
    assert [re.sub(".*parquet", "", message) for message in dataset.skipped] == [
        "[60]: 1 values, but 4 in the first vector. Correct it.",
        "[61]: v None is not a list of numbers. Correct it.",
        "[62]: a number is missing, or not finite. Correct it.",
        "[63]: 'label' is empty.",
    ]


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_added_rows_train_and_leave_the_other_splits_as_they_are(tmp_path, ending):
    write, columns = WRITERS[ending]
    path, added = tmp_path / f"mine.{ending}", tmp_path / f"new.{ending}"
    write(path, np.flatnonzero(Y < 10))
    before = contents(load(path, **columns))
    is_test = (X[:, None] == before["test"][0]).all(axis=2).any(axis=1)
    rows = np.flatnonzero((Y >= 10) | is_test)  # new classes, and copies of test examples
    write(added, rows)
    dataset = load(path, added=added, **columns)
    assert dataset.class_names == tuple(map(str, range(12)))
    assert list(dataset.files) == [str(path), str(added)]
    after = contents(dataset)
    for split in ("validation", "test"):
        for values, expected in zip(after[split], before[split], strict=True):
            np.testing.assert_array_equal(values, expected)
    for values, expected, all_rows in zip(after["train"], before["train"], (X, Y), strict=True):
        np.testing.assert_array_equal(values, np.concatenate([expected, all_rows[Y >= 10]]))


def test_added_rows_that_cannot_be_used(tmp_path):
    write_csv(tmp_path / "mine.csv")
    with pytest.raises(FileNotFoundError, match=r"data\.added=.*none\.csv: no such table\. Check the path\."):
        load(tmp_path / "mine.csv", added=str(tmp_path / "none.csv"))
    pd.DataFrame({"a": X[:, 0], "label": Y}).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(ValueError, match=r"new\.csv: no column 'd'"):
        load(tmp_path / "mine.csv", added=str(tmp_path / "new.csv"))


def test_vectors_that_are_kept_on_disk_are_those_in_memory(tmp_path, monkeypatch):
    write_parquet(tmp_path / "mine.parquet")
    expected = load(tmp_path / "mine.parquet")
    monkeypatch.setattr(lazy_arrays, "IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(arrow_files, "BATCH", 7)
    monkeypatch.setenv(lazy_arrays.CACHE, str(tmp_path / "cache"))
    dataset = load(tmp_path / "mine.parquet")
    assert isinstance(dataset.splits["test"].features["embedding"], data.StoredRows)
    for name, arrays in contents(dataset).items():
        tuple(map(np.testing.assert_array_equal, arrays, contents(expected)[name]))
    trains = (each.splits["train"] for each in (dataset, expected))
    np.testing.assert_array_equal(*(train.kind.contents(train.features) for train in trains))
    assert list((tmp_path / "cache").iterdir()) == []  # the file has no name
