import importlib

import numpy as np
import pytest

from rank4class import data

NAMES = "joy love pride fear grief anger surprise confusion curiosity neutral"


@pytest.mark.parametrize("confusable", [False, True])
def test_label_noise_changes_training_labels(tmp_path, confusable):
    # It stays registered, as after the tests of reproductions.
    noisy_goemotions = importlib.import_module("rank4class.scripts.research.noisy_goemotions")
    (tmp_path / "emotions.txt").write_text(NAMES.replace(" ", "\n"))
    for name, size in (("train", 1000), ("dev", 10), ("test", 10)):
        lines = [f"text {i}\t{i % 10}\t{name}{i}\n" for i in range(size)]
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    noisy = noisy_goemotions.noisy_goemotions(str(tmp_path), label_noise=0.3, confusable=confusable)
    clean = data.get("goemotions", path=tmp_path)
    before, after = (each.splits["train"].labels for each in (clean, noisy))
    changed = before != after
    assert changed.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / 1000))
    for name in ("validation", "test"):
        np.testing.assert_array_equal(noisy.splits[name].labels, clean.splits[name].labels)
    alike = (before // 3 == after // 3) | (before == 9)  # three emotions of a sentiment; the last is neutral
    assert alike[changed].all() == confusable
    assert len(set(after[before == 0])) == (3 if confusable else 10)
