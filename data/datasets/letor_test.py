"""Learning to rank: both published layouts, and errors for invalid rows, sizes and folders."""

import re

import numpy as np
import pytest
import tensorflow as tf

from rank4class import compat, data
from rank4class.data.datasets import letor
from rank4class.data.kinds.items import Items
from rank4class.data.readers import rows
from rank4class.data.readers.columns import Columns

# Queries of two, one and three documents. Line numbers include the comment and the empty line.
TRAIN = """\
# written by hand
2 qid:10 1:0.5 3:-1.5 #docid = GX001 inc = 1
0 qid:10 2:0.25 #docid = GX002

1 qid:7 1:1
0 qid:12 1:2
3 qid:12 2:3e-1
0 qid:12
"""
BARE = "0 qid:3 1:1\n0 qid:3 2:1\n"


def write_letor(folder, **changed):
    """Writes a fold, except files whose content is None."""
    contents = {"train": TRAIN, "vali": BARE + "1 qid:4 4:8\n", "test": "1 qid:5 1:1\n", **changed}
    for name, content in contents.items():
        if content is not None:
            (folder / f"{name}.txt").write_text(content)
    return str(folder)


def write_lightgbm(folder, sizes=(2, 1, 3, 1, 2), **changed):
    rows = [f"{1 + i % 3} 1:{i} 2:0.5\n" for i in range(sum(sizes))]
    contents = {
        "rank.train": "".join(rows),
        "rank.train.query": "".join(f"{size}\n" for size in sizes),
        "rank.test": "1 3:1\n0 1:1\n",
        "rank.test.query": "2\n",
        **changed,
    }
    for name, content in contents.items():
        if content is not None:
            (folder / name).write_text(content)
    return str(folder)


def test_letor_layout(tmp_path):
    dataset = letor.letor(write_letor(tmp_path))
    train, validation, test = (dataset.splits[name] for name in ("train", "validation", "test"))
    assert dataset.class_names == ("document 1", "document 2", "document 3")
    assert train.features["items"].dtype == train.labels.dtype == np.float32
    expected = np.zeros([3, 3, 4], np.float32)
    expected[0, 0, [0, 2]] = 0.5, -1.5
    expected[0, 1, 1] = 0.25
    expected[1, 0, 0] = 1.0
    expected[2, 0, 0] = 2.0
    expected[2, 1, 1] = 0.3
    np.testing.assert_array_equal(train.features["items"], expected)
    np.testing.assert_array_equal(train.labels.toarray(), [[2, 0, 0], [1, 0, 0], [0, 3, 0]])
    assert train.labels.nnz == 3
    np.testing.assert_array_equal(train.excluded.toarray(), [[0, 0, 1], [0, 1, 1], [0, 0, 0]])
    places = ("10 (line 2)", "7 (line 5)", "12 (line 6)")
    assert train.origins.tolist() == [f"train.txt query {place}" for place in places]
    assert validation.features["items"].shape == (2, 3, 4)
    assert validation.labels.toarray().tolist() == [[0, 0, 0], [1, 0, 0]]  # one without a relevant document
    assert len(test) == 1
    assert dataset.skipped == ()
    assert sorted(dataset.files) == [str(tmp_path / f"{name}.txt") for name in ("test", "train", "vali")]


def test_lightgbm_layout(tmp_path):
    dataset = data.get("letor", path=write_lightgbm(tmp_path), validation_fraction=0.4)
    train, validation, test = (dataset.splits[name] for name in ("train", "validation", "test"))
    assert len(validation) == 2
    documents = {}
    for split in (train, validation):
        for i in range(len(split)):
            size = 3 - int(split.excluded[[i]].sum())
            numbers = split.features["items"][i, :size, 0].astype(int)
            documents[split.origin(i)] = numbers.tolist()
            assert split.labels.toarray()[i, :size].tolist() == (1 + numbers % 3).tolist()
            assert not split.features["items"][i, size:].any()
    assert documents == {
        "rank.train query 1 (line 1)": [0, 1],
        "rank.train query 2 (line 3)": [2],
        "rank.train query 3 (line 4)": [3, 4, 5],
        "rank.train query 4 (line 7)": [6],
        "rank.train query 5 (line 8)": [7, 8],
    }
    assert test.features["items"].tolist() == [[[0, 0, 1], [1, 0, 0], [0, 0, 0]]]
    assert len(dataset.files) == 4


def test_training_query_without_a_relevant_document_is_skipped(tmp_path, caplog):
    dataset = data.get("letor", path=write_letor(tmp_path, train=BARE + TRAIN))
    assert len(dataset.splits["train"]) == 3
    assert dataset.skipped == ("train.txt query 3 (line 1): no relevant document.",)
    assert "1 left out, the first: train.txt query 3 (line 1): no relevant document" in caplog.text
    assert "no training example of" not in caplog.text  # positions in a list are no classes to learn
    with pytest.raises(ValueError, match="the train split has no example"):
        letor.letor(write_letor(tmp_path, train=BARE))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("-1 qid:1 1:1", ":9: grade -1 is not a whole number of at least 0. Correct it."),
        ("nan qid:1 1:1", ":9: grade nan is not a whole number"),
        ("1e39 qid:1 1:1", ":9: grade inf is not a whole number"),
        ("good qid:1 1:1", ": cannot be read: could not convert string to float"),
        ("1 1:1", ": 1 row without qid:ID. Add the id of the query."),
        ("1 qid:1 0:1", ": cannot be read: Invalid index 0"),
        ("1 qid:1 3:1 2:1", ": cannot be read: Feature indices in SVMlight/LibSVM data file should be"),
        ("1 qid:1 2:inf", ":9: a value is not finite"),
        ("1 qid:10 1:1", ":9: query 10 starts again, with other queries in between"),
    ],
)
def test_invalid_rows(tmp_path, row, message):
    path = write_letor(tmp_path, train=f"{TRAIN}{row}\n1 qid:99 1:1\n")
    with pytest.raises(ValueError, match=f"^{re.escape(f'{tmp_path}/train.txt{message}')}"):
        letor.letor(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rank.train.query": "2\n1\n3\n1\n"}, "rank.train.query: 7 documents, but {}/rank.train has 9 rows"),
        ({"rank.train.query": "2\n1\n0\n3\n3\n"}, "rank.train.query: 9 documents, but"),
        ({"rank.train.query": "2\n1\nx\n3\n3\n"}, "rank.train.query:3: 'x' is not a number of"),
        ({"rank.train.query": ""}, "rank.train.query: the file is empty"),
        ({"rank.train.query": None}, "{}/rank.train.query: no such file"),
        ({"rank.test": None}, "{}/rank.test: no such file"),
        ({"rank.test": ""}, "rank.test: no row"),
        ({"rank.train": None}, "data.path={}: neither train.txt (a fold of LETOR), rank.train"),
    ],
)
def test_invalid_folders(tmp_path, changed, message):
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(message.format(tmp_path))):
        letor.letor(write_lightgbm(tmp_path, **changed))


def test_lists_above_the_memory_limit_are_rejected(tmp_path):
    path = write_letor(tmp_path, test="1 qid:5 300000000:1\n")  # 6 queries x 3 documents x 300 million
    with pytest.raises(ValueError, match=r"6 queries of up to 3 documents with 300,000,000 .* take 21\.6 GB"):
        letor.letor(path)


tfr = compat.import_tensorflow_ranking()
FORMS = pytest.mark.parametrize("form", [tfr.data.ELWC, tfr.data.SEQ])
FEATURES = ("bm25", "counts", "age")
CONTEXTS = [{"age": [0.25], "query": ["red shoes"]}, {"age": [3.5]}, {"age": [-1.0]}]
# Documents without a label, or with a negative one, are padding.
LISTS = [
    (
        CONTEXTS[0],
        [
            {"bm25": [0.5], "counts": [1, 2], "title": ["shoes"], "relevance": [2]},
            {"bm25": [-1.5], "counts": [0, 7], "title": ["red"], "relevance": [0]},
            {"bm25": [9.0], "counts": [9, 9], "title": ["-"], "relevance": [-1]},
        ],
    ),
    (CONTEXTS[1], [{"bm25": [0.1], "counts": [3, 0], "relevance": [1]}, {"bm25": [8.0], "counts": [8, 8]}]),
]
UNLABELED = [(CONTEXTS[2], [{"bm25": [1.0], "counts": [1, 1]}])]


def write_fold(folder, write_records, form, **changed):
    contents = {"train": LISTS, "vali": LISTS[:1], "test": LISTS[1:], **changed}
    for name, lists in contents.items():
        write_records(folder / f"{name}.tfrecord", lists, form)
    return str(folder)


@FORMS
def test_tf_ranking_layout(tmp_path, write_records, form):
    dataset = data.get("letor", path=write_fold(tmp_path, write_records, form), feature_names=FEATURES)
    items = [[[0.5, 1, 2, 0.25], [-1.5, 0, 7, 0.25]], [[0.1, 3, 0, 3.5], [0, 0, 0, 0]]]
    labels = np.array([[2, 0], [1, 0]])
    excluded = np.array([[0, 0], [0, 1]])
    for name, part in (("train", slice(2)), ("validation", slice(1)), ("test", slice(1, 2))):
        split = dataset.splits[name]
        assert split.features["items"].dtype == split.labels.dtype == np.float32
        np.testing.assert_array_equal(split.features["items"], np.float32(items)[part])
        np.testing.assert_array_equal(split.labels.toarray(), labels[part])
        np.testing.assert_array_equal(split.excluded.toarray(), excluded[part])
    assert dataset.splits["train"].origins.tolist() == ["train.tfrecord query 1", "train.tfrecord query 2"]
    assert dataset.columns == FEATURES
    assert sorted(dataset.files) == [str(tmp_path / f"{name}.tfrecord") for name in ("test", "train", "vali")]


@FORMS
def test_records_equal_those_of_tf_rankings_parser(tmp_path, write_records, form):
    write_records(tmp_path / "train.tfrecord", LISTS, form)
    of_padding = [0, 0] if form == tfr.data.ELWC else None  # the other form takes a scalar alone
    specs = {"bm25": tf.io.FixedLenFeature([1], tf.float32, [0.0])}
    specs["counts"] = tf.io.FixedLenFeature([2], tf.int64, of_padding)
    specs["relevance"] = tf.io.FixedLenFeature([1], tf.int64, [-1])
    parse = tfr.data.make_parsing_fn(
        form, context_feature_spec={"age": tf.io.FixedLenFeature([1], tf.float32)}, example_feature_spec=specs
    )
    records = list(tf.data.TFRecordDataset(str(tmp_path / "train.tfrecord")).as_numpy_iterator())
    theirs = {name: values.numpy() for name, values in parse(records).items()}
    queries = letor.read_records([str(tmp_path / "train.tfrecord")], FEATURES, "relevance")
    is_document = theirs["relevance"][..., 0] >= 0
    age = np.broadcast_to(theirs["age"][:, None], [*is_document.shape, 1])
    expected = np.concatenate([theirs["bm25"], theirs["counts"], age], axis=2)[is_document]
    np.testing.assert_array_equal(queries.values.toarray(), expected)
    np.testing.assert_array_equal(queries.grades, theirs["relevance"][is_document][:, 0])
    np.testing.assert_array_equal(np.diff(queries.bounds), is_document.sum(axis=1))


@FORMS
def test_shards_of_records(tmp_path, write_records, form, caplog):
    path = write_fold(tmp_path, write_records, form)
    (tmp_path / "train.tfrecord").unlink()
    (tmp_path / "vali.tfrecord").unlink()
    write_records(tmp_path / "train-00000-of-00002.tfrecord", LISTS[:1] * 300, form)  # several blocks
    write_records(tmp_path / "train-00001-of-00002.tfrecord", LISTS[1:] + UNLABELED, form)
    dataset = data.get("letor", path=path, feature_names=FEATURES, validation_fraction=0.1)
    origins = [*dataset.splits["train"].origins, *dataset.splits["validation"].origins]
    shard = "train-0000{}-of-00002.tfrecord query {}".format
    assert sorted(origins) == sorted([*(shard(0, i) for i in range(1, 301)), shard(1, 1)])
    assert f"1 left out, the first: {shard(1, 2)}: no document." in caplog.text
    assert len(dataset.files) == 3


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (
            [({}, [{"bm25": [1.0], "relevance": [1.5]}])],
            ": no number in age, counts. Choose data.feature_names and",
        ),
        ([(CONTEXTS[0], [{"bm25": ["x"], "counts": [1], "relevance": [1]}])], ": no number in bm25. Choose"),
        (
            UNLABELED,
            ": no number in relevance. Choose data.feature_names and data.label among age, bm25, counts.",
        ),
        ([*LISTS, ({}, LISTS[0][1])], "Feature: age .* is required but could not be found. Write each query"),
        ([*LISTS, (CONTEXTS[0], [{"bm25": [1.0]}])], "query 3.* counts.*Write each query as an Example"),
        (
            [*LISTS, (CONTEXTS[0], [{"bm25": [1.0, 2.0], "counts": [1, 2]}])],
            "query 3.* bm25.*Write each query as an Example",
        ),
        (
            [(CONTEXTS[0], [{"bm25": [1.0], "counts": [1, 2], "relevance": [1.5]}])],
            "query 1: grade 1.5 is not a whole number of at least 0",
        ),
        (
            [(CONTEXTS[0], [{"bm25": [np.inf], "counts": [1, 2], "relevance": [1]}])],
            "query 1: a value is not finite. Correct it.",
        ),
    ],
)
@FORMS
def test_invalid_records(tmp_path, write_records, form, lists, message):
    path = write_fold(tmp_path, write_records, form, train=lists)
    with pytest.raises(ValueError, match=f"train.tfrecord.*{message}"):
        letor.letor(path, feature_names=FEATURES)


@FORMS
def test_records_to_predict(tmp_path, write_records, form):
    path = tmp_path / "new.tfrecord"
    write_records(path, [*LISTS, (CONTEXTS[0], []), *UNLABELED], form)

    def read(width, policy="fail", columns=FEATURES):
        bad_rows = rows.BadRows(policy, "on_invalid_row")
        specs = {"items": tf.TensorSpec([None, None, width])}
        return [
            *Items().read(str(path), specs, bad_rows, Columns(feature_columns=columns), {})
        ], bad_rows.messages

    inputs, messages = read(4, "skip")
    assert [name for name, _ in inputs] == [f"new.tfrecord query {i}" for i in (1, 2, 4)]
    assert messages == ["new.tfrecord query 3: no document."]
    expected = [
        [0.5, 1, 2, 0.25],
        [-1.5, 0, 7, 0.25],
        [9, 9, 9, 0.25],
    ]  # with those that are padding in training
    np.testing.assert_array_equal(inputs[0][1]["items"], np.float32(expected))
    with pytest.raises(ValueError, match="query 3: no document. To skip it, set on_invalid_row=skip"):
        read(4)
    for width in (3, 5):
        with pytest.raises(ValueError, match=f"features up to 4, but the model takes {width}. Give the"):
            read(width)
    with pytest.raises(ValueError, match="new.tfrecord: the model was trained on SVMlight rows. Give such"):
        read(4, columns=())


def test_invalid_files_and_options_of_records(tmp_path, write_records):
    path = write_fold(tmp_path, write_records, tfr.data.ELWC)
    with pytest.raises(
        ValueError, match=r"data.feature_names=\(\): required for TFRecord files. Name the features"
    ):
        letor.letor(path)
    train = tmp_path / "train.tfrecord"
    content = train.read_bytes()
    train.write_bytes(content[:-3])
    with pytest.raises(ValueError, match="train.tfrecord: cannot be read: .*truncated.* Write each query as"):
        letor.letor(path, feature_names=FEATURES)
    with tf.io.TFRecordWriter(str(train)) as writer:
        writer.write(b"\xff")
    with pytest.raises(ValueError, match="train.tfrecord: cannot be read: .* Write each query as an Example"):
        letor.letor(path, feature_names=FEATURES)
    write_records(train, [({}, []), *LISTS], tfr.data.ELWC)
    assert len(letor.letor(path, feature_names=("bm25",)).splits["train"]) == 2
    (tmp_path / "svmlight").mkdir()
    with pytest.raises(
        ValueError, match=r"data.feature_names=\('a',\): SVMlight rows have no names. Remove the"
    ):
        letor.letor(write_letor(tmp_path / "svmlight"), feature_names=("a",))


def test_real_lightgbm_files(real_data):
    splits = letor.letor(real_data("ltr")).splits
    assert {n: len(split) for n, split in splits.items()} == {"train": 159, "validation": 40, "test": 50}
    # All documents of LightGBM's files, except two training queries without a relevant document.
    sizes = {name: 27 * len(split) - split.excluded.nnz for name, split in splits.items()}
    assert sizes["test"] == 768
    assert 2950 < sizes["train"] + sizes["validation"] < 3005
    assert splits["test"].origin(1) == "rank.test query 2 (line 13)"
