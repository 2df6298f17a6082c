import importlib

import numpy as np
import pytest

from rank4class import data


def test_label_noise_changes_training_labels(tmp_path):
    # It stays registered, as after the tests of reproductions.
    noisy_goemotions = importlib.import_module("rank4class.scripts.research.noisy_goemotions")
    (tmp_path / "emotions.txt").write_text("".join(f"class{i}\n" for i in range(10)))
    for name, size in (("train", 1000), ("dev", 10), ("test", 10)):
        lines = [f"text {i}\t{i % 10}\t{name}{i}\n" for i in range(size)]
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    clean = data.get("goemotions", path=tmp_path)
    noisy = noisy_goemotions.noisy_goemotions(str(tmp_path), label_noise=0.3)
    labels = noisy.splits["train"].labels
    changed = labels != clean.splits["train"].labels
    assert changed.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / 1000))
    assert (np.bincount(labels[changed], minlength=10) > 10).all()
    for name in ("validation", "test"):
        np.testing.assert_array_equal(noisy.splits[name].labels, clean.splits[name].labels)

    names = "joy love pride fear grief anger surprise confusion curiosity neutral"
    (tmp_path / "emotions.txt").write_text(names.replace(" ", "\n"))
    alike = noisy_goemotions.noisy_goemotions(str(tmp_path), label_noise=0.3, confusable=True)
    wrong = alike.splits["train"].labels
    np.testing.assert_array_equal(wrong != clean.splits["train"].labels, changed)
    for before, after in zip(clean.splits["train"].labels[changed], wrong[changed], strict=True):
        assert before == 9 or before // 3 == after // 3
    assert len(set(wrong[clean.splits["train"].labels == 0])) == 3
