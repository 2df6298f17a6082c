"""Reports of datasets by hand: counts, lengths, image sizes, duplicates."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.sparse import csr_array

from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import baselines
from rank4class.pipelines.reporting.dataset_report import Report
from rank4class.pipelines.storage import files

TRAIN = ["great day", "great  Day", "the bad mess", "here", "awful table", "is"]
TEST = ["GREAT DAY", "bad", "here", "the\tbad mess"]


def texts(*texts):
    return {"text": np.array(texts, object)}


def split_of(features, labels, origins=None):
    labels = labels if isinstance(labels, csr_array) else np.array(labels, np.int32)
    return data.Split(features, labels, None if origins is None else np.array(origins, object))


@pytest.fixture
def comments():
    """Six training and four test texts: two repeats within a split, and three across."""
    splits = {
        "train": split_of(texts(*TRAIN), [0, 1, 0, 0, 0, 1]),
        "validation": split_of(texts("new"), [1]),
        "test": split_of(texts(*TEST), [0, 1, 1, 0], [f"test.tsv:{i + 1}" for i in range(4)]),
    }
    return data.Dataset(("joy", "a|b", "rest"), splits, ("train.tsv:9 is bad",), {"train.tsv": "abc"})


def reported(dataset, **section):
    return Report(config.Experiment(data=config.Data(**section)), dataset)


def flowing(report):
    """Returns a report without line breaks, with single spaces between its words."""
    return " ".join(report.text().split())


def test_the_report_by_hand(comments, tmp_path):
    described = reported(comments, name="goemotions", path="somewhere")
    report = described.text()
    for part in (
        "Dataset goemotions from somewhere: 3 classes.",
        "train              6\n",
        "  train.tsv  sha256 abc\n",
        "Rows and examples left out: 1.\n\n  train.tsv:9 is bad\n",
        "class  train  validation  test  train (%)  validation (%)  test (%)\n"
        "-----  -----  ----------  ----  ---------  --------------  --------\n"
        "joy        4           0     2      66.67            0.00     50.00\n",
        "largest class of train (joy, 4) has 2.0 times the examples of the smallest (a|b, 2)",
        "classes by training examples, joy first  validation          100.00",
        "No train example of 1 classes: rest.",
        "No validation example of 2 classes: joy, rest.",
        "No tokens are counted. Set encoder.path to see",
        "3 examples of the other splits are also in train",
        "test test.tsv:3 (a|b) = train example 3 (joy): here",
    ):
        assert part in report
    assert "rest:" not in report
    # "great day" is twice in train, the second time of another class, and (0) in test; "here" (1) is 0 in
    # train, and "the bad mess" agrees.
    for row in ("train train, earlier 1 16.67 1", "test train 3 75.00 2", "test validation 0 0.00 0"):
        assert row in flowing(described)
    assert described.write(str(tmp_path)) == str(tmp_path / "data.html")
    assert "| a\\|b    |       2 |            1 |" in (tmp_path / "data.md").read_text()
    assert {name.name for name in tmp_path.iterdir()} == {"data.md", "data.html", "classes.png"}
    in_storage = f"ram://{tmp_path.name}"  # object storage has no Python files
    assert described.write(in_storage) == f"{in_storage}/data.html"
    for path in tmp_path.iterdir():
        assert files.read_bytes(f"{in_storage}/{path.name}") == path.read_bytes()


def test_the_first_of_equally_frequent_classes_is_first_in_the_baseline():
    features = {"image": np.zeros([6, 2, 2, 1], np.float32)}
    splits = {"train": split_of(features, [0, 1, 2, 0, 1, 2]), "test": split_of(features, [0, 0, 0, 0, 1, 2])}
    report = flowing(reported(data.Dataset(("a", "b", "c"), splits)))
    assert "classes by training examples, a first test 33.33" in report


@pytest.mark.parametrize("metrics", [("nll", "exact_match", "top1_error"), ("nll",)])
def test_metrics_of_sets_need_a_model(comments, metrics):
    report = flowing(Report(config.Experiment(metrics=metrics), comments))
    assert ("joy first validation 100.00" in report) == ("baseline" in report) == ("top1_error" in metrics)
    assert "nll" not in report


def test_cut_texts(tiny_bert):
    words = [3] * 60 + [5] * 30 + [4_000]
    split = split_of(texts(*["bad " * count for count in words]), np.arange(len(words)) % 2)
    encoder = config.Encoder(name="bert", path=tiny_bert)
    experiment = config.Experiment(data=config.Data(max_length=6), encoder=encoder, metrics=("nll",))
    report = flowing(Report(experiment, data.Dataset(("joy", "anger"), {"train": split})))
    assert "Texts of more than 6 tokens are cut" in report
    assert "The encoder takes at most 32 tokens." in report
    assert "tokens train 5 7 4,002 34.07" in report


def test_pairs_of_texts(tiny_bert):
    features = texts("Great day", "bad") | {"text_pair": np.array(["here is", ""], object)}
    other = {**features, "text_pair": np.array(["here", ""], object)}
    experiment = config.Experiment(encoder=config.Encoder(name="bert", path=tiny_bert))
    splits = {"train": split_of(features, [0, 1]), "test": split_of(other, [0, 1])}
    report = flowing(Report(experiment, data.Dataset(("a", "b"), splits)))
    for row in (
        "characters of text train 9 9 9",
        "characters of text_pair train 7 7 7",
        "tokens train 7 7 7 0.00",
    ):
        assert row in report  # a pair has one more [SEP]
    assert "test train 1 50.00 0" in report  # one pair of equal texts


def test_the_baseline_ignores_excluded_classes(monkeypatch):
    train = csr_array(np.array([[1, 0, 1], [1, 1, 0], [1, 1, 0], [1, 0, 0]]))
    of_test = csr_array(np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1]], np.float32))
    known = csr_array(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]], bool))
    ids = {"id": np.arange(4)}
    splits = {"train": split_of(ids, train), "test": data.Split(ids, of_test, excluded=known)}
    report = flowing(reported(data.Dataset(("a", "b", "c"), splits)))
    # b after a is gone; c; a; and a, which is no label
    assert "classes by training examples, a first test 50.00" in report
    monkeypatch.setattr(baselines, "MAX_EXAMPLES", 2)
    assert baselines.most_frequent(splits["test"], np.arange(3), ["top1_error"], 2)["examples"] == 2


def test_several_classes_by_hand():
    train = split_of(texts("a", "b", "c"), csr_array(np.array([[1, 1], [1, 0], [0, 0]], np.float32)))
    test = split_of(texts("A", "B"), csr_array(np.array([[1, 0], [1, 0]], np.float32)))
    dataset = data.Dataset(("joy", "anger"), {"train": train, "test": test})
    report = flowing(reported(dataset))
    for part in (
        "split examples classes, mean no classes ----- -------- ------------- ---------- "
        "train 3 1.00 1 test 2 1.00 0",
        "joy 2 2 66.67 100.00 anger 1 0 33.33 0.00",
        "test train 2 100.00 1",
        "test example 0 (joy) = train example 0 (joy, anger): A",
    ):
        assert part in report


def test_images_in_memory_by_hand():
    train = np.zeros([3, 2, 2, 1], np.uint8)
    train[0] = 12
    report = flowing(reported(data.Dataset(("a", "b"), {"train": split_of({"image": train}, [0, 1, 1])})))
    deviation = np.sqrt((8**2 + 4**2 + 4**2) / 3)
    assert (
        "Images of 2 x 2 x 1 uint8 in memory; the channels of the training images have mean 4 and " in report
    )
    assert f"standard deviation {deviation:.4g}." in report
    assert "train train, earlier 1 33.33 0 train example 2 (b) = train example 1 (b)" in report


@pytest.fixture
def image_files(tmp_path):
    """Writes four training images, one of them broken and two of them the same, and a test image."""
    for i, size in enumerate(([20, 30], [40, 30], [20, 30])):
        content = tf.io.encode_png(tf.fill([*size, 3], tf.constant(size[0], tf.uint8)))
        (tmp_path / f"{i}.png").write_bytes(content.numpy())
    (tmp_path / "broken.png").write_bytes(b"no image")

    def split(names, labels):
        return split_of({"file": np.array([str(tmp_path / name) for name in names], object)}, labels, names)

    train = split(["0.png", "broken.png", "1.png", "2.png"], [0, 0, 1, 1])
    return data.Dataset(("flat", "tall"), {"train": train, "test": split(["1.png"], [1])})


@pytest.mark.nightly
def test_image_files_by_hand(image_files, tmp_path):
    report = reported(image_files, image_size=32, augmentation="random_crop")
    text = report.text()
    for part in (
        "Unreadable images: 1. They stop",
        "broken.png: cannot be read: ",
        "train 2.png (tall) = train 0.png (flat)",
        "train      2  20 / 20 / 40  30 / 30 / 30               100.00",
        "tall       2     1      66.67    100.00",  # of the readable
        "test         train               1  100.00                   0",
    ):
        assert part in text
    report.write(str(tmp_path))
    for name in ("classes.png", "examples.png"):
        assert (tmp_path / name).stat().st_size > 500
        assert f"]({name})" in (tmp_path / "data.md").read_text()
    broken = {**image_files.splits, "test": image_files.splits["train"].select([1])}
    with pytest.raises(ValueError, match="test: no image of this split can be read. The first: broken.png"):
        reported(data.Dataset(image_files.class_names, broken))


@pytest.mark.nightly
def test_max_examples(comments):
    report = flowing(reported(comments, max_examples=2))
    assert "read (data.max_examples) " in report
    assert "train 6 2 validation 1 1 test 4 2" in report


def test_control_characters_are_escaped(tmp_path):
    names = ("cost in $_$", "two\nlines", "bell\a | tab\t")
    images = np.zeros([3, 4, 4, 3], np.uint8)
    split = split_of({"image": images}, [0, 1, 2], ["a\nb.jpg", "caf\udce9.jpg", "c"])
    report = reported(data.Dataset(names, {"train": split}))
    for name in ("cost in $_$", "two\\nlines", "bell\\x07 | tab\\t"):
        assert f"\n{name:16}      1      33.33\n" in report.text()
    line = "train caf\\udce9.jpg (two\\nlines) = train a\\nb.jpg (cost in $_$)"
    assert f"  {line}" in report.text().splitlines()
    report.write(str(tmp_path))
    written = (tmp_path / "data.md").read_text()
    assert "\n| bell\\x07 \\| tab\\t |" in written
    assert f"    {line}" in written.splitlines()
    assert (tmp_path / "examples.png").stat().st_size > 500


@pytest.mark.nightly
def test_the_file_lists_all_unreadable_images_and_duplicates(image_files, tmp_path):
    train = image_files.splits["train"].select([0, 1, 1, 1, 1, 2])
    train = data.Split(train.features, train.labels, np.array([f"image {i}" for i in range(6)], object))
    skipped = tuple(f"row {i} is bad" for i in range(5))
    dataset = data.Dataset(image_files.class_names, {**image_files.splits, "train": train}, skipped)
    described = reported(dataset, image_size=32)
    report = described.text()
    described.write(str(tmp_path))
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
def test_identical_splits_are_read_once(image_files, monkeypatch):
    read = []
    read_each = data.read_each
    monkeypatch.setattr(data, "read_each", lambda split, f: read.append(len(split)) or read_each(split, f))
    splits = {name: image_files.splits["train"] for name in ("validation", "test")}
    dataset = data.Dataset(image_files.class_names, {"train": image_files.splits["test"], **splits})
    report = reported(dataset, max_examples=3, image_size=32)
    assert read == [1, 3]
    assert list(report.counts) == ["train", "validation and test"]
    assert "validation and test         4" in report.text()


def test_errors_of_training_are_raised(comments):
    with pytest.raises(ValueError, match="data.augmentation='affine_flip': the dataset has no images. Set"):
        reported(comments, augmentation="affine_flip")
    with pytest.raises(ValueError, match=r"data\.held_out='jy': no such class"):
        reported(comments, held_out=("jy",))


def test_many_classes(tmp_path):
    labels = np.repeat(np.arange(100), np.arange(1, 101))
    split = split_of({"embedding": np.arange(len(labels), dtype=np.float32)[:, None]}, labels)
    report = reported(data.Dataset(tuple(f"class{i}" for i in range(100)), {"train": split}))
    # Of 1 to 100 examples: one class of 1, two of 2 and 3, four of 4 to 7, and so on.
    rows = [("0", 0), ("1", 1), ("2-3", 2), ("4-7", 4), ("8-15", 8), ("16-31", 16), ("32-63", 32)]
    assert " ".join(f"{size} {count}" for size, count in [*rows, ("64-127", 37)]) in flowing(report)
    report.write(str(tmp_path))
    for shown in (report.text(), (tmp_path / "data.md").read_text()):
        assert "The table has the 50 classes with the most training examples." in shown
        assert "class50 " in shown
        assert "class49 " not in shown
        assert "see data.md" not in shown


@pytest.mark.nightly
@pytest.mark.usefixtures("generated_data")
def test_retrieval_by_hand(tmp_path):
    relevant = csr_array(np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0]], np.float32))
    splits = data.draw_pairs(relevant, {"validation": 0.17, "test": 0.3}, seed=1)
    dataset = data.Dataset(tuple("abcde"), splits)
    report = reported(dataset, name="synthetic_retrieval")
    assert "Duplicates" not in flowing(report)  # all splits hold the same users
    report.write(str(tmp_path))
