"""Wheels hold the package without research, and work away from the repository."""

import os
import pathlib
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

import rank4class

ROOT = pathlib.Path(rank4class.__file__).parent
IGNORED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs", "site")


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "sources"
    shutil.copytree(ROOT, folder, ignore=IGNORED)
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    return folder


def file_names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def build(sources, hook):
    (sources.parent / "dist").mkdir()
    call = f"from setuptools import build_meta; build_meta.{hook}('../dist')"
    subprocess.run([sys.executable, "-c", call], cwd=sources, check=True, capture_output=True)
    [path] = (sources.parent / "dist").iterdir()
    return path


@pytest.mark.nightly
def test_wheel(sources, tmp_path):
    names = file_names(sources)
    with zipfile.ZipFile(build(sources, "build_wheel")) as wheel:
        packaged = {name for name in wheel.namelist() if ".dist-info/" not in name}
        wheel.extractall(tmp_path / "installed")
    outside = ("docs/", "scripts/research/")
    modules = {
        name
        for name in names
        if name.endswith(".py") and "testdata" not in name and not name.startswith(outside)
    }
    data = {name for name in names if name.endswith((".sh", ".safetensors", "py.typed"))}
    assert packaged == {f"rank4class/{name}" for name in modules | data}
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}

    def output_of(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout

    path = output_of("-c", "import rank4class; print(rank4class.__file__)")
    assert path.startswith(str(tmp_path / "installed"))
    assert "--config.loss.name" in output_of(
        "-m", "rank4class.scripts.train", "--config=digits_mlp", "--help"
    )


@pytest.mark.nightly
def test_losses_need_tensorflow_and_numpy_alone(sources, tmp_path):
    venv.create(tmp_path / "environment", with_pip=True)
    wheel = build(sources, "build_wheel")
    variables = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}

    def run(command, *arguments):
        program = [tmp_path / "environment/bin" / command, *arguments]
        return subprocess.run(program, cwd=tmp_path, env=variables, capture_output=True, text=True)

    installed = run("pip", "install", "--quiet", "--constraint", sources / "requirements.txt", wheel)
    assert installed.returncode == 0, installed.stderr
    assert run("pip", "check").returncode == 0
    value = run("python", "-c", "from rank4class import losses; print(float(losses.rankmax([0., 1.], 0)))")
    assert value.stdout == "1.0986123085021973\n", value.stderr  # log(1 + 2)
    assert "  train " in run("rank4class", "--help").stdout
    remedy = "not installed. Install all of train: pip install 'rank4class[train]'.\n"
    assert run("rank4class", "train", "--help").stderr.endswith(remedy)
