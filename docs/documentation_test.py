"""The documentation: programs run, commands exist, generated pages are up to date, every name is documented.

`tutorials_test.py` runs the tutorials.
"""

import ast
import importlib.util
import inspect
import itertools
import os
import pathlib
import re
import shlex
import subprocess
import textwrap
import types

import pytest
import tensorflow as tf
import yaml
from absl import flags

from rank4class import __main__ as program
from rank4class import compat, data, losses, models
from rank4class.data import DATASETS  # imports all names of `data`
from rank4class.losses import metrics
from rank4class.models import sorters
from rank4class.pipelines import config, configs
from rank4class.scripts.research import reference

DOCS = pathlib.Path(__file__).parent
ROOT = DOCS.parent
CHANGES = DOCS / "changelog.md"  # names what earlier versions had
PAGES = sorted({ROOT / "README.md", ROOT / ".github" / "CONTRIBUTING.md", *DOCS.rglob("*.md")} - {CHANGES})
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# A page that trains, or says so itself, takes more than a fast test may.
NIGHTLY = re.compile(r"rank4class\.train\(|\.run_grid\(|\.fit\(|<!-- nightly -->")


def relative(path):
    return path.relative_to(ROOT).as_posix()


def programs(page):
    """Returns the Python blocks of a page, each on the lines that it has there."""
    text = page.read_text()
    return [text[: match.start(1)].count("\n") * "\n" + match[1] for match in PROGRAM.finditer(text)]


def pages_with_programs():
    for page in PAGES:
        if page.parent.name != "tutorials" and programs(page):
            is_long = NIGHTLY.search(page.read_text())
            yield pytest.param(page, marks=[pytest.mark.nightly] if is_long else [], id=relative(page))


def run(page):
    namespace = {"__name__": "__page__"}
    for source in programs(page):
        exec(compile(source, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", pages_with_programs())
@pytest.mark.usefixtures("restored_registries")
def test_programs_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page)


# A command: inline code, or at the start of a line, after a prompt or an assignment.
NAME = r"(?:\.venv/bin/)?(?:rank4class (\w+)|python -m rank4class\.scripts\.(?:research\.)?(\w+))"
INLINE = re.compile(rf"`{NAME}([^`]*)`")
LINE = re.compile(
    rf"^[ \t]*(?:\$ )?(?:[A-Z_]+=\S+ )*{NAME}((?:[ \t]+(?:[-\\]|\S*[./])(?:\\\n|[^`\n])*)?)$", re.MULTILINE
)
END = re.compile(r"\s[|>&;#]|\s\d?>")  # the rest of a line of a shell
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*|.*\.\.\.|\$.*")


def commands_of(text):
    """Yields (name, arguments) for each command in a text, without the rest of a line of a shell.

    Inline code may name some of the flags alone: it ends with "...".
    """
    for pattern in (INLINE, LINE):
        for match in pattern.finditer(text):
            arguments = shlex.split(END.split(match[3].replace("\\\n", " "))[0], comments=True)
            yield match[1] or match[2], [*arguments, "..."] if pattern is INLINE else arguments


def texts_with_commands():
    """Yields (where, text) of the pages, and of the docstrings of commands and configs."""
    for page in PAGES:
        yield relative(page), page.read_text()
    for folder in ("scripts", "scripts/research", "scripts/research/configs", "pipelines/configs"):
        for path in sorted((ROOT / folder).glob("*.py")):
            yield relative(path), ast.get_docstring(ast.parse(path.read_text())) or ""


@pytest.fixture(scope="module")
def flags_by_command():
    return reference.commands()


def problems(name, arguments, flags_by_command):
    """Returns the problems of a command."""
    if name == "COMMAND":
        return []
    if name not in flags_by_command:
        return [f"no command {name}"]
    known = {flag.name: flag for flag in flags_by_command[name]}
    unnamed = itertools.takewhile(lambda a: a[:1] != "-" and a not in ("...", "[...]"), arguments)
    named = [f"--{flag}={value}" for flag, value in zip(arguments_of(name), unnamed, strict=False)]
    arguments = [*named, *arguments[len(named) :]]
    given = dict(re.fullmatch(r"--([^=]+)(?:=(.*))?", a, re.S).groups() for a in arguments if a[:2] == "--")
    if "config.data.path" in given and "config" in known and "config" not in given:
        given = {
            "config": "text_file_minilm",
            **({"workdir": "runs/a"} if "workdir" in known else {}),
            **given,
        }
    wrong = [f"{a}: no positional arguments" for a in arguments if a[:1] != "-" and a not in ("...", "[...]")]
    is_complete = not {"...", "[...]"} & set(arguments) and arguments and "help" not in given
    if is_complete:
        required = (flag.name for flag in known.values() if reference.is_required(flag))
        wrong += [f"--{name}: missing" for name in required if name not in given]
    try:
        experiment = experiment_of(given) if "config" in known else None
    except (ValueError, OSError) as error:
        return [*wrong, str(error)]
    for flag, value in given.items():
        try:
            check_flag(flag, value, known, experiment)
        except (ValueError, flags.Error) as error:
            wrong.append(f"--{flag}={value}: {error}")
    return wrong


def arguments_of(name):
    """Returns the flags of a command whose values may come first without a name."""
    found = re.search(r"arguments=\[(.*?)\]( \* 20)?", program.files()[name].read_text())
    return re.findall('"(.*?)"', found[1]) * (20 if found[2] else 1) if found else []


def experiment_of(given):
    """Returns the experiment of `--config` with its other parts; None for files, and for parts of a user."""
    path = given.get("config") or "digits_mlp"
    if PLACEHOLDER.fullmatch(path) or path.endswith(".py") or "import" in given:
        return None
    names = {f"{part}.name": given[part] for part in config.PARTS if given.get(part)}
    experiment = configs.get_config(path)
    is_complete = not any(map(PLACEHOLDER.fullmatch, names.values()))
    return config.override(experiment, names) if is_complete else experiment


def check_flag(flag, value, known, experiment):
    """Raises ValueError or `flags.Error` if a command has no such flag, or not with that value."""
    if flag == "help":
        return
    if flag.startswith("config.") and "config" in known:
        if experiment and not PLACEHOLDER.fullmatch(flag.removeprefix("config.")):
            config.check_field(experiment, flag.removeprefix("config."))
        return
    name = flag if flag in known else flag.removeprefix("no")
    if name not in known:
        raise ValueError("no such flag")
    if flag == "tune" and experiment:
        check_tuned(experiment, value.partition("=")[0], known)
    elif name not in (*config.PARTS, "config") and value and not PLACEHOLDER.fullmatch(value):
        known[name].parser.parse(value)


def check_tuned(experiment, field, known):
    part, _, option = field.partition(".")
    if part in config.PARTS and option != "name":  # of any entry: a grid swaps losses and interactions
        kind = config.PARTS[part]
        if not any(option in kind.fields_of(entry) for entry in kind.names()):
            raise ValueError(f"{field}: no such field")
    else:
        config.check_field(experiment, field)


@pytest.mark.parametrize(("where", "text"), texts_with_commands(), ids=[w for w, _ in texts_with_commands()])
def test_commands_exist_with_their_flags(where, text, flags_by_command):
    wrong = [
        f"rank4class {name} {shlex.join(arguments)}: {problem}"
        for name, arguments in commands_of(text)
        for problem in problems(name, arguments, flags_by_command)
    ]
    assert not wrong, f"{where}:\n" + "\n".join(wrong)


def test_wrong_commands_are_found(flags_by_command):
    for command, problem in (
        ("rank4class train --workdir=x \\\n  --config=digits_mlp --confg=x", "--confg=x: no such flag"),
        ("`rank4class train --config=digits_mpl ...`", "neither a file nor a packaged config"),
        ("  $ rank4class train --config=digits_mlp --config.epoch=3 ...", "Did you mean 'epochs'"),
        ("rank4class train --config=digits_mlp", "--workdir: missing"),
        ("python -m rank4class.scripts.export --format=tflite ...", "value should be one of <saved_model"),
        ("rank4class sweep --config=digits_mlp --tune=loss.kk=1,2 ...", "loss.kk: no such field"),
    ):
        [(name, arguments)] = commands_of(command)
        assert problem in " ".join(problems(name, arguments, flags_by_command))


def test_generated_pages_are_those_of_the_code():
    for name, text in reference.render().items():
        assert (DOCS / name).read_text() == text, f"Run rank4class render_docs: {name} is out of date."


def public_names(module):
    """Returns the names that a package exports, its modules left out: name -> value."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }


REFERENCE = {losses: "losses", metrics: "metrics", models: "models", sorters: "sorters", data: "data"}
REFERENCE[models.encoders] = REFERENCE[models.checkpoints] = "models"
SHOWN = re.compile(r"^::: rank4class\.([\w.]+)", re.MULTILINE)


@pytest.mark.parametrize("module", REFERENCE, ids=lambda module: module.__name__)
def test_every_public_name_is_documented(module):
    shown = {path for page in (DOCS / "reference").glob("*.md") for path in SHOWN.findall(page.read_text())}
    page = (DOCS / "reference" / f"{REFERENCE[module]}.md").read_text()
    for name, value in public_names(module).items():
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{module.__name__}.{name} has no docstring"
            if module is losses and name in public_names(metrics):
                assert f"losses.metrics.{name}" in shown
            else:
                path = f"{module.__name__.removeprefix('rank4class.')}.{name}"
                assert path in shown, f"Add ::: rank4class.{path} to a page of docs/reference."
        else:
            assert re.search(rf"`[\w.]*{name}`", page), f"Describe {name} in {REFERENCE[module]}.md."


@pytest.mark.parametrize("part", ["DATASETS", "SORTERS"])
def test_every_dataset_and_sorter_is_documented(part):
    known = {"DATASETS": DATASETS, "SORTERS": sorters.SORTERS}[part]
    pages = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    names = [name for name in known if known.module_of_user(name) is None]
    missing = [name for name in names if not re.search(rf"^::: .*\.{known[name].__name__}$", pages, re.M)]
    assert not missing, f"Add {', '.join(missing)} to a page of docs/reference."


def hook(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "research" / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_load_nothing_from_the_network():
    for html, addresses in (
        ('<script src="https://a.b/c.js"></script>', ["https://a.b/c.js"]),
        ('<link rel="stylesheet" href="//a.b/c.css">', ["//a.b/c.css"]),
        ("<img alt=x src=http://a.b/c.png>", ["http://a.b/c.png"]),
        ('<a href="https://a.b">a</a> <script src="../c.js"></script> https://d.e', []),
    ):
        assert hook("offline").addresses(html) == addresses


@pytest.mark.nightly
def test_the_site_builds(tmp_path):
    mkdocs = ROOT / ".venv-docs" / "bin" / "mkdocs"
    if not mkdocs.exists():
        pytest.skip("no environment of the documentation: make docs")
    command = [mkdocs, "build", "--strict", "--site-dir", tmp_path / "site"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    offline = hook("offline")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(list(DOCS.rglob("*.md")))  # and 404.html
    assert "make docs" not in (tmp_path / "site" / "results" / "index.html").read_text()
    assert not [address for page in pages for address in offline.addresses(page.read_text())]
    page = (tmp_path / "site" / "reference" / "losses" / "index.html").read_text()
    assert page.count('<span class="gp">') == page.count("&gt;&gt;&gt; ") > 50  # doctests are highlighted


def rows_of(page, heading):
    """Returns the cells of the table below a heading, of each the names in code."""
    section = page.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:-1]] for line in lines[2:]]


def concrete(module, base):
    return {
        name
        for name, c in vars(module).items()
        if inspect.isclass(c) and issubclass(c, base) and not name.startswith("_")
    }


def test_names_beside_those_of_tf_ranking_exist():
    theirs = compat.import_tensorflow_ranking().keras
    page = DOCS / "guides" / "from_tf_ranking.md"
    table = rows_of(page, "Losses")
    assert {name for [name], *_ in table} == concrete(theirs.losses, tf.keras.losses.Loss)
    assert {key for _, keys, *_ in table for key in keys} == {*theirs.losses.RankingLossKey.all_keys()}
    for [their_name], keys, [ours], [name] in table:
        assert losses.LOSSES[name] is getattr(losses, ours)
        assert [type(theirs.losses.get(key)).__name__ for key in keys] == [their_name] * len(keys)
    table = rows_of(page, "Metrics")
    assert {name for [name], *_ in table} == concrete(theirs.metrics, tf.keras.metrics.Metric)
    known = {key for name, key in vars(theirs.metrics.RankingMetricKey).items() if name.isupper()}
    assert {key for _, keys, *_ in table for key in keys} == known
    for _, _, ours, names in table:
        assert [type(metrics.get_metric(name)).__name__ for name in names] == ours * len(names)


def test_the_navigation_lists_every_page():
    listed = re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    committed = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert sorted(listed) == sorted(committed)


@pytest.mark.parametrize("page", [*PAGES, CHANGES], ids=relative)
def test_relative_links_lead_to_a_file(page):
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_versions_agree():
    patterns = {
        "pyproject.toml": r'^version = "(.*)"$',
        "__init__.py": r'^__version__ = "(.*)"$',
        "CITATION.cff": r"^version: (.*)$",
        "MODULE.bazel": r'^module\(.* version = "(.*)"\)$',
    }
    texts = {name: (ROOT / name).read_text() for name in patterns}
    versions = {name: re.search(patterns[name], text, re.MULTILINE)[1] for name, text in texts.items()}
    assert len(set(versions.values())) == 1, versions


def job_files():
    """Returns system -> job file, of the guide on distributed training."""
    text = (DOCS / "guides" / "distributed.md").read_text()
    found = re.findall(r'^=== "(\w+)"\n\n    ```\w+\n(.*?)^    ```', text, re.DOTALL | re.MULTILINE)
    return {system: textwrap.dedent(content) for system, content in found}


@pytest.mark.parametrize(("code", "restarts"), [(0, None), (1, None), (75, None), (75, 19), (75, 20)])
def test_the_job_of_slurm_is_started_again_on_one_exit_code(tmp_path, code, restarts):
    for name, action in {"srun": f"exit {code}", "scontrol": f'echo "$@" > {tmp_path}/requeued'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{action}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    environment |= {} if restarts is None else {"SLURM_RESTART_COUNT": str(restarts)}
    assert subprocess.run(["bash", "-c", job_files()["Slurm"]], env=environment).returncode == code
    requeued = tmp_path / "requeued"
    assert (requeued.read_text() if requeued.exists() else "") == (
        "requeue 7\n" if code == 75 and restarts != 20 else ""
    )


def test_jobs_in_yaml_start_again_on_one_exit_code():
    files = job_files()
    [job] = yaml.safe_load(files["Kubernetes"])["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    [rule] = spec["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]) == ("FailJob", {"operator": "NotIn", "values": [75, 137]})
    [container] = spec["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "JOB_COMPLETIONS", "value": str(spec["completions"])}]
    sky = yaml.safe_load(files["SkyPilot"])
    assert sky["resources"]["job_recovery"]["recover_on_exit_codes"] == [75]
    # All start the same command.
    commands = [container["args"], sky["run"].replace("\\\n", "").split()[1:]]
    assert commands[0] == commands[1]
    assert " ".join(commands[0]) in " ".join(files["Slurm"].replace("\\\n", "").split())
