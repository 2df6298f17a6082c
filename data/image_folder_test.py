"""Folders of images: which image is in which split and class, and one clear line for every broken folder."""

import os
import re

import numpy as np
import pytest

from rank4class import data


def write(folder, sizes, names="image_{}.jpg"):
    """Writes that many images of each class, all different."""
    for name, size in sizes.items():
        (folder / name).mkdir(parents=True)
        for i in range(size):
            (folder / name / names.format(i)).write_bytes(f"{folder.name}/{name}/{i:05}".encode())


@pytest.fixture
def given(tmp_path):
    """Writes a folder whose splits are given; returns its path."""
    for split, size in (("train", 3), ("val", 1), ("test", 2)):
        write(tmp_path / split, {"cat": size, "ant": size})
    return tmp_path


def listed(dataset, folder):
    return {
        name: [
            (file.removeprefix(f"{folder}/"), dataset.class_names[label])
            for file, label in zip(split.features["file"], split.labels, strict=True)
        ]
        for name, split in dataset.splits.items()
    }


@pytest.mark.parametrize("validation", ["validation", "val", "valid", "dev"])
def test_given_splits(given, validation):
    (given / "val").rename(given / validation)
    dataset = data.get("image_folder", path=str(given))
    assert dataset.class_names == ("ant", "cat")
    assert listed(dataset, given) == {
        "train": [(f"train/{name}/image_{i}.jpg", name) for name in ("ant", "cat") for i in range(3)],
        "validation": [(f"{validation}/{name}/image_0.jpg", name) for name in ("ant", "cat")],
        "test": [(f"test/{name}/image_{i}.jpg", name) for name in ("ant", "cat") for i in range(2)],
    }
    for split in dataset.splits.values():
        assert split.labels.dtype == np.int32
        np.testing.assert_array_equal(split.origins, split.features["file"])


def test_a_split_may_lack_a_class(given):
    (given / "test" / "cat" / "image_0.jpg").unlink()
    (given / "test" / "cat" / "image_1.jpg").unlink()
    (given / "test" / "cat").rmdir()
    splits = data.get("image_folder", path=str(given)).splits
    assert splits["test"].labels.tolist() == [0, 0]


@pytest.mark.parametrize("missing", [("val",), ("test",), ("val", "test")])
def test_what_is_missing_is_drawn_from_the_training_images(tmp_path, missing):
    write(tmp_path / "train", {"ant": 40, "bee": 20})
    for split in {"val", "test"} - set(missing):
        write(tmp_path / split, {"ant": 1, "bee": 1})
    dataset = data.get("image_folder", path=str(tmp_path), validation_fraction=0.2, test_fraction=0.1)
    shares = {"validation": 0.2 * ("val" in missing), "test": 0.1 * ("test" in missing)}
    for name, share in shares.items():
        expected = [40 * share, 20 * share] if share else [1, 1]
        assert dataset.splits[name].class_counts(2).tolist() == expected
    left = 1 - sum(shares.values())
    np.testing.assert_allclose(dataset.splits["train"].class_counts(2), [40 * left, 20 * left])
    files = [file for split in dataset.splits.values() for file in split.features["file"]]
    assert sorted(files) == sorted(map(str, tmp_path.glob("*/*/*")))


def test_classes_alone_are_drawn_from_by_the_seed(tmp_path):
    write(tmp_path, {"ant": 40, "bee": 20})

    def validation(**knobs):
        split = data.get("image_folder", path=str(tmp_path), **knobs).splits["validation"]
        assert split.class_counts(2).tolist() == [4, 2]
        return split.features["file"].tolist()

    assert validation() == validation(split_seed=0)
    assert validation() != validation(split_seed=1)


def test_copies_are_drawn_together(tmp_path):
    write(tmp_path, {"ant": 30, "bee": 30})
    for i in range(30):
        content = (tmp_path / "ant" / f"image_{i}.jpg").read_bytes()
        (tmp_path / "ant" / f"copy_{i}.jpg").write_bytes(content)
    splits = data.get("image_folder", path=str(tmp_path)).splits
    assert splits["validation"].class_counts(2).tolist() == [6, 3]
    for split in splits.values():
        ants = {file for file in split.features["file"] if "/ant/" in file}
        assert {file.replace("copy", "image") for file in ants} == {f for f in ants if "image_" in f}
        assert {file.replace("image_", "copy_") for file in ants} == {f for f in ants if "copy" in f}


def test_the_list_of_the_classes_decides_their_ids(given):
    (given / "classes.txt").write_text("cat\nant\n")
    dataset = data.get("image_folder", path=str(given), classes=str(given / "classes.txt"))
    assert dataset.class_names == ("cat", "ant")
    for name, split in dataset.splits.items():
        for file, label in zip(split.features["file"], split.labels, strict=True):
            assert f"/{dataset.class_names[label]}/" in file, name


def test_the_list_may_lie_beside_the_classes(tmp_path):
    write(tmp_path, {"ant": 10, "bee": 10})
    (tmp_path / "classes.txt").write_text("bee\nant\n")
    dataset = data.get("image_folder", path=str(tmp_path), classes=str(tmp_path / "classes.txt"))
    assert dataset.class_names == ("bee", "ant")


def test_endings_in_any_case_and_hidden_files(tmp_path):
    write(tmp_path, {"bee": 30})
    endings = ("jpg", "JPG", "jpeg", "JPEG", "png", "PNG", "gif", "GIF", "bmp", "Bmp")
    for i in range(3):
        for ending in endings:
            (tmp_path / "ant").mkdir(exist_ok=True)
            (tmp_path / "ant" / f"{i}.{ending}").write_bytes(f"{i} {ending}".encode())
    for hidden in (".DS_Store", ".cache/x.jpg", "ant/.thumb.jpg"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_bytes(b"")
    dataset = data.get("image_folder", path=str(tmp_path))
    assert sum(split.class_counts(2) for split in dataset.splits.values()).tolist() == [30, 30]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            "train/ant/notes.txt",
            r"train/ant/notes\.txt is no image \*\.jpg, \*\.jpeg, \*\.png, \*\.gif, \*\.bmp",
        ),
        (
            "train/ant/x.WebP",
            r"train/ant/x\.WebP is no image .* \.WebP files are not read: convert it to PNG or",
        ),
        (
            "train/ant/x.tiff",
            r"train/ant/x\.tiff is no image .* \.tiff files are not read: convert it to PNG or",
        ),
        ("train/ant/more/image.jpg", r"train/ant/more is no image"),
        ("test/image.jpg", r"test/image\.jpg lies outside the folders of the classes"),
    ],
)
def test_bad_rows(given, file, message):
    before = listed(data.get("image_folder", path=str(given)), given)
    (given / file).parent.mkdir(parents=True, exist_ok=True)
    (given / file).write_bytes(b"x")
    with pytest.raises(ValueError, match=rf"{given}/{message} .*on_invalid_row=skip would leave it out"):
        data.get("image_folder", path=str(given))
    dataset = data.get("image_folder", path=str(given), on_invalid_row="skip")
    assert listed(dataset, given) == before
    [line] = dataset.skipped
    assert re.match(f"{given}/{message}", line)


@pytest.mark.parametrize("name", ["README.md", "bus"])
def test_what_is_no_split_beside_splits_is_a_bad_row(given, name):
    before = listed(data.get("image_folder", path=str(given)), given)
    message = (
        f"{given} has a folder 'train', so its folders are taken for splits; {name!r} is none of train, "
        "validation (val, valid, dev), test: move it elsewhere, or rename 'train' if that is a class"
    )
    (given / name).mkdir()
    with pytest.raises(ValueError, match=f"^{re.escape(message)} .*on_invalid_row=skip would leave it out"):
        data.get("image_folder", path=str(given))
    dataset = data.get("image_folder", path=str(given), on_invalid_row="skip")
    assert dataset.skipped == (message,)
    assert listed(dataset, given) == before


@pytest.mark.parametrize("folder", ["train/ant", "train", ""])
def test_names_that_are_not_utf_8_are_bad_rows(given, folder):
    before = listed(data.get("image_folder", path=str(given)), given)
    path = os.path.join(os.fsencode(given / folder), b"caf\xe9.jpg")
    with open(path, "wb") as file:
        file.write(b"x")
    message = f"{os.fsdecode(path)!r} has a name that is not UTF-8: rename it"
    with pytest.raises(ValueError, match=f"^{re.escape(message)} .data.on_invalid_row=skip"):
        data.get("image_folder", path=str(given))
    dataset = data.get("image_folder", path=str(given), on_invalid_row="skip")
    assert dataset.skipped == (message,)
    assert listed(dataset, given) == before


@pytest.mark.parametrize("link", ["train/ant/image_9.jpg", "train/bee", "test/bee", "README.md"])
def test_a_link_to_nothing_is_a_bad_row(given, link):
    (given / link).symlink_to(given / "gone")
    with pytest.raises(ValueError, match=f"^{given / link} is a link to nothing .data.on_invalid_row"):
        data.get("image_folder", path=str(given))
    dataset = data.get("image_folder", path=str(given), on_invalid_row="skip")
    assert dataset.skipped == (f"{given / link} is a link to nothing",)


def test_an_image_beside_the_classes_is_a_bad_row(tmp_path):
    write(tmp_path, {"ant": 10, "bee": 10})
    (tmp_path / "image.jpg").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"image\.jpg lies outside the folders of the classes"):
        data.get("image_folder", path=str(tmp_path))


def test_an_image_that_an_earlier_split_has_is_a_bad_row(given):
    path = given / "test" / "ant" / "image_1.jpg"
    path.write_bytes((given / "train" / "cat" / "image_2.jpg").read_bytes())
    message = f"{path} is the image of {given}/train/cat/image_2.jpg: an example belongs to one split"
    with pytest.raises(ValueError, match=f"^{message} .data.on_invalid_row=skip would"):
        data.get("image_folder", path=str(given))
    dataset = data.get("image_folder", path=str(given), on_invalid_row="skip")
    assert dataset.skipped == (message,)
    assert str(path) not in dataset.splits["test"].features["file"]
    assert f"{given}/train/cat/image_2.jpg" in dataset.splits["train"].features["file"]


def test_broken_folders(given):
    def message(**knobs):
        with pytest.raises((ValueError, FileNotFoundError)) as caught:
            data.get("image_folder", path=str(given), **knobs)
        return str(caught.value).replace(str(given), "FOLDER")

    (given / "test" / "bee").mkdir()
    assert message() == "FOLDER/test/bee has no image *.jpg, *.jpeg, *.png, *.gif, *.bmp"
    (given / "test" / "bee" / "image.jpg").write_bytes(b"")
    assert message() == "FOLDER/test/bee is a class without training images"
    (given / "classes").write_text("ant\ncat\nant\n")
    assert message(classes=str(given / "classes")) == "FOLDER/classes:3 has the class name 'ant' again"
    (given / "classes").write_text("ant\n\n")
    assert message(classes=str(given / "classes")) == "FOLDER/classes:2 has no class name"
    (given / "classes").write_text("ant\n")
    expected = "FOLDER/train/cat is a class that FOLDER/classes does not list"
    assert message(classes=str(given / "classes")) == expected
    (given / "classes").write_text("ant\nbee\ncat\n")
    expected = "FOLDER/classes lists the class 'bee', which has no images in FOLDER/train"
    assert message(classes=str(given / "classes")) == expected
    (given / "classes").unlink()
    (given / "train" / "bee").mkdir()
    assert message() == "FOLDER/train/bee has no image *.jpg, *.jpeg, *.png, *.gif, *.bmp"
    (given / "train").rename(given / "else")
    assert message() == (
        "FOLDER has a folder 'test', so its folders are taken for splits, but none is 'train': if 'test' is "
        "a class, rename it"
    )
    (given / "train").mkdir()
    assert message(on_invalid_row="skip") == (
        "FOLDER/train has no folders: sort its images into one folder a class"
    )
    write(given / "train", {"ant": 3})
    (given / "else").rename(given / ".else")
    assert message() == "FOLDER/train has the class 'ant' alone: there is nothing to tell apart"
    write(given / "dev", {"ant": 1})
    assert message() == "FOLDER/dev and FOLDER/val are both the validation split"


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*/gone"):
        data.get("image_folder", path=str(tmp_path / "gone"))
    with pytest.raises(ValueError, match=r"set data\.path to a folder with a folder of images"):
        data.get("image_folder")
