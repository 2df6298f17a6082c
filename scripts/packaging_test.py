"""Wheels hold the package without research, and work away from the repository."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest
from packaging.requirements import Requirement

import rank4class

ROOT = pathlib.Path(rank4class.__file__).parent
IGNORED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs", "site")


def file_names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Returns the names of the files of the sources, and the path of their wheel."""
    folder = tmp_path_factory.mktemp("sources") / "sources"
    shutil.copytree(ROOT, folder, ignore=IGNORED)
    names = file_names(folder)
    (folder.parent / "dist").mkdir()
    call = "from setuptools import build_meta; build_meta.build_wheel('../dist')"
    subprocess.run([sys.executable, "-c", call], cwd=folder, check=True, capture_output=True)
    [wheel] = (folder.parent / "dist").iterdir()
    return names, wheel


@pytest.mark.nightly
def test_wheel(built, tmp_path):
    names, path = built
    with zipfile.ZipFile(path) as wheel:
        packaged = {name for name in wheel.namelist() if ".dist-info/" not in name}
        wheel.extractall(tmp_path / "installed")
    kinds = (".py", ".sh", ".safetensors", "py.typed", "page.html", "signatures.json")
    outside = ("docs/", "scripts/research/")
    of_wheel = {name for name in names if name.endswith(kinds) and not name.startswith(outside)}
    assert packaged == {f"rank4class/{name}" for name in of_wheel if "testdata" not in name}
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}

    def output_of(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout

    path = output_of("-c", "import rank4class; print(rank4class.__file__)")
    assert path.startswith(str(tmp_path / "installed"))
    assert "--config.loss.name" in output_of("-m", "rank4class", "train", "--config=digits_mlp", "--help")


def required(names):
    """Returns the installed distributions of some names, and of all that they require, without extras."""
    found = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = importlib.metadata.distribution(name)
            needs = [Requirement(text) for text in found[name].requires or ()]
            waiting += [need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})]
    return found.values()


@pytest.mark.nightly
def test_losses_and_models_need_tensorflow_and_numpy_alone(built, tmp_path):
    """The environment has links to the packages that the wheel requires."""
    venv.create(tmp_path / "environment")
    [packages] = (tmp_path / "environment" / "lib").glob("*/site-packages")
    with zipfile.ZipFile(built[1]) as wheel:
        wheel.extractall(packages)
    [metadata] = packages.glob("*.dist-info")
    needs = [Requirement(text) for text in importlib.metadata.Distribution.at(metadata).requires]
    names = [need.name for need in needs if not need.marker]
    assert sorted(names) == ["numpy", "packaging", "tensorflow"]
    for distribution in required(names):
        for top in {file.parts[0] for file in distribution.files} - {"..", "__pycache__", "bin"}:
            (packages / top).unlink(missing_ok=True)
            (packages / top).symlink_to(distribution.locate_file(top))
    variables = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    variables.pop("PYTHONPATH", None)

    def run(*arguments):
        program = [tmp_path / "environment" / "bin" / "python", *arguments]
        return subprocess.run(program, cwd=tmp_path, env=variables, capture_output=True, text=True)

    value = run("-c", "from rank4class import losses; print(float(losses.rankmax([0., 1.], 0)))")
    assert value.stdout == "1.0986123085021973\n", value.stderr  # log(1 + 2)
    [program] = re.findall(r"```python\n([^`]*RankModel[^`]*)```", (ROOT / "README.md").read_text())
    trained = run("-c", program)
    assert trained.stdout.startswith("{'loss': -0.9"), trained.stderr
    assert "  train " in run("-m", "rank4class", "--help").stdout
    remedy = "not installed. Install all of train: pip install 'rank4class[train]'.\n"
    assert run("-m", "rank4class", "train", "--help").stderr.endswith(remedy)
