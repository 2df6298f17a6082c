"""The architecture: import rules, BUILD files that match the imports, doctests and packaging."""

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

ROOT = pathlib.Path(__file__).parent
BASE = ("compat", "registry")  # modules that all packages may import
PACKAGES = ("losses", "models", "data", "pipelines", "scripts")
MAY_IMPORT = {
    "losses": {"losses", *BASE},
    "models": {"models", *BASE},
    "data": {"data", *BASE},
    "pipelines": {"losses", "models", "data", "pipelines", *BASE},
    "scripts": {"models", "pipelines", "scripts", "__main__", *BASE},
    "scripts/benchmarks": {"losses", "models", "data", "pipelines", "scripts", *BASE},
}
# The parts of `pipelines/`, by level: each imports only parts of lower levels.
LEVELS = {
    "config": 0,
    "progress": 0,
    "configs": 1,
    "storage": 1,
    "distribution": 2,
    "task": 2,
    "evaluation": 3,
    "reporting": 4,
    "training": 5,
    "export": 6,
    "search": 6,
    "sorters": 6,
    "sweep": 7,
    "papers": 8,
}
LONGEST_FILE = 500  # lines
PIP = {
    "PIL": "pillow",
    "absl": "absl_py",
    "google": "protobuf",
    "official": "tf_models_official",
    "sklearn": "scikit_learn",
}
PYTHON_OWN = sys.stdlib_module_names | {"tomllib"}  # from 3.11 on
# Packages whose modules are found by name: a rule that depends on one depends on all of its modules.
FOUND_BY_NAME = (
    ROOT / "data" / "datasets",
    ROOT / "pipelines" / "configs",
    ROOT / "scripts" / "benchmarks" / "suites",
)
FILES = sorted(
    [
        *(ROOT / f"{name}.py" for name in BASE),
        *itertools.chain(*((ROOT / name).rglob("*.py") for name in PACKAGES)),
    ]
)


def relative(path):
    return path.relative_to(ROOT).as_posix()


def imports(path):
    """Yields the dotted names that a file imports; of the project's own, the modules themselves."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if node.module.startswith("rank4class") and file_of(inner) else node.module


def file_of(module):
    """Returns the file of one of the project's modules, or None."""
    path = ROOT.joinpath(*module.split(".")[1:])
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


@pytest.mark.parametrize("path", [path for path in FILES if path.parent != ROOT], ids=relative)
def test_packages_import_only_what_they_may(path):
    package = path.relative_to(ROOT).parts[0]
    own = {name.split(".")[1] for name in imports(path) if name.startswith("rank4class.")}
    if ROOT / "scripts" / "benchmarks" in path.parents:
        package = "scripts/benchmarks"
    allowed = MAY_IMPORT[package] | (
        set(PACKAGES) if path.name.endswith("_test.py") and package == "scripts" else set()
    )
    assert own <= allowed, f"{relative(path)} imports {sorted(own - allowed)}"


def part_of(path):
    """Returns the part of `pipelines/` that a file belongs to, or None."""
    first, *rest = path.relative_to(ROOT).with_suffix("").parts
    return rest[0] if first == "pipelines" and rest[0] != "__init__" else None


def production(paths=FILES):
    return [path for path in paths if not path.name.endswith("_test.py")]


@pytest.mark.parametrize("path", list(filter(part_of, production())), ids=relative)
def test_parts_of_pipelines_import_only_lower_levels(path):
    part = part_of(path)
    for name in imports(path):
        other = part_of(file_of(name)) if name.startswith("rank4class.pipelines.") else None
        assert other in (None, part) or LEVELS[other] < LEVELS[part], f"{relative(path)} imports {name}"


def test_files_are_short():
    lines = {relative(path): len(path.read_text().splitlines()) for path in production()}
    long = [name for name, count in lines.items() if count > LONGEST_FILE]
    assert not long, f"Split {', '.join(long)}: over {LONGEST_FILE} lines."


def lacks_annotations(function, is_method):
    """Returns whether an argument or the result of an `ast.FunctionDef` has no annotation."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args][is_method:] + arguments.kwonlyargs
    named += filter(None, [arguments.vararg, arguments.kwarg])
    without_result = function.returns is None and function.name != "__init__"
    return without_result or any(argument.annotation is None for argument in named)


def public_functions(path):
    """Yields `(ast.FunctionDef, is_method)` of a file: public ones, constructors and registered ones."""
    for scope in ast.walk(ast.parse(path.read_text())):
        for node in scope.body if isinstance(scope, (ast.Module, ast.ClassDef)) else ():
            if isinstance(node, ast.FunctionDef):
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                if not node.name.startswith("_") or node.name == "__init__" or "register" in decorators:
                    yield node, isinstance(scope, ast.ClassDef) and "staticmethod" not in decorators


def test_public_functions_have_annotations():
    lacking = [
        f"{relative(path)}:{function.lineno}"
        for path in production()
        for function, is_method in public_functions(path)
        if lacks_annotations(function, is_method)
    ]
    assert not lacking, f"Annotate all arguments and the result: {', '.join(lacking)}."


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


def expected_rule(path):
    """Returns the BUILD rule that a file wants, as a dict of its fields and its "kind"."""
    source = path.read_text()
    rule = {"kind": "py_library", "name": path.stem, "srcs": [path.name]}
    deps = set()
    if path.name.endswith("_test.py"):
        rule["kind"] = "py_test"
        rule["srcs"].append("//:run_pytest.py")
        rule["main"] = "//:run_pytest.py"
        rule["args"] = [f"$(location {path.name})"]
        deps.add("@pip//pytest")
    elif 'if __name__ == "__main__":' in source:
        rule["kind"] = "py_binary"
    for module in imports(path):
        top = module.split(".")[0]
        if top == "rank4class":
            target = file_of(module)
            if target and target.name == "__init__.py" and target.parent in FOUND_BY_NAME:
                files = target.parent.glob("*.py")
                deps |= {label(file, path.parent) for file in files if not file.name.endswith("_test.py")}
            elif target and target != path:
                deps.add(label(target, path.parent))
        elif top not in PYTHON_OWN:
            deps.add(f"@pip//{PIP.get(top, top)}")
    files = sorted(itertools.chain(*map(files_of, filter(lambda name: f'"{name}"' in source, DATA_FOLDERS))))
    own = [file.relative_to(path.parent).as_posix() for file in files if path.parent in file.parents]
    return {**rule, **({"data": own} if own else {}), **({"deps": sorted(deps)} if deps else {})}


DATA_FOLDERS = ("shipped_weights", "testdata")


def files_of(name):
    """Returns the files that are no programs in all folders of a name."""
    files = itertools.chain(*((ROOT / package).glob(f"**/{name}/*") for package in PACKAGES))
    return (file for file in files if file.suffix not in ("", ".py"))


def label(target, from_package):
    if target.parent == from_package:
        return f":{target.stem}"
    package = target.parent.relative_to(ROOT).as_posix()
    return f"//{'' if package == '.' else package}:{target.stem}"


def rendered(rule):
    lines = [f"{rule['kind']}("]
    for field, value in rule.items():
        if field in ("data", "deps"):
            lines += [f"    {field} = [", *(f'        "{item}",' for item in value), "    ],"]
        elif field != "kind":
            lines.append(f"    {field} = {value!r},".replace("'", '"'))
    return "\n".join([*lines, ")"])


def build_packages():
    return [ROOT, *sorted({path.parent for path in FILES if (path.parent / "__init__.py").exists()})]


@pytest.mark.parametrize("package", build_packages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_build_file_matches_the_imports(package):
    stated = {}
    for node in ast.parse((package / "BUILD").read_text()).body:
        call = node.value
        if call.func.id.startswith("py_"):
            fields = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
            stated[fields["name"]] = {"kind": call.func.id, **fields}
    wanted = {rule["name"]: rule for rule in map(expected_rule, sorted(package.glob("*.py")))}
    wrong = [rendered(rule) for name, rule in wanted.items() if stated.get(name) != rule]
    assert not wrong, f"{relative(package / 'BUILD')} should say:\n\n" + "\n\n".join(wrong)
    assert set(stated) == set(wanted), f"no file for {sorted(set(stated) - set(wanted))}"


@functools.cache
def modules():
    found = []
    for path in FILES:
        # Commands define flags when they are imported, each for its own process: commands_test.py runs them.
        is_command = path.parent.name == "scripts"
        if not path.name.endswith("_test.py") and (path.parent / "__init__.py").exists() and not is_command:
            dotted = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            found.append("rank4class." + dotted.removesuffix(".__init__"))
    return found


# Modules whose doctests would take too long in one test.
PARTS = {
    "rank4class.losses.metrics.keras": 4,
    "rank4class.losses.metrics.sets": 6,
    "rank4class.losses.ops.n_choose_k": 8,
    "rank4class.losses.ops.set_sizes": 7,
    "rank4class.models.sorters.layers": 4,
}
NIGHTLY = [("rank4class.models.sorters.layers", 0)]


# Modules whose doctests read files, and run in a test of their own.
WITH_FILES = ["rank4class.pipelines.export.run"]


def doctest_cases():
    for name in filter(lambda name: name not in WITH_FILES, modules()):
        for part in range(PARTS.get(name, 1)):
            marks = [pytest.mark.nightly] if (name, part) in NIGHTLY else []
            yield pytest.param(name, part, marks=marks, id=f"{name}-{part}" if name in PARTS else name)


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
    assert set(listed) == {
        ".".join(["rank4class", *package.relative_to(ROOT).parts]) for package in build_packages()
    }


def test_weights_are_shipped_in_the_package_and_small():
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    [pattern] = shipped["rank4class.models.sorters"]
    sorters = ROOT / "models" / "sorters"
    files = set(sorters.glob(pattern))
    assert files == set((sorters / "shipped_weights").iterdir())
    assert 0 < sum(file.stat().st_size for file in files) < 2_000_000


@pytest.mark.parametrize(
    ("lock", "left_out"), [("requirements.txt", {"tf215"}), ("requirements-tf2.15.txt", {"scann"})]
)
def test_locks_hold_every_requirement(lock, left_out):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *itertools.chain(*(extras[name] for name in extras.keys() - left_out)),
    ]
    locked = {}
    for line in map(Requirement, (ROOT / lock).read_text().splitlines()):
        [pin] = line.specifier
        locked.setdefault(canonicalize_name(line.name), []).append(pin.version)
    for requirement in map(Requirement, wanted):
        versions = locked.get(canonicalize_name(requirement.name), [])
        if requirement.name != "rank4class":
            assert versions, f"{lock} lacks {requirement.name}: make lock"
            assert all(map(requirement.specifier.contains, versions)), f"{requirement} in {lock}: make lock"


if __name__ == "__main__":
    for package in PACKAGES:
        graph = structure(package)
        arrows = sum(map(len, graph.values()))
        print(f"{package}: {len(graph)} modules, {max(levels(graph).values())} levels, {arrows} arrows")
