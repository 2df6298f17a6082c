"""The architecture: import rules, doctests and packaging."""

import ast
import doctest
import functools
import graphlib
import importlib
import itertools
import pathlib
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = pathlib.Path(__file__).parents[1]
BASE = ("arguments", "compat", "progress", "registry", "scan", "strict_json")  # all may import these
PACKAGES = ("losses", "models", "data", "pipelines", "scripts")
MAY_IMPORT = {
    "losses": {"losses", *BASE},
    "models": {"models", *BASE},
    "data": {"data", *BASE},
    "pipelines": {"losses", "models", "data", "pipelines", *BASE},
    "scripts": {"models", "pipelines", "scripts", "__main__", *BASE},
    "scripts/research": {"losses", "models", "data", "pipelines", "scripts", "__main__", *BASE},
}
# The parts of `pipelines/`, by level: each imports only parts of lower levels.
LEVELS = {
    "config": 0,
    "configs": 1,
    "storage": 1,
    "distribution": 2,
    "task_data": 2,
    "evaluation": 3,
    "reporting": 4,
    "training": 5,
    "export": 5,
    "run": 6,
    "estimator": 7,
    "estimator_data": 2,
    "sweep": 6,
}
LONGEST_FILE = 500  # lines
RESEARCH = ROOT / "scripts" / "research"  # not in wheels
FILES = sorted(
    [
        *(ROOT / f"{name}.py" for name in BASE),
        *itertools.chain(*((ROOT / name).rglob("*.py") for name in PACKAGES)),
    ]
)


def relative(path):
    return path.relative_to(ROOT).as_posix()


@functools.cache
def imports(path):
    """Returns the dotted names that a file imports; of the project, the modules themselves."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = node.module.startswith("rank4class") and file_of(inner)
                names.append(inner if is_module else node.module)
    return names


def file_of(module):
    """Returns the file of one of the project's modules, or None."""
    path = ROOT.joinpath(*module.split(".")[1:])
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


def package_of(path):
    return "scripts/research" if RESEARCH in path.parents else path.relative_to(ROOT).parts[0]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_what_they_may(package):
    for path in (path for path in FILES if package_of(path) == package):
        imported = {name.split(".")[1] for name in imports(path) if name.startswith("rank4class.")}
        if package != "scripts/research":
            research = [name for name in imports(path) if name.startswith("rank4class.scripts.research")]
            assert not research, relative(path)
        is_test = path.name.endswith("_test.py") and package == "scripts"
        allowed = MAY_IMPORT[package] | (set(PACKAGES) if is_test else set())
        assert imported <= allowed, f"{relative(path)} imports {sorted(imported - allowed)}"


def part_of(path):
    """Returns the part of `pipelines/` that a file belongs to, or None."""
    first, *rest = path.relative_to(ROOT).with_suffix("").parts
    return rest[0] if first == "pipelines" and rest[0] != "__init__" else None


def production(paths=FILES):
    return [path for path in paths if not path.name.endswith(("_test.py", "conftest.py"))]


@pytest.mark.parametrize("part", LEVELS)
def test_parts_of_pipelines_import_only_lower_levels(part):
    for path in (path for path in production() if part_of(path) == part):
        for name in imports(path):
            other = part_of(file_of(name)) if name.startswith("rank4class.pipelines.") else None
            assert other in (None, part) or LEVELS[other] < LEVELS[part], f"{relative(path)} imports {name}"


def test_every_part_has_a_level():
    assert set(LEVELS) == set(filter(None, map(part_of, production())))


def test_files_are_short():
    lines = {relative(path): len(path.read_text().splitlines()) for path in production()}
    long = [name for name, count in lines.items() if count > LONGEST_FILE]
    assert not long, f"Split {', '.join(long)}: over {LONGEST_FILE} lines."


def structure(package):
    """Returns the import graph of a package, for `pipelines` of its parts: name -> imported names."""
    graph = {}
    for path in production():
        if path.relative_to(ROOT).parts[0] != package or path.name == "__init__.py":
            continue
        arrows = graph.setdefault(part_of(path) or relative(path), set())
        for name in imports(path):
            file = file_of(name) if name.startswith(f"rank4class.{package}.") else None
            if file and (file.name != "__init__.py" or part_of(file)):
                arrows.add(part_of(file) or relative(file))
    return {name: arrows - {name} for name, arrows in graph.items()}


def levels(graph):
    """Returns name -> length of the longest chain of imports below it; raises ValueError for a cycle."""
    found = {}
    for name in graphlib.TopologicalSorter(graph).static_order():
        found[name] = 1 + max((found[other] for other in graph[name]), default=0)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_have_no_cycle(package):
    assert levels(structure(package))


@functools.cache
def modules():
    found = []
    for path in FILES:
        # Commands define flags when they are imported, each in another process: commands_test.py runs them.
        is_command = path.parent in (ROOT / "scripts", RESEARCH)
        if not path.name.endswith("_test.py") and (path.parent / "__init__.py").exists() and not is_command:
            dotted = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            found.append("rank4class." + dotted.removesuffix(".__init__"))
    return found


# Modules whose doctests would take too long in one test.
PARTS = {
    "rank4class.losses.metrics.decisions": 4,
    "rank4class.losses.ops.n_choose_k": 8,
    "rank4class.losses.ops.set_sizes": 7,
}
NIGHTLY = [("rank4class.pipelines.estimator", 0)]


# Modules whose doctests read files, and run in a separate test.
WITH_FILES = ["rank4class.pipelines.run"]


def doctest_cases():
    for name in (name for name in modules() if name not in WITH_FILES and ">>>" in file_of(name).read_text()):
        for part in range(PARTS.get(name, 1)):
            is_nightly = (name, part) in NIGHTLY or name.startswith("rank4class.scripts.research")
            marks = [pytest.mark.nightly] if is_nightly else []
            yield pytest.param(name, part, marks=marks, id=f"{name}-{part}" if name in PARTS else name)


@pytest.mark.usefixtures("restored_registries")
@pytest.mark.parametrize(("name", "part"), doctest_cases())
def test_doctests(name, part):
    module = importlib.import_module(name)
    tests = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    runner = doctest.DocTestRunner()
    for test in tests[part :: PARTS.get(name, 1)]:
        runner.run(test)
    assert not runner.failures


def test_every_package_is_listed():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    packages = {ROOT, *(path.parent for path in FILES if (path.parent / "__init__.py").exists())}
    assert set(listed) == {
        ".".join(["rank4class", *package.relative_to(ROOT).parts])
        for package in packages
        if RESEARCH not in (package, *package.parents)
    }


def test_the_lock_holds_every_requirement():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    locked = {}
    for line in map(Requirement, (ROOT / "requirements.txt").read_text().splitlines()):
        [pin] = line.specifier
        locked.setdefault(canonicalize_name(line.name), []).append(pin.version)
    for requirement in map(Requirement, wanted):
        versions = locked.get(canonicalize_name(requirement.name), [])
        if requirement.name != "rank4class":
            assert versions, f"requirements.txt lacks {requirement.name}: make lock"
            assert all(map(requirement.specifier.contains, versions)), f"{requirement}: make lock"


if __name__ == "__main__":
    for package in PACKAGES:
        graph = structure(package)
        arrows = sum(map(len, graph.values()))
        print(f"{package}: {len(graph)} modules, {max(levels(graph).values())} levels, {arrows} arrows")
