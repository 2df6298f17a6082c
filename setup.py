"""Leaves the tests out of wheels; `pyproject.toml` has all other settings of the package."""

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithoutTests(build_py):
    """Copies the modules of a package except for its tests."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        modules = super().find_package_modules(package, package_dir)
        return [entry for entry in modules if not _is_for_tests(entry[1])]


def _is_for_tests(module: str) -> bool:
    return module.endswith("_test") or module in ("conftest", "setup")


setup(cmdclass={"build_py": BuildWithoutTests})
