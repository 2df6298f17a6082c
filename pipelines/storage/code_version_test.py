"""The recorded commit is that of the package, not of a checkout around it."""

import re
import runpy
import shutil
import subprocess

import pytest

from rank4class.pipelines.storage import code_version


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "project/site-packages/rank4class"
    (folder / "pipelines/storage").mkdir(parents=True)
    shutil.copy(code_version.__file__, folder / "pipelines/storage")
    return folder


def commit_all(folder):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def commit_of(package):
    return runpy.run_path(str(package / "pipelines/storage/code_version.py"))["git_commit"]()


def test_commit_of_a_checkout(package):
    commit_all(package)
    assert re.fullmatch("[0-9a-f]{40}", commit_of(package))
    (package / "pipelines/storage/code_version.py").open("a").write("\n")
    assert re.fullmatch("[0-9a-f]{40}-dirty", commit_of(package))


def test_an_installed_package_has_no_commit(package):
    assert commit_of(package) is None
    commit_all(package.parent.parent)
    assert commit_of(package) is None
