"""Image folders: splits, class ids, and errors for invalid folders."""

import os
import re

import numpy as np
import pytest

from rank4class import data


def write(folder, sizes, names="image_{}.jpg"):
    """Writes `sizes[name]` different images of each class."""
    for name, size in sizes.items():
        (folder / name).mkdir(parents=True)
        for i in range(size):
            (folder / name / names.format(i)).write_bytes(f"{folder.name}/{name}/{i:05}".encode())


def load(path, **options):
    return data.get("image_folder", path=path, **options)


@pytest.fixture
def root(tmp_path):
    """Writes a folder with three splits; returns its path."""
    for split, size in (("train", 3), ("val", 1), ("test", 2)):
        write(tmp_path / split, {"cat": size, "ant": size})
    return tmp_path


def examples(dataset, root):
    return {
        name: [
            (file.removeprefix(f"{root}/"), dataset.class_names[label])
            for file, label in zip(split.features["file"], split.labels, strict=True)
        ]
        for name, split in dataset.splits.items()
    }


@pytest.mark.parametrize("validation", ["validation", "val", "valid", "dev"])
def test_split_folders(root, validation):
    (root / "val").rename(root / validation)
    dataset = load(root)
    assert dataset.class_names == ("ant", "cat")
    assert examples(dataset, root) == {
        "train": [(f"train/{name}/image_{i}.jpg", name) for name in ("ant", "cat") for i in range(3)],
        "validation": [(f"{validation}/{name}/image_0.jpg", name) for name in ("ant", "cat")],
        "test": [(f"test/{name}/image_{i}.jpg", name) for name in ("ant", "cat") for i in range(2)],
    }
    for split in dataset.splits.values():
        assert split.labels.dtype == np.int32
        np.testing.assert_array_equal(split.origins, split.features["file"])


def test_class_folders_without_splits_are_split_by_the_seed(tmp_path):
    write(tmp_path, {"ant": 40, "bee": 20})

    def validation(**options):
        split = load(tmp_path, **options).splits["validation"]
        assert split.class_counts(2).tolist() == [4, 2]
        return split.features["file"].tolist()

    assert validation() == validation(split_seed=0)
    assert validation() != validation(split_seed=1)


def test_folds_validate_in_place_of_a_split(tmp_path):
    write(tmp_path, {"ant": 4, "bee": 4})
    splits = load(tmp_path, validation_fraction=0.0, test_fraction=0.25).splits
    assert {name: len(split) for name, split in splits.items()} == {"train": 6, "test": 2}


def test_extensions_in_any_case_and_hidden_files(tmp_path):
    write(tmp_path, {"bee": 30})
    extensions = ("jpg", "JPG", "jpeg", "JPEG", "png", "PNG", "webp", "WebP", "gif", "bmp")
    for i in range(3):
        for extension in extensions:
            (tmp_path / "ant").mkdir(exist_ok=True)
            (tmp_path / "ant" / f"{i}.{extension}").write_bytes(f"{i} {extension}".encode())
    for hidden in (".DS_Store", ".cache/x.jpg", "ant/.thumb.jpg"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_bytes(b"")
    (tmp_path / "classes.txt").write_text("bee\nant\n")
    dataset = load(tmp_path, classes=tmp_path / "classes.txt")
    assert dataset.class_names == ("bee", "ant")
    assert sum(split.class_counts(2) for split in dataset.splits.values()).tolist() == [30, 30]


BESIDE = r"beside the split 'train', but none of train, validation \(dev, val, valid\), test\. Move it, or"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("train/ant/notes.txt", r"train/ant/notes\.txt: not an image \(\.jpg, \.jpeg, \.jpe, \.jfif"),
        ("train/ant/x.tiff", r"train/ant/x\.tiff: not an image .*\. Convert or move it"),
        ("train/ant/more/image.jpg", r"train/ant/more: not a file\. Move it"),
        ("test/image.jpg", r"test/image\.jpg: not in a class folder"),
        ("README.md/x", rf"README\.md: {BESIDE}"),
        ("bus/x", f"bus: {BESIDE}"),
    ],
)
def test_invalid_files(root, file, message):
    before = load(root)
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_bytes(b"x")
    assert_refused_or_skipped(root, before, rf"{root}/{message}.*")


def assert_refused_or_skipped(root, before, message):
    with pytest.raises(ValueError, match=rf"^{message} To skip it, set data\.on_invalid_row=skip"):
        load(root)
    dataset = load(root, on_invalid_row="skip")
    assert examples(dataset, root) == examples(before, root)
    [line] = dataset.skipped
    assert re.fullmatch(message, line)


def test_names_that_are_not_utf8(root):
    before = load(root)
    path = root / "train/ant" / os.fsdecode(b"caf\xe9.jpg")
    path.write_bytes(b"x")
    message = f"{str(path)!r}: the name is not UTF-8. Rename the file."
    assert_refused_or_skipped(root, before, re.escape(message))


def test_image_in_two_splits_stays_with_a_warning(root, caplog):
    path = root / "test" / "ant" / "image_1.jpg"
    path.write_bytes((root / "train" / "cat" / "image_2.jpg").read_bytes())
    dataset = load(root)
    assert str(path) in dataset.splits["test"].features["file"]
    assert f"1 examples are also in an earlier split, such as {path}" in caplog.text


def test_invalid_folders(root):
    def message(**options):
        with pytest.raises((ValueError, FileNotFoundError)) as caught:
            load(root, **options)
        return str(caught.value).replace(str(root), "FOLDER")

    (root / "test" / "bee").mkdir()
    endings = ".jpg, .jpeg, .jpe, .jfif, .png, .webp, .gif, .bmp"
    assert message() == f"FOLDER/test/bee: no image ({endings}). Add one."
    (root / "test" / "bee" / "image.jpg").write_bytes(b"")
    assert message() == "FOLDER/test/bee: the class is not in FOLDER/train. Add it."
    (root / "classes").write_text("ant\n\ncat\n")
    assert message(classes=str(root / "classes")) == "FOLDER/classes:2: no class name. Remove the line."
    (root / "classes").write_text("ant\ncat\n")
    expected = "FOLDER/test/bee: the class is not in FOLDER/classes. Add it."
    assert message(classes=str(root / "classes")) == expected
    (root / "classes").unlink()
    (root / "train" / "bee").mkdir()
    assert message() == f"FOLDER/train/bee: no image ({endings}). Add one."
    (root / "train").rename(root / "else")
    assert message() == ("FOLDER/val: a split, but there is no split 'train'. Rename it if it is a class.")
    (root / "train").mkdir()
    assert message(on_invalid_row="skip").startswith("FOLDER/train: no class folder. Sort the images into")
    write(root / "train", {"ant": 3})
    (root / "else").rename(root / ".else")
    assert message() == "FOLDER/train: ant is the only class. Give at least two."
    write(root / "dev", {"ant": 1})
    assert message() == "data.path=FOLDER: dev and val are each a validation split. Remove all but one."


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^data\.path=.*/gone: no such folder"):
        load(tmp_path / "gone")


def test_copies_are_in_one_split(tmp_path):
    write(tmp_path, {"ant": 30, "bee": 30})
    for i in range(30):
        content = (tmp_path / "ant" / f"image_{i}.jpg").read_bytes()
        (tmp_path / "ant" / f"copy_{i}.jpg").write_bytes(content)
    splits = load(tmp_path).splits
    assert splits["validation"].class_counts(2).tolist() == [6, 3]
    for split in splits.values():
        ants = {file for file in split.features["file"] if "/ant/" in file}
        assert {file.replace("copy", "image") for file in ants} == {f for f in ants if "image_" in f}
        assert {file.replace("image_", "copy_") for file in ants} == {f for f in ants if "copy" in f}


@pytest.mark.parametrize("pattern", ["train", "train/ant", "train/ant/*"])
def test_links_are_followed(root, tmp_path_factory, pattern):
    before = examples(load(root), root)
    link = next(root.glob(pattern))
    target = tmp_path_factory.mktemp("elsewhere") / "target"
    link.rename(target)
    link.symlink_to(target)
    assert examples(load(root), root) == before
