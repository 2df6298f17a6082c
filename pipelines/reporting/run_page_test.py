"""The report of a training: its figures, its worst examples, and inputs of any kind and content."""

import html.parser

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf
from PIL import Image

from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.reporting import page, plots, run_page
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import rank_training

pytestmark = pytest.mark.usefixtures("names_of_a_new_process")


class Tables(html.parser.HTMLParser):
    """The rows of the tables of a page, the texts outside of figures, and the tags that load something."""

    def __init__(self, content):
        super().__init__()
        self.rows, self.texts, self.sources = [], [], []
        self._figures = 0
        self.feed(content)

    def handle_starttag(self, tag, attrs):
        self.sources += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        self._figures += tag == "svg"
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self._figures -= tag == "svg"
        if tag == "tr":
            self.rows[-1] = tuple(self.rows[-1])

    def handle_data(self, text):
        if not self._figures and text.strip():
            self.texts.append(text)
            if self.rows and isinstance(self.rows[-1], list) and self.rows[-1]:
                self.rows[-1][-1] += text


def trained(folder, dataset, **changes):
    """Trains a model of vectors or words; returns its results and its report."""
    experiment = config.Experiment(
        data=config.Data("memory"),
        encoder=config.Encoder("words" if "text" in dataset.splits["train"].features else "identity"),
        optimizer=config.Optimizer("lbfgs", C=(0.1, 1.0)),
    )
    experiment = config.override(experiment, {"metrics": ("top1_error",), "monitor": "top1_error", **changes})
    results = rank_training.train(
        experiment, folder / "run", dataset=dataset, progress=False, report=run_page.write
    )
    path = folder / "run" / "report.html"
    assert path.stat().st_size < 2_000_000
    return results, Tables(path.read_text())


def test_the_report_of_texts(tmp_path):
    texts = [f"the {('cat', 'dog', 'owl')[i % 3]} <b>sleeps</b> {i % 5}" for i in range(90)]
    y = (np.arange(90) % 3).astype(np.int32)
    y[-1] = (y[-1] + 1) % 3  # the one test example that is wrong
    features = np.array(texts, object)
    splits = {"train": np.s_[:40], "validation": np.s_[40:60], "test": np.s_[60:]}
    dataset = data.Dataset(
        ("cat & co", "dog", "owl"),
        {name: data.Split({"text": features[rows]}, y[rows]) for name, rows in splits.items()},
    )
    results, tables = trained(tmp_path, dataset)
    assert results["test"]["top1_error"] == pytest.approx(100 / 30)
    answer = "3.3% [0.6, 16.7] of 30 test examples are wrong; always the most frequent class, "
    assert answer in " ".join(tables.texts)
    assert (
        "the <b>sleeps</b> 4".replace("the", "the owl"),
        "example 29",
        "cat & co",
        "owl",
        "2",
    ) in tables.rows
    assert ("cat & co", "owl", "1") in tables.rows
    assert ("train", "40", "13", "13", "14", "-") in tables.rows
    assert [row[-1] for row in tables.rows if row[:2] == ("test", "30")] == ["30"]  # all texts repeat
    assert "optimizer.C = (0.1, 1.0)" in "".join(tables.texts)
    assert f"rank4class predict {tmp_path / 'run'} FILE" in "".join(tables.texts)
    assert all(source.startswith(("#", "data:")) for source in tables.sources)


def test_the_report_of_several_labels_and_without_a_test_split(tmp_path, rng):
    x = rng.normal(size=[60, 4]).astype(np.float32)
    labels = scipy.sparse.csr_array((x[:, :3] > 0).astype(np.float32))
    dataset = data.Dataset(
        tuple("abc"),
        {
            name: data.Split({"embedding": x[rows]}, labels[rows])
            for name, rows in {"train": np.s_[:40], "validation": np.s_[40:]}.items()
        },
    )
    _, tables = trained(tmp_path, dataset, metrics=("map",), monitor="map")
    assert any(text.startswith("map on 20 validation examples: ") for text in tables.texts)
    assert not any("Worst" in text for text in tables.texts)


@pytest.mark.nightly
def test_the_report_of_images(tmp_path):
    experiment = config.override(digits_mlp.get_config(), {"epochs": 1.0, "encoder.hidden": (8,)})
    rank_training.train(
        experiment, tmp_path, progress=False, draw=plots.draw_evaluation, report=run_page.write
    )
    tables = Tables((tmp_path / "report.html").read_text())
    images = [source for source in tables.sources if source.startswith("data:image/png")]
    assert len(images) >= 20
    assert RunDirectory(str(tmp_path)).results() is not None


def test_thumbnails(tmp_path):
    path = str(tmp_path / "a.jpg")
    tf.io.write_file(path, tf.io.encode_jpeg(np.zeros([300, 200, 3], np.uint8)))
    transparent = str(tmp_path / "b.webp")
    Image.fromarray(np.zeros([30, 20, 4], np.uint8)).save(transparent)
    for image in (path, transparent, np.zeros([8, 8, 1], np.float32), np.ones([8, 8, 3], np.uint8)):
        assert page.thumbnail(image).startswith('<img alt="" src="data:image/png;base64,')


def test_a_page_of_markdown(tmp_path):
    plots.save(plots.Figure(figsize=(1.0, 1.0)), str(tmp_path / "curves.png"))
    (tmp_path / "report.md").write_text(
        "# A & B\n\n![Curves](curves.png)\n\n| class | n |\n|--|--|\n| <b>x</b> | 1 |\n\n<script>x</script>\n"
    )
    path = page.write_beside(str(tmp_path / "report.md"))
    content = (tmp_path / "report.html").read_text()
    tables = Tables(content)
    assert path == str(tmp_path / "report.html")
    assert tables.texts[0] == "A & B"
    assert tables.rows == [("class", "n"), ("<b>x</b>", "1")]
    assert [source[:22] for source in tables.sources] == ["data:image/png;base64,"]
    assert "<script>" not in content
