"""ImageNet's layout: which files, which classes, and one clear line for every broken folder."""

import pytest

from rank4class import data


@pytest.fixture
def tiny_imagenet(tmp_path):
    """Writes a small folder in ImageNet's published layout; returns its path."""
    for folder, size in (("train/n02", 3), ("train/n01", 2), ("val/n01", 1), ("val/n02", 2)):
        (tmp_path / folder).mkdir(parents=True)
        for i in range(size):
            (tmp_path / folder / f"image_{i}.JPEG").write_bytes(b"")
    (tmp_path / "train" / "synsets.txt").write_text("n01\nn02\n")
    return tmp_path


@pytest.mark.parametrize("validation", ["val", "validation"])
def test_imagenet_lists_its_files(tiny_imagenet, validation):
    (tiny_imagenet / "val").rename(tiny_imagenet / validation)
    dataset = data.get("imagenet", path=str(tiny_imagenet))
    assert dataset.class_names == ("n01", "n02")

    def listed(name):
        split = dataset.splits[name]
        files = [file.removeprefix(f"{tiny_imagenet}/") for file in split.features["file"]]
        return list(zip(files, split.labels, strict=True))

    assert listed("train") == [
        ("train/n01/image_0.JPEG", 0),
        ("train/n01/image_1.JPEG", 0),
        ("train/n02/image_0.JPEG", 1),
        ("train/n02/image_1.JPEG", 1),
        ("train/n02/image_2.JPEG", 1),
    ]
    assert listed("validation") == [
        (f"{validation}/n01/image_0.JPEG", 0),
        (f"{validation}/n02/image_0.JPEG", 1),
        (f"{validation}/n02/image_1.JPEG", 1),
    ]
    assert listed("test") == listed("validation")


def test_imagenet_sorts_classes_and_files(tmp_path):
    names = [f"{i:02}" for i in range(20)]
    for name in names:
        for folder in ("train", "val"):
            (tmp_path / folder / name).mkdir(parents=True)
            for image in names:
                (tmp_path / folder / name / f"{image}.JPEG").write_bytes(b"")
    dataset = data.get("imagenet", path=str(tmp_path))
    assert dataset.class_names == tuple(names)
    for split in dataset.splits.values():
        assert split.features["file"].tolist() == sorted(split.features["file"])


def test_broken_imagenet_folders(tiny_imagenet):
    def message():
        with pytest.raises((ValueError, FileNotFoundError)) as caught:
            data.get("imagenet", path=str(tiny_imagenet))
        return str(caught.value).replace(str(tiny_imagenet), "FOLDER")

    (tiny_imagenet / "val" / "n03").mkdir()
    assert message() == "FOLDER/val/n03 is a class that FOLDER/train does not have"
    (tiny_imagenet / "train" / "n03").mkdir()
    (tiny_imagenet / "train" / "n03" / "image.jpeg.part").write_bytes(b"")
    assert message() == "FOLDER/val/n03 has no image *.JPEG"
    (tiny_imagenet / "val" / "n03").rmdir()
    assert message() == "FOLDER/train/n03 has no image *.JPEG"
    (tiny_imagenet / "val").rename(tiny_imagenet / "elsewhere")
    assert message() == "no folder FOLDER/val or FOLDER/validation"
    (tiny_imagenet / "val").mkdir()
    (tiny_imagenet / "val" / "image.JPEG").write_bytes(b"")
    assert message() == "FOLDER/val has no folders: sort its images into one folder a class"
    (tiny_imagenet / "train").rename(tiny_imagenet / "training")
    assert message() == "no folder FOLDER/train"
    with pytest.raises(ValueError, match=r"not downloaded: set data\.path to a folder with train/ and val/"):
        data.get("imagenet")
