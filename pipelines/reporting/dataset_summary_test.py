"""Summaries of datasets by hand: counts, lengths, image sizes, duplicates, reports."""

import textwrap

import numpy as np
import pytest
import tensorflow as tf
from scipy.sparse import csr_array

from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.reporting import dataset_report, dataset_summary
from rank4class.pipelines.storage import files

TRAIN = ["great day", "great  Day", "the bad mess", "here", "awful table", "is"]
TEST = ["GREAT DAY", "bad", "here", "the\tbad mess"]


def texts(*texts):
    return {"text": np.array(texts, object)}


@pytest.fixture
def comments():
    """Six training and four test texts: two repeats within a split, and three across."""
    origins = np.array([f"test.tsv:{i + 1}" for i in range(4)], object)
    splits = {
        "train": data.Split(texts(*TRAIN), np.array([0, 1, 0, 0, 0, 1], np.int32)),
        "validation": data.Split(texts("new"), np.array([1], np.int32)),
        "test": data.Split(texts(*TEST), np.array([0, 1, 1, 0], np.int32), origins),
    }
    return data.Dataset(("joy", "a|b", "rest"), splits, ("train.tsv:9 is bad",), {"train.tsv": "abc"})


def flowing(report):
    """Returns a report without line breaks, with single spaces between its words."""
    return " ".join(report.split())


def described(dataset, **section):
    return dataset_summary.describe(config.Experiment(data=config.Data(**section)), dataset)


def test_counts_by_hand(comments):
    description = described(comments)
    assert [description.counts[split].tolist() for split in comments.splits] == [
        [4, 2, 0],
        [0, 1, 0],
        [2, 2, 0],
    ]
    assert description.missing("train") == ["rest"]
    assert description.missing("validation") == ["joy", "rest"]
    assert description.imbalance() == 4 / 2
    assert description.baseline("validation")["top1_error"] == 100.0
    assert description.baseline("test")["top1_error"] == 50.0


def test_the_first_of_equally_frequent_classes_is_first_in_the_baseline():
    features = {"image": np.zeros([6, 2, 2, 1], np.float32)}
    split = data.Split(features, np.array([0, 1, 2, 0, 1, 2]))
    test = data.Split(features, np.array([0, 0, 0, 0, 1, 2]))
    description = described(data.Dataset(("a", "b", "c"), {"train": split, "test": test}))
    assert description.by_frequency().tolist() == [0, 1, 2]
    assert description.baseline("test")["top1_error"] == pytest.approx(100 * 2 / 6)


@pytest.mark.parametrize("metrics", [("nll", "exact_match", "top1_error"), ("nll",)])
def test_metrics_of_sets_need_a_model(comments, metrics):
    experiment = config.Experiment(metrics=metrics)
    report = flowing(dataset_report.text(dataset_summary.describe(experiment, comments)))
    assert ("validation top1_error 100.00%" in report) == ("Baseline" in report) == ("top1_error" in metrics)
    assert "nll" not in report


def test_duplicates_by_hand(comments):
    duplicates = {(group.split, group.other): group for group in described(comments).duplicates}
    assert len(duplicates) == 6
    within = duplicates["train", "train"]  # "great day" twice, the second time of another class
    assert (within.count, within.relabeled, within.pairs) == (1, 1, ((1, 0),))
    # "great day" (0) is 0 and 1 in train, "here" (1) is 0, "the bad mess" agrees.
    across = duplicates["test", "train"]
    assert (across.count, across.relabeled, across.pairs) == (3, 2, ((0, 0), (2, 3), (3, 2)))
    assert duplicates["test", "validation"].count == duplicates["test", "test"].count == 0


@pytest.mark.nightly
def test_lengths_by_hand(comments, tiny_bert):
    assert list(described(comments).lengths) == ["characters of text"]
    experiment = config.Experiment(
        data=config.Data(max_length=4), encoder=config.Encoder(name="bert", path=tiny_bert)
    )
    description = dataset_summary.describe(experiment, comments)
    assert description.lengths["characters of text"]["train"].tolist() == [9, 10, 12, 4, 11, 2]
    # [CLS] and [SEP] count as tokens.
    assert description.lengths["tokens"]["train"].tolist() == [4, 4, 5, 3, 4, 3]
    report = flowing(dataset_report.text(description))
    assert "cuts 16.67% of the training texts; 5 would cut none." in report
    longer = config.override(experiment, {"data.max_length": 5})
    report = dataset_report.text(dataset_summary.describe(longer, comments))
    assert "data.max_length=5 cuts no training text; the longest has 5 tokens." in report


@pytest.mark.parametrize(
    ("max_length", "words", "expected"),
    [
        (
            6,
            [3] * 60 + [5] * 30 + [4_000],
            "34.07% of the training texts; 7 would cut at most 5%, 32, the limit of the encoder, "
            "would cut 1.10%.",
        ),
        (32, [3] * 10 + [40], "cuts 9.09% of the training texts; 32 is the limit of the encoder."),
        (4, [3] * 10, "cuts 100.00% of the training texts; 5 would cut none."),
        (
            4,
            [40],
            "cuts 100.00% of the training texts; 32, the limit of the encoder, would cut 100.00%.",
        ),
    ],
)
def test_suggested_lengths_fit_the_encoder(tiny_bert, max_length, words, expected):
    split = data.Split(texts(*["bad " * count for count in words]), np.arange(len(words), dtype=np.int32) % 2)
    rest = {name: split.select([0]) for name in ("validation", "test")}
    dataset = data.Dataset(("joy", "anger"), {"train": split, **rest})
    experiment = config.Experiment(
        data=config.Data(max_length=max_length), encoder=config.Encoder(name="bert", path=tiny_bert)
    )
    description = dataset_summary.describe(experiment, dataset)
    assert description.max_tokens == 32
    report = flowing(dataset_report.text(description))
    assert expected in report
    assert "4,002 would" not in report


def test_pairs_of_texts(tiny_bert):
    features = texts("Great day", "bad") | {"text_pair": np.array(["here is", ""], object)}
    split = data.Split(features, np.array([0, 1], np.int32))
    other = data.Split({**features, "text_pair": np.array(["here", ""], object)}, split.labels)
    experiment = config.Experiment(encoder=config.Encoder(name="bert", path=tiny_bert))
    description = dataset_summary.describe(
        experiment, data.Dataset(("a", "b"), {"train": split, "test": other})
    )
    assert {unit: lengths["train"].tolist() for unit, lengths in description.lengths.items()} == {
        "characters of text": [9, 3],
        "characters of text_pair": [7, 0],
        "tokens": [7, 3],  # a pair has one more [SEP]
    }
    assert description.duplicates[1].pairs == ((1, 1),)  # both texts are equal


@pytest.mark.nightly
def test_the_baseline_ignores_excluded_classes(monkeypatch):
    train = data.Split(
        {"id": np.arange(4)}, csr_array(np.array([[1, 0, 1], [1, 1, 0], [1, 1, 0], [1, 0, 0]]))
    )
    of_test = [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1]]
    known = [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]]
    known = csr_array(np.array(known, bool))
    test = data.Split({"id": np.arange(4)}, csr_array(np.array(of_test, np.float32)), excluded=known)
    description = described(data.Dataset(("a", "b", "c"), {"train": train, "test": test}))
    assert (
        description.baseline("test")["top1_error"] == 50.0
    )  # b after a is gone; c; a; and a, which is no label
    report = " ".join(dataset_report.text(description).split())
    assert (
        "Baseline, the classes ranked by their training examples, a first: test top1_error 50.00%" in report
    )
    monkeypatch.setattr(dataset_summary, "BASELINE_EXAMPLES", 2)
    assert description.baseline("test")["examples"] == 2


@pytest.mark.nightly
def test_multi_label_by_hand(tmp_path):
    train = data.Split(texts("a", "b", "c"), csr_array(np.array([[1, 1], [1, 0], [0, 0]], np.float32)))
    test = data.Split(texts("A", "B"), csr_array(np.array([[1, 0], [1, 0]], np.float32)))
    description = described(data.Dataset(("joy", "anger"), {"train": train, "test": test}))
    assert description.counts["train"].tolist() == [2, 1]
    assert description.baseline("train")["top1_error"] == pytest.approx(100 / 3)
    assert (description.duplicates[1].count, description.duplicates[1].relabeled) == (2, 1)
    report = dataset_report.text(description)
    assert "mean: 1.00 train, 1.00 test. Examples of no class: 1 train, 0 test." in report
    assert "test example 0 (joy) = train example 0 (joy, anger): A" in report
    assert description.classes_of("train", 2) == "no class"


@pytest.mark.nightly
def test_retrieval_by_hand(tmp_path):
    relevant = csr_array(np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0]], np.float32))
    splits = data.draw_pairs(relevant, {"validation": 0.17, "test": 0.3}, seed=1)
    dataset = data.Dataset(tuple("abcde"), splits)
    description = described(dataset, name="synthetic_retrieval")
    assert description.duplicates == ()  # all splits hold the same users by design
    report = dataset_report.text(description)
    excluded = [splits[name].excluded.toarray().sum(axis=1).mean() for name in ("validation", "test")]
    expected = f"ranking of an example, mean: {excluded[0]:.2f} validation, {excluded[1]:.2f} test."
    assert expected in flowing(report)
    assert "Duplicates" not in report
    dataset_report.write(description, str(tmp_path))
    with pytest.raises(
        ValueError, match="data.augmentation='affine_flip': dataset 'synthetic_retrieval' has no images"
    ):
        described(dataset, name="synthetic_retrieval", augmentation="affine_flip")


def test_images_in_memory_by_hand():
    train = np.zeros([3, 2, 2, 1], np.uint8)
    train[0] = 12
    split = data.Split({"image": train}, np.array([0, 1, 1], np.int32))
    description = described(data.Dataset(("a", "b"), {"train": split}))
    mean, deviation = description.pixels
    np.testing.assert_allclose(mean, [12 / 3])
    np.testing.assert_allclose(deviation, [np.sqrt((8**2 + 4**2 + 4**2) / 3)])
    [duplicates] = description.duplicates
    assert (duplicates.count, duplicates.relabeled, duplicates.pairs) == (1, 0, ((2, 1),))
    assert "Images of 2 x 2 x 1 uint8 in memory" in dataset_report.text(description)


@pytest.fixture
def image_files(tmp_path):
    """Writes four training images, one of them broken and two of them the same, and a test image."""
    for i, size in enumerate(([20, 30], [40, 30], [20, 30])):
        content = tf.io.encode_png(tf.fill([*size, 3], tf.constant(size[0], tf.uint8)))
        (tmp_path / f"{i}.png").write_bytes(content.numpy())
    (tmp_path / "broken.png").write_bytes(b"no image")

    def split(names, labels):
        files = np.array([str(tmp_path / name) for name in names], object)
        return data.Split({"file": files}, np.array(labels, np.int32), np.array(names, object))

    train = split(["0.png", "broken.png", "1.png", "2.png"], [0, 0, 1, 1])
    return data.Dataset(("flat", "tall"), {"train": train, "test": split(["1.png"], [1])})


@pytest.mark.nightly
def test_image_files_by_hand(image_files, tmp_path):
    description = described(image_files, image_size=32, augmentation="random_crop")
    assert description.sizes["train"].tolist() == [[20, 30], [40, 30], [20, 30]]
    assert description.counts["train"].tolist() == [1, 2]  # of the readable
    [message] = description.unreadable["train"]
    assert message.startswith("broken.png: cannot be read: ")
    within, across, _ = description.duplicates
    assert (within.count, within.relabeled, within.pairs) == (1, 1, ((2, 0),))
    assert (across.count, across.relabeled, across.pairs) == (1, 0, ((0, 1),))
    report = dataset_report.text(description)
    assert "Unreadable images of train: 1. They stop" in report
    assert "train 2.png (tall) = train 0.png (flat)" in report
    assert "train      2  20 / 20 / 40  30 / 30 / 30          100.00%" in report
    dataset_report.write(description, str(tmp_path))
    for name in ("classes.png", "sizes.png", "examples.png"):
        assert (tmp_path / name).stat().st_size > 500
        assert f"]({name})" in (tmp_path / "data.md").read_text()


@pytest.mark.nightly
def test_no_readable_image(image_files):
    split = image_files.splits["train"].select([1])
    with pytest.raises(ValueError, match="test: no image of this split can be read. The first: broken.png"):
        described(data.Dataset(image_files.class_names, {**image_files.splits, "test": split}))


def test_class_weights(comments):
    assert described(comments, class_weights="balanced").class_weights == {
        "joy": 0.75,
        "a|b": 1.5,
        "rest": 0.0,
    }
    weighted = described(comments, class_weights="balanced", held_out=("joy",))
    assert weighted.class_weights == {"a|b": 1.0, "rest": 0.0}
    rows = dataset_report.text(weighted).splitlines()
    assert next(row for row in rows if row.startswith("joy ")).endswith("  held out")


def test_class_weights_of_several_classes():
    labels = csr_array(np.array([[1, 1], [1, 0], [1, 0]], np.float32))
    dataset = data.Dataset(("joy", "anger"), {"train": data.Split(texts("a", "b", "c"), labels)})
    description = described(dataset, class_weights="balanced")
    assert description.class_weights == pytest.approx({"joy": 4 / (2 * 3), "anger": 4 / (2 * 1)})
    assert "(data.class_weights); of several classes, the mean." in flowing(dataset_report.text(description))


@pytest.mark.nightly
def test_max_examples(comments):
    description = described(comments, max_examples=2)
    assert {name: len(split) for name, split in description.splits.items()} == {
        "train": 2,
        "validation": 1,
        "test": 2,
    }
    report = dataset_report.text(description)
    assert "6 train, 1 validation, 4 test examples of 3 classes." in report
    assert "looks at 2 of 6 train, 1 of 1 validation, 2 of 4 test examples (data.max_examples)" in report
    users = data.get("synthetic_retrieval", num_examples=60, num_classes=50, num_relevant=6)
    description = described(users, name="synthetic_retrieval", max_examples=20)
    looked_at = [
        f"{len(description.splits[name])} of {len(users.splits[name])} {name}"
        for name in ("validation", "test")
    ]
    assert f"looks at 20 of 60 train, {', '.join(looked_at)} examples" in dataset_report.text(description)


@pytest.mark.nightly
def test_the_report_by_hand(comments, tmp_path):
    description = described(comments, name="goemotions", path="somewhere")
    report = dataset_report.text(description)
    for part in (
        "Dataset goemotions from somewhere: 6 train, 1 validation, 4 test examples of 3 classes.",
        "  train.tsv  sha256 abc\n",
        "Rows and examples left out: 1.\n\n  train.tsv:9 is bad\n",
        "class  train      %  validation       %  test      %\n"
        "-----  -----  -----  ----------  ------  ----  -----\n"
        "joy        4  66.67           0    0.00     2  50.00\n",
        "largest class of train (joy, 4) has 2.0 times the examples of the smallest (a|b, 2)",
        "the classes ranked by their training examples, joy first: validation top1_error 100.00%",
        "No validation example of 2 classes: joy, rest.",
        "No tokens are counted: encoder.path is not set.",
        "3 examples of the other splits are also in train",
        "test test.tsv:3 (a|b) = train example 3 (joy): here",
        "  a|b:\n    great Day\n    is",
    ):
        assert part in report
    assert "rest:" not in report
    assert dataset_report.write(description, str(tmp_path)) == str(tmp_path / "data.md")
    assert "| a\\|b    |       2 | 33.33 |            1 |" in (tmp_path / "data.md").read_text()
    assert {name.name for name in tmp_path.iterdir()} == {"data.md", "classes.png", "lengths.png"}
    in_storage = f"ram://{tmp_path.name}"  # object storage has no Python files
    assert dataset_report.write(description, in_storage) == f"{in_storage}/data.md"
    for path in tmp_path.iterdir():
        assert files.read_bytes(f"{in_storage}/{path.name}") == path.read_bytes()


NAMES = ("cost in $_$", "two\nlines", "bell\a | tab\t")


def test_special_characters_in_names_of_classes(tmp_path):
    images = np.arange(3, dtype=np.uint8)[:, None, None, None] + np.zeros([1, 4, 4, 3], np.uint8)
    split = data.Split({"image": images}, np.arange(3, dtype=np.int32))
    description = described(data.Dataset(NAMES, {"train": split}), class_weights="balanced")
    report = dataset_report.text(description)
    for name in ("cost in $_$", "two\\nlines", "bell\\x07 | tab\\t"):
        assert f"\n{name:16}      1  33.33       1\n" in report
    dataset_report.write(description, str(tmp_path))
    assert "\n| bell\\x07 \\| tab\\t |" in (tmp_path / "data.md").read_text()
    assert (tmp_path / "examples.png").stat().st_size > 500


def test_control_characters_are_escaped(tmp_path):
    origins = np.array(["a\nb.jpg", "caf\udce9.jpg"], object)
    split = data.Split(texts("same \x1b[2J", "same \x1b[2J"), np.array([0, 1], np.int32), origins)
    description = described(data.Dataset(("x", "y"), {"train": split}))
    line = "train caf\\udce9.jpg (y) = train a\\nb.jpg (x): same \\x1b[2J"
    assert f"  {line}" in dataset_report.text(description).splitlines()
    dataset_report.write(description, str(tmp_path))
    assert f"    {line}" in (tmp_path / "data.md").read_text().splitlines()


@pytest.mark.nightly
def test_the_file_lists_all_unreadable_images_and_duplicates(image_files, tmp_path):
    train = image_files.splits["train"].select([0, 1, 1, 1, 1, 2])
    train = data.Split(train.features, train.labels, np.array([f"image {i}" for i in range(6)], object))
    skipped = tuple(f"row {i} is bad" for i in range(5))
    dataset = data.Dataset(image_files.class_names, {**image_files.splits, "train": train}, skipped)
    description = described(dataset, image_size=32)
    report = dataset_report.text(description)
    dataset_report.write(description, str(tmp_path))
    written = (tmp_path / "data.md").read_text()
    for i in range(1, 5):
        assert (f"  image {i}: cannot be read" in report) == (i < 4)
        assert f"    image {i}: cannot be read" in written
    for i in range(5):
        assert (f"  row {i} is bad" in report) == (i < 3)
        assert f"    row {i} is bad" in written
    assert "  row 2 is bad\n  ... and 2 more, see data.md\n" in report
    assert "required. Correct or remove it.\n  ... and 1 more, see data.md\n" in report


@pytest.mark.nightly
@pytest.mark.parametrize("max_examples", [None, 3])
def test_identical_splits_are_read_once(image_files, monkeypatch, max_examples):
    read, read_each = [], data.read_each
    monkeypatch.setattr(data, "read_each", lambda split, f: read.append(len(split)) or read_each(split, f))
    splits = {name: image_files.splits["train"] for name in ("validation", "test")}
    dataset = data.Dataset(image_files.class_names, {"train": image_files.splits["test"], **splits})
    description = described(dataset, max_examples=max_examples, image_size=32)
    assert read == [1, max_examples or 4]
    assert list(description.counts) == list(description.sizes) == ["train", "validation and test"]
    assert [(group.split, group.other) for group in description.duplicates] == [
        ("train", "train"),
        ("validation and test", "train"),
        ("validation and test", "validation and test"),
    ]
    assert "1 train, 4 validation and test examples of 2 classes." in dataset_report.text(description)


def test_errors_of_training_are_raised(comments, image_files):
    with pytest.raises(
        ValueError,
        match=r"data\.augmentation='affine_flip': dataset 'digits' has no images\. Set it to 'none'\.",
    ):
        described(comments, augmentation="affine_flip")
    with pytest.raises(ValueError, match="data.cache=True: the cache keeps no whole images"):
        described(image_files, augmentation="random_crop", cache=True)
    with pytest.raises(ValueError, match=r"data\.held_out='jy': no such class"):
        described(comments, held_out=("jy",))


def test_many_classes(tmp_path):
    labels = np.repeat(np.arange(100), np.arange(1, 101)).astype(np.int32)
    split = data.Split({"embedding": np.arange(len(labels), dtype=np.float32)[:, None]}, labels)
    names = tuple(f"class{i}" for i in range(100))
    description = described(data.Dataset(names, {"train": split}))
    report = dataset_report.text(description)
    assert "class99" in report
    assert "class1 " not in report
    # Of 1 to 100 examples: one class of 1, two of 2 and 3, four of 4 to 7, and so on.
    rows = [("0", 0), ("1", 1), ("2-3", 2), ("4-7", 4), ("8-15", 8), ("16-31", 16), ("32-63", 32)]
    histogram = "  examples  train\n  --------  -----\n" + "".join(
        f"  {size:>8}  {count:>5}\n" for size, count in [*rows, ("64-127", 37)]
    )
    dataset_report.write(description, str(tmp_path))
    written = (tmp_path / "data.md").read_text()
    assert histogram in report
    assert textwrap.indent(histogram, "  ") in written
    for shown in (report, written):
        assert "The table has the 50 classes with the most training examples." in shown
        assert "class50 " in shown
        assert "class49 " not in shown
        assert "see data.md" not in shown


def test_long_texts_are_cut_to_one_line():
    split = data.Split(texts("word\n" * 40), np.array([0], np.int32))
    report = dataset_report.text(described(data.Dataset(("a",), {"train": split})))
    assert f"    {('word ' * 18)[:89]}…" in report
