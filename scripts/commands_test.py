"""The commands as users run them, and one-line errors for wrong input."""

import json
import os
import re
import signal
import time

import numpy as np
import pytest
import scipy.special

from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.reporting import tables

DIGITS = "--config=digits_mlp"
QUICK = ("--config.epochs=1", "--config.encoder.hidden=(16,)")


@pytest.fixture(scope="module")
def two_runs(command, tmp_path_factory):
    """Trains and evaluates two runs on the digits; returns their folders, with the printed texts."""
    root = tmp_path_factory.mktemp("two")
    paths = {"softmax": root / "a", "approx_ndcg": root / "b"}
    for loss, path in paths.items():
        trained = command("train", DIGITS, *QUICK, f"--config.loss.name={loss}", f"--workdir={path}")
        assert trained.returncode == 0, trained.stderr
        (path / "trained").write_text(trained.stdout)
        evaluated = command(
            "evaluate", f"--workdir={path}", f"--output={path / 'test'}", "--classes", "--worst=3"
        )
        assert evaluated.returncode == 0, evaluated.stderr
        (path / "stdout").write_text(evaluated.stdout)
    return tuple(paths.values())


def test_train_then_evaluate(two_runs):
    path, _ = two_runs
    trained = (path / "trained").read_text()
    assert "\nstep 17 of 17 (epoch 1 of 1), " in trained
    assert "TensorBoard: tensorboard --logdir" in trained
    results = json.loads((path / "results.json").read_text())
    line = next(line for line in (path / "stdout").read_text().splitlines() if line.startswith("ndcg@5"))
    low, high = results["test"]["intervals"]["ndcg@5"]
    assert line.split() == f"ndcg@5 (%) {results['test']['ndcg@5']:.2f} [{low:.2f}, {high:.2f}]".split()


def test_the_calibration_is_printed_and_stored(command, two_runs, tmp_path):
    path, _ = two_runs
    stored = json.loads((path / "calibration.json").read_text())
    results = json.loads((path / "results.json").read_text())

    def row(split):
        after = results[split]["calibration"]["after"]
        return "{:.3f}  [{:.3f}, {:.3f}]".format(after["nll"], *after["intervals"]["nll"])

    trained, evaluated = ((path / name).read_text() for name in ("trained", "stdout"))
    for text in (trained, evaluated):
        assert f"temperature {stored['temperature']:.4g}" in text
    assert " ".join(("nll after", row("validation"), row("test"))).split() == line_of(trained, "nll after")
    assert " ".join(("nll after", row("test"))).split() == line_of(evaluated, "nll after")
    shown = command("evaluate", f"--workdir={path}", "--checkpoint=last")
    assert "ndcg@5" in shown.stdout, shown.stderr
    assert "temperature" not in shown.stdout


def line_of(text, start):
    return next(line.split() for line in text.splitlines() if line.startswith(start))


def test_finished_runs_are_not_trained_again(command, error_of, two_runs):
    flags = ("train", DIGITS, *QUICK, f"--workdir={two_runs[0]}")
    again = command(*flags)
    assert again.returncode == 0
    assert f"{two_runs[0]} is finished already" in again.stderr.splitlines()
    line = error_of(*flags, "--config.loss.name=mse")
    assert "holds another experiment (--config.loss.name is 'softmax' there and 'mse' here). Choose" in line


def test_evaluate_on_the_training_split(command, two_runs):
    on_train = command("evaluate", f"--workdir={two_runs[0]}", "--split=train")
    assert "train (1,078 examples)" in on_train.stdout, on_train.stderr


def test_evaluate_writes_its_results(two_runs):
    first, _ = two_runs
    results = json.loads((first / "results.json").read_text())
    summary = json.loads((first / "test" / "evaluation.json").read_text())
    assert (summary["workdir"], summary["checkpoint"], summary["split"]) == (str(first), "best", "test")
    assert summary["step"] == results["best_step"]
    assert {name: summary[name] for name in results["test"]} == results["test"]
    assert summary["hashes"]["test"] == json.loads((first / "data.json").read_text())["test"]
    with np.load(first / "test" / "predictions.npz") as npz:
        arrays = dict(npz)
    assert arrays["scores"].shape == (360, 10)
    top = arrays["scores"].argmax(axis=1)
    assert summary["top1_error"] == pytest.approx(100 * np.mean(top != arrays["labels"]))
    assert arrays["origins"][7] == "example 7"
    assert arrays["metrics"].tolist() == ["top1_error", "top5_error", "ndcg@5"]
    np.testing.assert_allclose(100 * arrays["values"].mean(axis=0)[2], summary["ndcg@5"], rtol=1e-5)
    rows = [line.split("\t") for line in (first / "test" / "classes.tsv").read_text().splitlines()]
    precision = rows[0].index("precision (%)")
    for row in rows[1:]:
        labels = arrays["labels"][top == int(row[0])]
        assert row[precision] == (f"{100 * np.mean(labels == int(row[0])):.4f}" if len(labels) else "-")
    shown = (first / "stdout").read_text()
    assert "Worst classes by ndcg@5 first" in shown
    lines = shown.split("most confused with\n")[1].splitlines()[1:11]
    worst_first = sorted(rows[1:], key=lambda row: float(row[rows[0].index("ndcg@5 (%)")]))
    assert [line.split()[0] for line in lines] == [row[0] for row in worst_first]


def test_evaluate_prints_the_worst_examples(two_runs):
    first, _ = two_runs
    temperature = json.loads((first / "calibration.json").read_text())["temperature"]
    with np.load(first / "test" / "predictions.npz") as npz:
        scores, labels, origins = (npz[name] for name in ("scores", "labels", "origins"))
    probabilities = scipy.special.softmax(np.float64(scores) / temperature, axis=1)
    of_class = probabilities[np.arange(360), labels]
    text = (first / "stdout").read_text().split("Worst examples first:")[1].split("\n\nEvaluation")[0]
    header, _, *lines = text.strip().splitlines()
    assert " ".join(header.split()) == "example class predicted rank probability predicted probability"
    assert len(lines) == 3
    for line, i in zip(lines, np.argsort(of_class), strict=False):
        rank = 1 + np.sum(scores[i] > scores[i, labels[i]])
        shown = f"{origins[i]} {labels[i]} {scores[i].argmax()} {rank}"
        assert " ".join(line.split()) == f"{shown} {of_class[i]:.4f} {probabilities[i].max():.4f}"


@pytest.mark.nightly
def test_evaluate_the_last_checkpoint_of_many_classes_without_their_scores(command, tmp_path):
    config = tmp_path / "many.py"
    config.write_text(
        "from rank4class.pipelines import config\n"
        "def get_config():\n"
        "    return config.Experiment(\n"
        "        data=config.Data(name='synthetic', num_classes=50, num_examples=500),\n"
        "        encoder=config.Encoder(name='identity'),\n"
        "        epochs=2.0,\n"
        "    )\n"
    )
    path, output = tmp_path / "run", tmp_path / "out"
    assert command("train", f"--config={config}", f"--workdir={path}").returncode == 0
    flags = [f"--output={output}", "--checkpoint=last", "--classes", "--nokeep_scores", "--split=train"]
    evaluated = command("evaluate", f"--workdir={path}", *flags)
    assert evaluated.returncode == 0, evaluated.stderr
    thirds, worst = evaluated.stdout.split("Classes by thirds of their training examples:")[1].split("Worst")
    assert thirds.split("most confused with\n")[1].splitlines()[1].startswith("6 (50 classes)")
    assert worst.startswith(" classes by ndcg@5 first of those with at least 5 examples, with 95% intervals")
    assert "... and 30 more, see classes.tsv" in worst
    assert len((output / "classes.tsv").read_text().splitlines()) == 51
    summary = json.loads((output / "evaluation.json").read_text())
    assert summary["step"] == json.loads((path / "results.json").read_text())["steps"]
    with np.load(output / "predictions.npz") as npz:
        assert "scores" not in npz.files
        assert len(npz["values"]) == summary["examples"]


@pytest.mark.nightly
def test_evaluate_many_classes_with_few_examples(command, tmp_path):
    base = ["--config=digits_mlp", "--data=synthetic", "--config.data.num_classes=150", "--encoder=identity"]
    path, output = tmp_path / "run", tmp_path / "out"
    trained = command("train", *base, "--config.data.num_examples=900", f"--workdir={path}")
    assert trained.returncode == 0, trained.stderr
    sizes = {}
    for flags in ([], ["--keep_scores"], ["--nokeep_scores"]):
        evaluated = command("evaluate", f"--workdir={path}", f"--output={output}", "--classes", *flags)
        assert evaluated.returncode == 0, evaluated.stderr
        assert "first of those with at least 5 examples, " in evaluated.stdout
        assert "brackets:\n\nnone\n" in evaluated.stdout
        with np.load(output / "predictions.npz") as npz:
            sizes[tuple(flags)] = {name: npz[name].shape for name in npz.files if "scores" in name}
            if not flags:
                best = npz["best_classes"]
            elif "scores" in npz.files:
                np.testing.assert_array_equal(best, np.argsort(-npz["scores"], axis=1)[:, :100])
    assert sizes == {
        (): {"best_scores": (180, 100)},
        ("--keep_scores",): {"scores": (180, 150)},
        ("--nokeep_scores",): {},
    }


@pytest.mark.parametrize("count", [3, 21])
def test_predict_lists_the_inputs_that_it_skips(two_runs, command, tmp_path, count):
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
    if count == 3:
        assert written.stderr.splitlines()[-4:] == ["3 skipped:", *lines]
        assert not rest.exists()
    else:
        assert written.stderr.splitlines()[-21:] == [f"21 skipped, all of them in {rest}:", *lines[:20]]
        assert rest.read_text().splitlines() == [line.strip() for line in lines]
    header = (tmp_path / "p.csv").read_text().splitlines()[0]
    assert header == "input,0,1,2,3,4,5,6,7,8,9"


def test_compare(command, two_runs):
    paths = [path / "test" / "predictions.npz" for path in two_runs]
    compared = command("compare", *(f"--scores={path}" for path in (*paths, paths[0])))
    assert compared.returncode == 0, compared.stderr
    other, same = compared.stdout.split(f"A: {paths[0]}\n")[1:]
    assert other.startswith(f"B: {paths[1]}\n360 examples\n")
    summaries = [json.loads((path / "test" / "evaluation.json").read_text()) for path in two_runs]
    line = next(line for line in other.splitlines() if line.startswith("top1_error"))
    first, second = (summary["top1_error"] for summary in summaries)
    assert line.split()[2:5] == [f"{first:.2f}", f"{second:.2f}", f"{second - first:+.2f}"]
    assert any(conclusion in line for conclusion in ("A is better", "B is better", "may be chance"))
    assert same.count("no difference") == 3
    assert same.count("0.00  [-0.77, +0.77]") == 3


def test_compare_errors_are_one_line(two_runs, tmp_path, error_of):
    first = two_runs[0] / "test" / "predictions.npz"
    assert "--scores" in error_of("compare")
    assert "Repeat --scores for each run." in error_of("compare", f"--scores={first}")
    for content, message in ((None, "no such file"), (first.read_bytes()[:-50], "damaged")):
        if content:
            (tmp_path / "predictions.npz").write_bytes(content)
        line = error_of("compare", f"--scores={first}", f"--scores={tmp_path / 'predictions.npz'}")
        assert f"{tmp_path / 'predictions.npz'}" in line
        assert message in line
    with np.load(first) as npz:
        np.savez(tmp_path / "predictions.npz", **{**npz, "metrics": np.array(["mrr", "ndcg", "map"])})
    line = error_of("compare", f"--scores={first}", f"--scores={tmp_path / 'predictions.npz'}")
    assert "no metric in common" in line


@pytest.fixture(scope="module")
def small_commands(command, two_runs, tmp_path_factory):
    """Runs the other commands on the smallest problems; returns the root folder and name -> output."""
    root = tmp_path_factory.mktemp("small")
    vectors = ("--data=synthetic", "--config.data.num_classes=3", "--config.data.num_examples=60")
    small = (DIGITS, *vectors, "--encoder=identity", "--config.metrics=ndcg@5", "--config.steps=2")
    cells = ("--losses=mse,softmax", "--interactions=dot", "--seed=0", "--baseline=mse,dot", "--margin=7.5")
    sorter = ("--sizes=4", "--epochs=0.001", "--batch_size=50")
    commands = {
        "sweep": (*small, *cells, f"--workdir={root / 'sweep'}"),
        "describe_data": (DIGITS, *vectors, f"--output={root / 'data'}"),
        "train_sorter": (*sorter, f"--workdir={root / 'sorter'}"),
        "predict": (f"--workdir={two_runs[0]}", f"--input={root / 'images.npy'}", "--top_k=2"),
        "export": (f"--workdir={two_runs[0]}", f"--output={root / 'model' / '1'}"),
    }
    np.save(root / "images.npy", np.zeros([3, 8, 8, 1], np.float32))
    outputs = {}
    for name, arguments in commands.items():
        finished = command(name, *arguments)
        assert finished.returncode == 0, finished.stderr
        outputs[name] = finished.stdout
    return root, outputs


def test_every_command_runs_on_a_small_problem(small_commands):
    root, outputs = small_commands
    assert "[  2/2] softmax-dot-seed0: test ndcg@5" in outputs["sweep"]
    report = " ".join((root / "sweep" / "report.md").read_text().split())
    assert "| mse | dot |" in report
    for text in (report, " ".join(outputs["sweep"].split())):
        assert "Differences from mse, dot, paired over examples." in text
        assert "equivalent if a difference of 7.5 percentage points is ruled out" in text
    assert json.loads((root / "sweep" / "grid.json").read_text())["baseline"]["loss"] == "mse"
    assert f"Report with plots: {root / 'data' / 'data.md'}" in outputs["describe_data"]
    assert "l1@4" in outputs["train_sorter"]
    assert (root / "sorter" / "sorter.safetensors").stat().st_size > 100
    header, *lines = outputs["predict"].splitlines()
    assert header.startswith("input\tclass_1\tscore_1")
    assert [line.split("\t")[0] for line in lines] == [f"{root / 'images.npy'}[{i}]" for i in range(3)]
    assert (root / "model" / "1" / "saved_model.pb").exists()
    card = root / "model" / "1" / "README.md"
    lines = ("Exporting the model of step 17", f"SavedModel: {card.parent}", f"How to use it: {card}")
    assert outputs["export"] == "".join(f"{line}\n" for line in lines)
    assert 'print(model.signatures["classify"](image=' in card.read_text()


@pytest.mark.nightly
def test_sigterm_leaves_no_part_of_a_file(imported, two_runs, tmp_path):
    np.save(tmp_path / "images.npy", np.zeros([100_000, 8, 8, 1], np.float32))
    (tmp_path / "out").mkdir()
    flags = (f"--workdir={two_runs[0]}", f"--input={tmp_path / 'images.npy'}", "--batch_size=1")
    process = imported("predict", *flags, f"--output={tmp_path / 'out' / 'predictions.tsv'}")
    try:
        while not os.listdir(tmp_path / "out"):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert errors.splitlines()[-1] == "Interrupted."
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.nightly
def test_predict_and_evaluate_on_two_devices(command, two_runs, tmp_path):
    np.save(tmp_path / "images.npy", np.random.default_rng(0).random([7, 8, 8, 1], np.float32))
    run = f"--workdir={two_runs[0]}"
    for arguments in (
        ("predict", run, f"--input={tmp_path / 'images.npy'}", "--batch_size=3"),
        ("evaluate", run),
    ):
        one, two = (command(*arguments, f"--strategy={name}") for name in ("default", "mirrored"))
        assert one.returncode == two.returncode == 0, two.stderr
        assert one.stdout == two.stdout


def test_predict_and_export_refuse_wrong_input(error_of, two_runs, tmp_path):
    np.save(tmp_path / "images.npy", np.zeros([3, 8, 8, 1], np.float32))
    (tmp_path / "file").touch()
    run, images = f"--workdir={two_runs[0]}", f"--input={tmp_path / 'images.npy'}"
    for command, arguments, message in (
        ("predict", (run,), "--input: missing. Set --input=VALUE; --help shows all flags."),
        ("predict", (run, images, "--output=p.pdf"), "output=p.pdf: unknown format. Choose a file that ends"),
        ("predict", (run, images, "--top_k=11"), "top_k=11: not an integer in 1..10. Choose one."),
        ("predict", (run, images, "--exclude_known"), "exclude_known=True: the inputs are no users of the"),
        ("predict", (run, f"--input={tmp_path}/no.npy"), f"{tmp_path}/no.npy: no such file or folder."),
        ("predict", (f"--workdir={tmp_path}", images), "not the folder of a run, as it has no config.json"),
        ("export", (run, f"--output={tmp_path}"), f"output={tmp_path}: exists already. Choose another"),
        ("export", (run, f"--output={tmp_path / 'file' / '1'}"), str(tmp_path / "file" / "1")),
        (
            "export",
            (run, f"--output={tmp_path / 'new'}", "--format=huggingface"),
            "format='huggingface': the encoder 'mlp' is not a BERT or an ELECTRA. Set it to 'saved_model'.",
        ),
        (
            "export",
            (run, f"--output={tmp_path / 'new'}", "--format=huggingface", "--top_k=2"),
            "format='huggingface': exports no classes. Leave out top_k and index.",
        ),
        ("evaluate", (run, "--data.path=other.tsv"), "data.path=other.tsv: dataset 'digits' is evaluated on"),
        ("evaluate", (run, "--data.text_column=x"), "--data.text_column: has no effect without --data.path."),
        ("evaluate", (run, f"--output={tmp_path / 'file'}"), str(tmp_path / "file")),
        ("evaluate", (run, "--nokeep_scores"), "--keep_scores: has no effect without --output. Set both."),
        (
            "evaluate",
            (run, "--tpu=mine"),
            "--tpu=mine: has no effect with --strategy=default. Set --strategy",
        ),
        (
            "evaluate",
            (run, "--split=test", "--data.path=x"),
            "--split: has no effect with --data.path, which",
        ),
    ):
        assert message in error_of(command, *arguments)


@pytest.fixture
def letor_flags(tmp_path):
    """Writes small files of queries; returns the flags for them."""
    folder = tmp_path / "fold"
    folder.mkdir()
    for name, count in (("train", 12), ("vali", 5), ("test", 6)):
        rows = [f"{(i + j) % 5} qid:{i} 1:{(i + j) % 5} 2:{j}\n" for i in range(count) for j in range(4)]
        (folder / f"{name}.txt").write_text("".join(rows))
    return ["--config=letor_linear", f"--config.data.path={folder}", "--config.epochs=2"]


@pytest.fixture
def letor_cells(tmp_path):
    """Returns the flags of a grid of one cell."""
    return ["--losses=n_choose_k", "--interactions=dot", "--seed=0", f"--workdir={tmp_path / 'grid'}"]


@pytest.mark.nightly
def test_train_evaluate_and_sweep_on_queries(command, letor_flags, letor_cells, tmp_path):
    path = tmp_path / "run"
    trained = command("train", *letor_flags, f"--workdir={path}")
    assert trained.returncode == 0, trained.stderr
    evaluated = command("evaluate", f"--workdir={path}", f"--output={path / 'test'}")
    [line] = (line for line in evaluated.stdout.splitlines() if line.startswith("ndcg@10"))
    assert line.split("  ")[-2] in trained.stdout  # the same interval
    assert "Lists" in command("describe_data", *letor_flags, f"--output={tmp_path / 'data'}").stdout
    one_trial = ("--tuning_seeds=1", "--widen=0")
    swept = command("sweep", *letor_flags, *letor_cells, "--tune=encoder.weight_decay=0.01,0.1", *one_trial)
    assert "[  2/2] tuning/n_choose_k-dot-encoder.weight_decay=0.1-seed10000" in swept.stdout, swept.stderr
    assert "[  1/1] n_choose_k-dot-seed0" in swept.stdout, swept.stderr
    assert (tmp_path / "grid" / "cutoffs.png").exists()
    assert not (tmp_path / "grid" / "differences.png").exists()  # of a single cell


def test_sweep_errors_are_one_line(error_of, letor_flags, letor_cells):
    line = error_of("sweep", *letor_flags, *letor_cells, "--tune=encoder.weight_decay=0.01,lots")
    assert line.startswith(
        "error: tune='encoder.weight_decay=0.01,lots': encoder.weight_decay='lots': not a number."
    )
    line = error_of("sweep", *letor_flags, *letor_cells, "--interactions=lc_mlp")
    assert "interaction.name='lc_mlp': encoder 'items' is a whole model" in line
    line = error_of("sweep", *letor_flags, *letor_cells, "--baseline=mse,dot")
    assert "error: baseline=mse,dot: not a cell of the grid. Choose one of these: n_choose_k,dot." in line
    line = error_of("sweep", *letor_flags, *letor_cells, "--widen=2")
    assert line == "error: --widen: nothing is tuned. Add --tune, or leave it out."
    line = error_of("sweep", *letor_flags, *letor_cells, "--margin=nan")
    assert line == "error: margin=nan: not finite. Choose a number of percentage points."


def test_demo_without_a_seed(error_of):
    assert "--seeds=0: not a positive integer. Write" in error_of("demo", "--seeds=0")


@pytest.mark.nightly
def test_demo(command, tmp_path, monkeypatch):
    # The demo has no config flags.
    short = config.override(digits_mlp.get_config(), {"epochs": 1.0, "encoder.hidden": (16,)})
    monkeypatch.setattr(digits_mlp, "get_config", lambda: short)
    finished = command("demo", f"--workdir={tmp_path}", "--seeds=1")
    assert finished.returncode == 0, finished.stderr
    assert "[  9/9] approx_ndcg-concat_mlp-seed0: test top1_error" in finished.stdout
    assert "tensorboard --logdir" in finished.stdout
    for name in ("report.md", "differences.png", "curves.png"):
        assert (tmp_path / name).stat().st_size > 500


@pytest.mark.nightly
def test_sweep_on_a_frozen_encoder(command, tmp_path, tiny_goemotions, tiny_bert):
    config = tmp_path / "frozen.py"
    config.write_text(
        "from rank4class.pipelines import config\n"
        "def get_config():\n"
        "    return config.Experiment(\n"
        f"        data=config.Data(name='goemotions', path={str(tiny_goemotions)!r}, max_length=8),\n"
        f"        encoder=config.Encoder(name='bert', path={tiny_bert!r}, frozen=True),\n"
        "        batch_size=8,\n"
        "    )\n"
    )
    path = tmp_path / "grid"
    finished = command(
        "sweep",
        f"--config={config}",
        f"--workdir={path}",
        f"--cache={tmp_path / 'cache'}",
        "--losses=rescaled_mse",
        "--interactions=dot,lc_mlp",
        "--interaction=lc_mlp",
        "--config.interaction.units=4",
        "--seed=0",
        "--seed=1",
        "--tune=optimizer.learning_rate=0.01,0.001",
        "--tuning_seeds=1",
        "--widen=0",
    )
    assert finished.returncode == 0, finished.stderr
    assert "[  4/4] rescaled_mse-lc_mlp-seed1" in finished.stdout
    assert "frozen" in (path / "report.md").read_text()
    assert len(list((tmp_path / "cache").glob("features-*"))) == 1
    assert not list(path.rglob("features-*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.loss.nme=mse"], "loss.nme: loss 'softmax' has no such option. It has: temperature,"),
        (["--config.loss.name=softmx"], "loss='softmx': unknown. Did you mean 'softmax'?"),
        (["--config.epochs=many"], "--config.epochs='many': not a number. Write a number."),
        (
            ["--loss=rankmax", "--config.loss.k=2000000000"],
            "loss.k=2000000000: selects all 10 training classes",
        ),
        (["--wrkdir=x"], "--wrkdir: no such flag. Did you mean --workdir?"),
        (["somewhere"], "somewhere: no positional arguments are accepted. Set --FLAG=VALUE."),
        (["--config=nowhere.py"], "--config=nowhere.py: neither a file nor a packaged config"),
        (["--data=goemotions", "--config.data.path=nowhere"], "nowhere/emotions.txt: no such"),
        (
            ["--encoder=vgg16"],
            "VGG16 takes images of 32 x 32 x 3. Resize the images",
        ),
        pytest.param(
            ["--config.loss.name=mse", "--config.optimizer.learning_rate=1e30"],
            "loss='mse': ",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_train_errors_are_one_line(tmp_path, error_of, arguments, message):
    assert message in error_of("train", DIGITS, f"--workdir={tmp_path / 'run'}", *arguments)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("text\t28\tid", "train.tsv:41: label 28 is outside the class ids 0..2"),
        ("only text", "train.tsv:41: 1 tab-separated column, expected 3 (text, label ids, comment id)"),
    ],
)
def test_errors_of_invalid_rows_are_one_line(tmp_path, error_of, tiny_goemotions, tiny_bert, row, message):
    path = tiny_goemotions / "train.tsv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:40], row, *lines[40:]]) + "\n")
    flags = [
        "--data=goemotions",
        f"--config.data.path={tiny_goemotions}",
        f"--config.encoder.path={tiny_bert}",
    ]
    config = tmp_path / "bert.py"
    config.write_text(
        "from rank4class.pipelines import config\n"
        "def get_config():\n"
        "    return config.Experiment(encoder=config.Encoder(name='bert'))\n"
    )
    assert message in error_of("train", f"--config={config}", f"--workdir={tmp_path / 'run'}", *flags)
    assert not (tmp_path / "run").exists()


def test_evaluate_without_a_run(tmp_path, error_of):
    assert "not the folder of a run, as it has no config.json" in error_of(
        "evaluate", f"--workdir={tmp_path}"
    )
    error_of("evaluate", f"--workdir={tmp_path}", f"--output={tmp_path / 'new'}")
    assert not (tmp_path / "new").exists()


def test_required_flags(error_of):
    assert "--workdir" in error_of("train", DIGITS)
    assert "--config" in error_of("train", "--workdir=x")


@pytest.mark.nightly
def test_train_with_class_names(command, tmp_path, tiny_goemotions, tiny_bert):
    trained = command(
        "train",
        "--config=goemotions_bert",
        f"--config.data.path={tiny_goemotions}",
        f"--config.encoder.path={tiny_bert}",
        "--config.data.max_length=8",
        "--class_encoder=text",
        "--interaction=cosine",
        "--config.data.held_out=('anger',)",
        "--config.metrics=('top1_error', 'mean_rank')",
        "--config.monitor=mean_rank",
        "--config.steps=3",
        f"--workdir={tmp_path / 'run'}",
    )
    assert trained.returncode == 0, trained.stderr
    assert f"{tiny_bert}: Hugging Face BERT folder" in trained.stderr
    assert "test (4 examples)" in trained.stdout
    evaluated = command("evaluate", f"--workdir={tmp_path / 'run'}", f"--output={tmp_path / 'test'}").stdout
    assert "Baseline, nearest class name by the encoder's cosine: top1_error " in evaluated
    assert "Baseline, nearest training example by the encoder's cosine: top1_error " in evaluated
    stored = json.loads((tmp_path / "test" / "evaluation.json").read_text())["baselines"]
    assert (
        f"nearest class name by the encoder's cosine: {tables.one_line(stored['nearest class name'])}"
        in evaluated
    )
    assert "Baseline" not in command("evaluate", f"--workdir={tmp_path / 'run'}", "--nobaselines").stdout


@pytest.mark.nightly
def test_describe_data(command, tmp_path, tiny_goemotions, tiny_bert):
    goemotions = "--config=goemotions_bert"
    path = tmp_path / "described"
    flags = [goemotions, f"--config.data.path={tiny_goemotions}", f"--config.encoder.path={tiny_bert}"]
    finished = command("describe_data", *flags, "--config.data.max_length=4", f"--output={path}")
    assert finished.returncode == 0, finished.stderr
    words = " ".join(finished.stdout.split())  # without the line breaks
    assert "40 train, 10 validation, 11 test examples of 3 classes." in words
    for title in ("nearest class name", "nearest training example"):
        assert re.search(
            rf"Baseline, {title} by the encoder's cosine: validation top1_error [\d.]+%, .*; test top1", words
        )
    assert "cuts 100.00% of the training texts" in words
    assert ["test", "train", "11", "100.00", "0"] in [line.split() for line in finished.stdout.splitlines()]
    assert f"Report with plots: {path / 'data.md'}" in finished.stdout
    for name in ("data.md", "classes.png", "lengths.png"):
        assert (path / name).stat().st_size > 500


@pytest.mark.nightly
def test_train_evaluate_and_compare_on_users(command, error_of, tmp_path):
    rows = [f"{user},{(7 * user + 11 * i) % 130},4.0,9\n" for user in range(30) for i in range(20)]
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "".join(rows))
    config = "--config=movielens_100k"
    flags = [config, f"--config.data.path={tmp_path}", "--config.epochs=2", "--config.batch_size=8"]
    for loss in ("rankmax", "softmax"):
        path = tmp_path / loss
        trained = command("train", *flags, f"--config.loss.name={loss}", f"--workdir={path}")
        assert trained.returncode == 0, trained.stderr
        assert "recall@100 (%)" in trained.stdout
        evaluated = command("evaluate", f"--workdir={path}", f"--output={path / 'test'}")
        assert evaluated.returncode == 0, evaluated.stderr
    both = [f"--scores={tmp_path / loss / 'test' / 'predictions.npz'}" for loss in ("rankmax", "softmax")]
    compared = command("compare", *both)
    assert compared.returncode == 0, compared.stderr
    assert "map@10 (%)" in compared.stdout
    line = error_of("train", *flags, "--config.loss.k=131", f"--workdir={tmp_path / 'k'}")
    assert "loss.k=131: selects all 130 training classes. Lower it." in line


@pytest.mark.nightly
def test_describe_data_of_users(command, tmp_path):
    (tmp_path / "u.data").write_text("".join(f"{i % 6}\t{i % 7}\t3\t9\n" for i in range(40)))
    for name, flag in (("movielens", f"path={tmp_path}"), ("synthetic_retrieval", "num_classes=200")):
        path = tmp_path / name
        finished = command(
            "describe_data", DIGITS, f"--data={name}", f"--config.data.{flag}", f"--output={path}"
        )
        assert finished.returncode == 0, finished.stderr
        assert "Classes excluded from the ranking of an example, mean: " in finished.stdout
        assert "Duplicates" not in finished.stdout
        assert (path / "classes.png").stat().st_size > 500


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--data=movielens", "--config.data.path=nowhere"],
            "data.path=nowhere: no ratings.csv, u.data",
        ),
        (
            ["--data=movielens", "--config.data.release=9m"],
            "data.release='9m': unknown. There are: latest-",
        ),
        (
            ["--data=synthetic_retrieval", "--config.data.num_relevant=1"],
            "data.num_relevant=1: outside 3..500",
        ),
        (
            ["--config.data.pth=x"],
            "data.pth: dataset 'digits' has no such option. It has: max_length, image_size,",
        ),
        (["--data=goemotions", "--config.data.path=nowhere"], "nowhere/emotions.txt: no such"),
        (["--output=FILE"], "FILE"),
        (["--output=FILE/within"], "FILE/within"),
    ],
)
def test_describe_data_errors_are_one_line(tmp_path, error_of, arguments, message):
    (tmp_path / "FILE").write_text("in the way")
    flags = [argument.replace("FILE", str(tmp_path / "FILE")) for argument in arguments]
    line = error_of("describe_data", DIGITS, f"--output={tmp_path / 'described'}", *flags)
    assert message.replace("FILE", str(tmp_path / "FILE")) in line
    assert not (tmp_path / "described").exists()


@pytest.mark.nightly
def test_train_sorter_and_use_it(command, error_of, tmp_path):
    flags = [
        "--sizes=5",
        "--epochs=0.01",
        "--batch_size=100",
        "--learning_rate=0.1",
        f"--workdir={tmp_path}/run",
    ]
    first = command("train_sorter", *flags)
    assert first.returncode == 0, first.stderr
    row = next(line for line in first.stdout.splitlines() if line.startswith("l1@5"))
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert row.split()[1] == f"{results['validation']['l1@5']:.5f}"
    assert (tmp_path / "run" / "sorter.safetensors").exists()
    again = command("train_sorter", "--move=1", *flags)
    assert again.stdout.splitlines()[-4:] == first.stdout.splitlines()[-4:]
    trained = f"--config.loss.sorter={tmp_path}/run/sorter.safetensors"
    used = command(
        *("train", DIGITS, *QUICK, "--config.loss.name=approx_ndcg", "--config.loss.rank_fn=equivariant"),
        *(trained, f"--workdir={tmp_path}/used"),
    )
    assert used.returncode == 0, used.stderr
    other = error_of(
        *("train", DIGITS, *QUICK, "--config.loss.name=approx_ndcg", "--config.loss.rank_fn=lstm"),
        *(trained, f"--workdir={tmp_path}/other"),
    )
    assert "sorter.safetensors: weights of sorter 'equivariant', not 'lstm'" in other


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train_sorter", "--move=0", "--workdir=x"], "move=0: sorter 'equivariant' needs a positive one"),
        (["train_sorter", "--sizes=five", "--workdir=x"], "--sizes=five: not integers. Write --sizes=10,100"),
    ],
)
def test_sorter_errors_are_one_line(error_of, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in error_of(*arguments)
