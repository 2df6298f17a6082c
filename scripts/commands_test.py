"""The commands as users run them, and one-line errors for wrong input."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import scipy.special

from rank4class.pipelines import tpu_test
from rank4class.pipelines.evaluation import unknown_inputs

DIGITS = "--config=digits_mlp"
QUICK = (DIGITS, "--config.epochs=1", "--config.encoder.hidden=(16,)")


@pytest.fixture(scope="module")
def two_runs(output_of, tmp_path_factory):
    """Trains and evaluates two runs on the digits; returns their folders, with the printed texts."""
    root = tmp_path_factory.mktemp("two")
    paths = {"softmax": root / "a", "approx_ndcg": root / "b"}
    for loss, path in paths.items():
        trained = output_of("train", *QUICK, f"--config.loss.name={loss}", f"--workdir={path}")
        (path / "trained").write_text(trained)
        flags = (f"--workdir={path}", f"--output={path / 'test'}", "--classes", "--worst=3")
        (path / "evaluated").write_text(output_of("evaluate", *flags))
    return tuple(paths.values())


def line_of(text, start):
    return next(line.split() for line in text.splitlines() if line.startswith(start))


def read_json(path):
    return json.loads(path.read_text())


def test_train_then_evaluate(output_of, two_runs):
    path, _ = two_runs
    trained, evaluated = ((path / name).read_text() for name in ("trained", "evaluated"))
    assert "\nstep 17 of 17, epoch 1 of 1, " in trained
    assert "TensorBoard: tensorboard --logdir" in trained
    results = read_json(path / "results.json")
    low, high = results["test"]["intervals"]["ndcg@5"]
    shown = f"ndcg@5 (%) {results['test']['ndcg@5']:.2f} [{low:.2f}, {high:.2f}]"
    assert line_of(evaluated, "ndcg@5") == shown.split()
    for text in (trained, evaluated):
        assert f"temperature {read_json(path / 'calibration.json')['temperature']:.4g}" in text
    trained_on = output_of("evaluate", f"--workdir={path}", "--split=train")
    assert "train (1,078 examples)" in trained_on


def test_finished_runs_are_not_trained_again(command, error_of, two_runs):
    flags = ("train", *QUICK, f"--workdir={two_runs[0]}")
    again = command(*flags)
    assert again.returncode == 0
    assert f"{two_runs[0]} is finished already" in again.stderr.splitlines()
    line = error_of(*flags, "--config.loss.name=mse")
    assert "holds another experiment (--config.loss.name is 'softmax' there and 'mse' here). Choose" in line


def test_evaluate_writes_and_prints_its_results(two_runs):
    first, _ = two_runs
    results = read_json(first / "results.json")
    summary = read_json(first / "test" / "evaluation.json")
    assert (summary["workdir"], summary["split"]) == (str(first), "test")
    assert summary["step"] == results["best_step"]
    assert {name: summary[name] for name in results["test"]} == results["test"]
    assert summary["hashes"]["test"] == read_json(first / "data.json")["test"]
    assert sum(third["examples"] for third in summary["by_frequency"]) == summary["examples"]
    with np.load(first / "test" / "predictions.npz") as npz:
        scores = npz["scores"]
        labels = npz["labels"]
    top = scores.argmax(axis=1)

    rows = pd.read_csv(first / "test" / "classes.tsv", sep="\t").sort_values("ndcg@5 (%)", kind="stable")
    shown = (first / "evaluated").read_text()
    assert "Worst classes by ndcg@5 first" in shown
    lines = shown.split("most confused with\n")[1].splitlines()[1:11]
    assert [int(line.split()[0]) for line in lines] == rows["class"].tolist()
    temperature = read_json(first / "calibration.json")["temperature"]
    probabilities = scipy.special.softmax(np.float64(scores) / temperature, axis=1)[np.arange(360), labels]
    _, _, *lines = shown.split("Worst examples first:")[1].split("\n\nEvaluation")[0].strip().splitlines()
    worst = [f"example {i} {labels[i]} {top[i]}" for i in np.argsort(probabilities)[:3]]
    assert [" ".join(line.split()[:4]) for line in lines] == worst


@pytest.mark.usefixtures("generated_data")
@pytest.mark.nightly
def test_evaluate_many_classes_with_few_examples(output_of, tmp_path):
    base = [DIGITS, "--data=synthetic", "--config.data.num_classes=150", "--encoder=identity"]
    path = tmp_path / "run"
    output = tmp_path / "out"
    output_of("train", *base, "--config.data.num_examples=1500", f"--workdir={path}")
    evaluate = ("evaluate", f"--workdir={path}", f"--output={output}", "--classes")
    sizes = {}
    for flags in ([], ["--keep_scores"], ["--nokeep_scores"]):
        shown = output_of(*evaluate, *flags)
        assert "first of those with at least 5 examples, " in shown
        assert "brackets:\n\nnone\n" in shown
        with np.load(output / "predictions.npz") as npz:
            sizes[tuple(flags)] = {name: npz[name].shape for name in npz.files if "scores" in name}
            if not flags:
                best = npz["best_classes"]
            elif "scores" in npz.files:
                np.testing.assert_array_equal(best, np.argsort(-npz["scores"], axis=1)[:, :100])
    assert sizes == {
        (): {"best_scores": (300, 100)},
        ("--keep_scores",): {"scores": (300, 150)},
        ("--nokeep_scores",): {},
    }
    shown = output_of(*evaluate, "--nokeep_scores", "--split=train")
    thirds, worst = shown.split("Classes by thirds of their training examples:")[1].split("Worst")
    assert thirds.split("most confused with\n")[1].splitlines()[1].startswith("6 (150 classes)")
    assert "... and 130 more, see classes.tsv" in worst
    assert len((output / "classes.tsv").read_text().splitlines()) == 151


@pytest.mark.nightly
def test_evaluate_tells_unknown_inputs_from_known_ones(output_of, tmp_path):
    run = f"--workdir={tmp_path}"
    output_of("train", *QUICK, "--config.data.held_out=('2','7')", run)
    scores = {}
    for split in ("validation", "test"):
        shown = output_of("evaluate", run, f"--split={split}", f"--output={tmp_path / split}")
        with np.load(tmp_path / split / "predictions.npz") as npz:
            scores[split] = np.float64(npz["scores"])
    known = scores["validation"]
    unknown = np.delete(scores["test"], [2, 7], axis=1)
    temperature = read_json(tmp_path / "calibration.json")["temperature"]
    summary = read_json(tmp_path / "test" / "evaluation.json")["unknown_inputs"]
    assert summary == unknown_inputs.evaluate(known, unknown, temperature)
    low, high = summary["intervals"]["energy"]
    assert f"{summary['energy']:.2f}% [{low:.2f}, {high:.2f}] by energy" in shown
    assert f"telling {len(unknown)} unknown from {len(known)} known examples" in shown
    assert "unknown_inputs" not in read_json(tmp_path / "validation" / "evaluation.json")


@pytest.mark.nightly
def test_evaluate_and_compare_prediction_sets(output_of, error_of, tmp_path):
    run = f"--workdir={tmp_path}"
    output = tmp_path / "test"
    metrics = "--config.metrics=top1_error,ndcg@5,set_size@80"
    trained = output_of("train", *QUICK, "--sets=threshold", metrics, run)
    evaluated = output_of("evaluate", run, "--coverage=0.8", f"--output={output}")
    summary = read_json(output / "evaluation.json")
    sets = summary["sets"]
    assert sets == read_json(tmp_path / "results.json")["test"]["sets"]
    assert f"\nPrediction sets (threshold) for 90%: coverage {sets['set_coverage@90']:.2f}% [" in trained
    low, high = sets["intervals"]["set_coverage@80"]
    shown = f"for 80%: coverage {sets['set_coverage@80']:.2f}% [{low:.2f}, {high:.2f}], mean size"
    assert f"Prediction sets (threshold) {shown} {sets['set_size@80']:.2f} [" in evaluated
    compared = output_of("compare", run, run, f"--output={tmp_path}/compared")
    assert line_of(compared, "set_size@80")[1:3] == [f"{sets['set_size@80']:.2f}"] * 2
    for coverage, message in {
        "1.2": "coverage=1.2: not in (0, 1)",
        "0.855": "coverage=0.855: not a whole percent. Choose 0.85.",
        "0.999": "coverage=0.999: needs 999 calibration examples, and there are 180.",
    }.items():
        assert message in error_of("evaluate", run, f"--coverage={coverage}")
    few = f"--workdir={tmp_path / 'few'}"  # the training only warns of it
    output_of("train", *QUICK, "--sets=threshold", "--config.sets.fraction=0.01", few)
    assert "Prediction sets" not in output_of("evaluate", few)


def test_predict_lists_the_inputs_that_it_skips(two_runs, command, tmp_path):
    count = 21
    images = np.zeros([count + 2, 8, 8, 1], np.float32)
    images[2:] = np.nan
    np.save(tmp_path / "images.npy", images)
    flags = (f"--workdir={two_runs[0]}", f"--input={tmp_path}/images.npy", "--on_invalid_row=skip")
    places = [f"  {tmp_path}/images.npy[{i}]" for i in range(2, count + 2)]
    lines = [f"{place}: a number is not finite. Correct it." for place in places]
    printed = command("predict", *flags)
    assert printed.stderr.splitlines()[-count - 1 :] == [f"{count} skipped:", *lines]
    written = command("predict", *flags, f"--output={tmp_path}/p.csv", "--wide")
    rest = tmp_path / "p.csv.skipped.txt"
    assert written.stderr.splitlines()[-21:] == [f"21 skipped, all of them in {rest}:", *lines[:20]]
    assert rest.read_text().splitlines() == [line.strip() for line in lines]
    assert (tmp_path / "p.csv").read_text().startswith("input,0,1,2,3,4,5,6,7,8,9\n")


def test_compare(output_of, two_runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compared = output_of("compare", *(f"--workdir={path}" for path in (*two_runs, two_runs[0])))
    other, same = compared.split(f"A: {two_runs[0]}\n")[1:]
    assert other.startswith(f"B: {two_runs[1]}\n360 examples\n")
    first, second = (read_json(path / "test" / "evaluation.json")["top1_error"] for path in two_runs)
    assert line_of(other, "top1_error")[2:5] == [f"{first:.2f}", f"{second:.2f}", f"{second - first:+.2f}"]
    assert re.search("top1_error .*(A is better|B is better|may be chance)", other)
    assert same.count("no difference") == 3
    assert same.count("0.00  [-0.77, +0.77]") == 3
    names = [path.name for path in two_runs]
    report = pathlib.Path("runs", "compare", "-".join([*names, names[0]]), "comparison.html")
    assert compared.endswith(f"\nReport: {report}\n")
    assert report.read_text().count("0.00  [-0.77, +0.77]") == 3


@pytest.fixture(scope="module")
def small_commands(output_of, two_runs, tmp_path_factory, generated_data):
    """Runs the other commands on the smallest problems; returns the root folder and name -> output."""
    root = tmp_path_factory.mktemp("small")
    vectors = (DIGITS, "--data=synthetic", "--config.data.num_classes=3", "--config.data.num_examples=60")
    small = (*vectors, "--encoder=identity", "--config.metrics=ndcg@5", "--config.steps=2")
    cells = ("--losses=mse,softmax", "--interactions=dot", "--seed=0", "--baseline=mse,dot", "--margin=7.5")
    np.save(root / "images.npy", np.zeros([3, 8, 8, 1], np.float32))
    commands = {
        "sweep": (*small, *cells, f"--workdir={root / 'sweep'}"),
        "describe_data": (*vectors, f"--output={root / 'data'}"),
        "check_labels": (*vectors, "--encoder=identity", f"--output={root / 'labels'}"),
        "predict": (f"--workdir={two_runs[0]}", f"--input={root / 'images.npy'}", "--top_k=2"),
        "export": (f"--workdir={two_runs[0]}", f"--output={root / 'model' / '1'}"),
    }
    return root, {name: output_of(name, *arguments) for name, arguments in commands.items()}


def test_every_other_command_runs_on_a_small_problem(small_commands):
    root, outputs = small_commands
    assert "[  2/2] softmax-dot-seed0: test ndcg@5" in outputs["sweep"]
    report = " ".join((root / "sweep" / "report.md").read_text().split())
    assert "| mse | dot |" in report
    for text in (report, " ".join(outputs["sweep"].split())):
        assert "Differences from mse, dot, paired over examples." in text
        assert "equivalent if a difference of 7.5 percentage points is ruled out" in text
    assert read_json(root / "sweep" / "grid.json")["baseline"]["loss"] == "mse"
    assert f"Report: {root / 'data' / 'data.html'}" in outputs["describe_data"]
    assert "% [" in outputs["check_labels"]
    assert f"Report: {root / 'labels' / 'labels.html'}" in outputs["check_labels"]
    assert (root / "labels" / "labels.csv").read_text().startswith("\ufeffexample,input,label,suggested")
    page = (root / "sweep" / "report.html").read_text()
    assert '<td style="text-align: left;">mse</td>' in page
    assert (page.count("<img"), page.count('src="data:image/png;base64,')) == (2, 2)
    header, *lines = outputs["predict"].splitlines()
    assert header.startswith("input\tclass_1\tscore_1")
    assert [line.split("\t")[0] for line in lines] == [f"{root / 'images.npy'}[{i}]" for i in range(3)]
    card = root / "model" / "1" / "README.md"
    lines = ("Exporting the model of step 17", f"SavedModel: {card.parent}", f"How to use it: {card}")
    assert outputs["export"] == "".join(f"{line}\n" for line in lines)
    assert (card.parent / "saved_model.pb").exists()
    assert 'print(model.signatures["classify"](image=' in card.read_text()


def terminated(process, is_ready):
    """Sends SIGTERM to a process once it is ready, and returns its output and errors."""
    try:
        while not is_ready():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        return process.communicate(timeout=60)
    finally:
        process.kill()


@pytest.mark.nightly
def test_sigterm_leaves_no_part_of_a_file(opened, two_runs, tmp_path):
    np.save(tmp_path / "images.npy", np.zeros([100_000, 8, 8, 1], np.float32))
    (tmp_path / "out").mkdir()
    flags = (f"--workdir={two_runs[0]}", f"--input={tmp_path / 'images.npy'}", "--batch_size=1")
    process = opened("predict", *flags, f"--output={tmp_path / 'out' / 'predictions.tsv'}")
    _, errors = terminated(process, lambda: os.listdir(tmp_path / "out"))
    assert process.returncode == 128 + signal.SIGTERM
    assert errors.splitlines()[-1] == "Interrupted."
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.nightly
def test_serve_until_sigterm_and_at_a_port_that_is_taken(opened, error_of, small_commands):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        model = f"--model={small_commands[0] / 'model'}"
        assert "[Errno 98] Address already in use" in error_of("serve", model, f"--port={port}")
    process = opened("serve", model, f"--port={port}")
    with socket.socket() as client:
        printed, _ = terminated(process, lambda: client.connect_ex(("127.0.0.1", port)) == 0)
    assert (process.returncode, printed) == (0, f"http://127.0.0.1:{port}/v1/models/model\n")


@pytest.mark.nightly
def test_serve_ends_though_a_client_reads_no_answer(opened, small_commands):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    body = json.dumps({"inputs": np.zeros([9000, 8, 8, 1]).tolist(), "signature_name": "score"}).encode()
    head = f"POST /v1/models/model:predict HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    process = opened("serve", f"--model={small_commands[0] / 'model'}", f"--port={address[1]}")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def is_answered():
            if client.connect_ex(address):
                return False
            client.sendall(head.encode() + body)
            return client.recv(12) == b"HTTP/1.1 200"

        _, errors = terminated(process, is_answered)  # a minute passes, or the server has ended
    assert process.returncode == 0
    assert errors == "ERROR:    Cancel 0 running task(s), timeout graceful shutdown exceeded\n"


# A command in a folder with `file` and `images.npy` -> a part of its error. RUN is a finished run.
ERRORS = {
    "train --workdir=new": "--config",
    "train DIGITS --workdir=file/run": "--workdir=file/run: Not a directory. Choose a folder that",
    "train DIGITS --workdir=new somewhere": "somewhere: no argument is taken here. Set --FLAG=VALUE, or",
    "train DIGITS --workdir=new --config.loss.nme=mse": "loss.nme: loss 'softmax' has no such option. It",
    "train DIGITS --workdir=new --loss=rankmax --config.loss.k=2000000000": "loss.k=2000000000: selects all",
    "describe_data DIGITS --output=file": "file",
    "describe_data DIGITS --output=new --data=goemotions --config.data.path=no": "no/emotions.txt: no such",
    "demo --seeds=0": "--seeds=0: not a positive integer. Write",
    "predict --workdir=RUN": "--input: missing. Set --input=VALUE; --help shows all flags.",
    "predict --workdir=RUN --input=images.npy --prior=unifrom": "unifrom: no such file. Check the path.",
    "predict --workdir=RUN --input=images.npy --exclude_known": "exclude_known=True: the inputs are no",
    "export --workdir=RUN --output=file": "output=file: exists already. Choose another",
    "export --workdir=RUN --output=new --format=huggingface": "format='huggingface': the encoder 'mlp' is",
    "train DIGITS --workdir=new --encoder=vgg16": "encoder='vgg16': images of 8 x 8, below 32 x 32. Choose",
    "train DIGITS --workdir=new --config.metrics=mrr,foo": "metric='foo': unknown. There are:",
    "predict --workdir=RUN --input=file": "file: unknown format. Give an array as .npy or .npz.",
    "calibrate --workdir=RUN": "no calibration examples besides those of the training. Train with validation",
    "calibrate --workdir=RUN --sets=none": "--sets=none: fits none. Choose one of rank,",
    "evaluate --workdir=~/nowhere": os.path.expanduser("~/nowhere: no such folder."),  # bash leaves ~ here
    "calibrate --workdir=RUN --sets=lac --data.path=file": "sets='lac': unknown. There are: none, rank,",
    "evaluate --workdir=. --output=new": "not the folder of a run, as it has no config.json",
    "evaluate --workdir=RUN --data.path=file": "--data.path=file: dataset 'digits' reads no",
    "evaluate --workdir=RUN --output=file": "file",
    "evaluate --workdir=RUN --nokeep_scores": "--keep_scores: has no effect without --output. Set both.",
    "evaluate --workdir=RUN --tpu=mine": "tpu=mine: has no effect with strategy 'default'. Set",
    "evaluate --workdir=RUN --split=test --data.path=x": "--split: has no effect with --data.path, which",
}
SWEEP_ERRORS = {
    "--tune=encoder.dropout=0.1,lots": "error: tune='encoder.dropout=0.1,lots': encoder.dropout='lots': not",
    "--vary=encoder.dropout=0.1,lots": "error: vary='encoder.dropout=0.1,lots': encoder.dropout='lots': not",
    "--baseline=mse,dot": "error: baseline=mse,dot: not a cell of the grid. Choose one of these:",
    "--loss=mse": "error: --loss=mse: not in --losses. Add it there, or leave it out.",
    "--tuning_seeds=2": "error: --tuning_seeds: nothing is tuned. Add --tune, or leave it out.",
}
SWEEP = "sweep DIGITS --losses=softmax --interactions=dot --seed=0 --workdir=new"
ERRORS |= {f"{SWEEP} {flag}": message for flag, message in SWEEP_ERRORS.items()}


@pytest.mark.parametrize(("line", "message"), ERRORS.items())
def test_errors_are_one_line(error_of, two_runs, tmp_path, monkeypatch, line, message):
    line = line.replace("DIGITS", DIGITS).replace("RUN", str(two_runs[0]))
    monkeypatch.chdir(tmp_path)
    np.save("images.npy", np.zeros([3, 8, 8, 1], np.float32))
    (tmp_path / "file").touch()
    assert message in error_of(*line.split())
    assert not (tmp_path / "new").exists()


@pytest.fixture
def goemotions_flags(tiny_goemotions, tiny_bert):
    """Returns the flags of a config on small files."""
    files = (f"--config.data.path={tiny_goemotions}", f"--config.encoder.path={tiny_bert}")
    return ("--config=goemotions_bert", *files, "--config.data.max_length=8")


@pytest.mark.nightly
def test_a_diverging_training_is_an_error_of_one_line(error_of, tmp_path):
    diverging = ("--config.loss.name=mse", "--config.optimizer.learning_rate=1e30")
    assert "loss='mse': " in error_of("train", DIGITS, f"--workdir={tmp_path / 'run'}", *diverging)


@pytest.mark.nightly
def test_demo(tmp_path):
    command = [sys.executable, "-m", "rank4class", "demo", f"--workdir={tmp_path}", "--seeds=1"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _, digit, cross = re.findall(r"^(?:input|.*new\.csv:\d)\t.*$", finished, re.MULTILINE)
    assert digit.split("\t")[1:6] == ["digit", "0", "0.15822", "2", "1;3"]
    assert cross.split("\t")[1:3] == ["cross", "1"]
    assert float(cross.split("\t")[-1]) == pytest.approx(0.999, abs=1e-3)
    assert "[  2/2] softmax-dot-1-seed0: test top1_error" in finished
    assert "Differences from softmax, dot, 0, paired" in " ".join(finished.split())
    assert f"serve {tmp_path}/digits" in finished
    assert (tmp_path / "digits" / "report.html").exists()
    for name in ("report.md", "differences.png", "curves.png"):
        assert (tmp_path / "long_tail" / name).stat().st_size > 500


@pytest.mark.nightly
def test_sweep_on_a_frozen_encoder(output_of, tmp_path, goemotions_flags):
    path = tmp_path / "grid"
    cache = tmp_path / "cache"
    frozen = ("--config.encoder.frozen", "--config.batch_size=8", "--config.steps=15", "--interaction=lc_mlp")
    cells = ("--losses=rescaled_mse", "--interactions=dot,lc_mlp", "--seed=0", "--seed=1")
    tuning = ("--tune=optimizer.learning_rate=0.01,0.001", "--tuning_seeds=1")
    folders = (f"--workdir={path}", f"--cache={cache}")
    flags = (*goemotions_flags, *frozen, "--config.interaction.units=4", *cells, *tuning, *folders)
    assert "[  4/4] rescaled_mse-lc_mlp-seed1" in output_of("sweep", *flags)
    assert "frozen" in (path / "report.md").read_text()
    assert len(list(cache.glob("features-*"))) == 1
    assert not list(path.rglob("features-*"))
    (cache / "mine").touch()
    assert "files, " in output_of("cache", f"--cache={cache}")
    assert "Removed: " in output_of("cache", f"--cache={cache}", "--clear")
    assert [each.name for each in cache.iterdir()] == ["mine"]


@pytest.mark.nightly
def test_describe_data(output_of, tmp_path, goemotions_flags):
    path = tmp_path / "described"
    words = " ".join(output_of("describe_data", *goemotions_flags, f"--output={path}").split())
    for title in ("nearest class name", "nearest training example"):
        assert re.search(rf"{title} by the encoder's cosine validation [\d.]+ ", words)
    for name in ("data.md", "classes.png"):
        assert (path / name).stat().st_size > 500
    assert re.search(r"\| tokens +\| train +\|", (path / "data.md").read_text())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "dataset", "metric"),
    [("letor_linear", "letor", "ndcg@10"), ("movielens_100k", "movielens", "map@10")],
)
def test_train_and_evaluate_queries_and_users(output_of, tmp_path, name, dataset, metric):
    path = tpu_test.WRITERS[dataset](tmp_path)
    run = f"--workdir={tmp_path / 'run'}"
    flags = (f"--config={name}", f"--config.data.path={path}", "--config.epochs=2", "--config.batch_size=8")
    trained = output_of("train", *flags, "--loss=softmax", run)
    evaluated = output_of("evaluate", run, f"--output={tmp_path / 'test'}")
    [line] = (line for line in evaluated.splitlines() if line.startswith(metric))
    assert line.split("  ")[-2] in trained  # the same interval
    assert f"{metric} (%)" in output_of("compare", run, run, f"--output={tmp_path}/compared")
