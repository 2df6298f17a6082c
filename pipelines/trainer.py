"""Training: from an experiment to a folder with its best checkpoint and its results."""

import importlib.metadata
import math
import os
import subprocess
import sys
import time

import tensorflow as tf
from absl import logging
from official.modeling.optimization import lr_schedule

from rank4class import losses
from rank4class.losses import registry as loss_registry
from rank4class.pipelines import config, evaluation, problem, randomness
from rank4class.pipelines.workdir import Workdir

PACKAGES = (
    "tensorflow",
    "tensorflow-ranking",
    "tf-models-official",
    "tensorflow-text",
    "numpy",
    "scikit-learn",
)
SUMMARIES_BETWEEN_EVALUATIONS = 20


def train(experiment, path, *, loaded=None, progress=True):
    """Trains an experiment, or goes on where an interrupted run of it stopped.

    Args:
      experiment: a `config.Experiment`.
      path: the run's folder, `Workdir`.
      loaded: the experiment's `problem.Problem`, if it is there already.
      progress: whether to show a progress bar.

    Returns:
      The results, as they stand in `results.json`.

    Raises:
      ValueError, FileNotFoundError: the experiment cannot run; the message says why.
      FloatingPointError: the loss was not finite. The checkpoints are those from before.
    """
    config.check(experiment)
    workdir = Workdir(path)
    workdir.check_owner(experiment)
    if workdir.results():
        logging.info("%s is finished already", path)
        return workdir.results()

    started = time.monotonic()
    loaded = loaded or problem.load(experiment, path)
    workdir.check_data(loaded.hashes)
    workdir.check_class_texts(loaded.class_texts)
    num_scored = loaded.num_scored("validation")
    metrics = evaluation.meaningful(experiment.metrics, num_scored)
    if experiment.monitor not in metrics:
        raise ValueError(f"monitor {experiment.monitor!r} says nothing about {num_scored} classes")
    tf.keras.utils.set_random_seed(experiment.seed)
    examples = len(loaded.splits["train"])
    total_steps = experiment.steps or math.ceil(experiment.epochs * examples / experiment.batch_size)
    evaluation_steps = math.ceil(examples / experiment.batch_size / experiment.evaluations_per_epoch)

    model = loaded.build_model(experiment)
    workdir.claim(experiment, loaded.hashes, loaded.class_texts)
    schedule = build_schedule(experiment.optimizer, total_steps)
    optimizer = build_optimizer(experiment.optimizer, schedule)
    optimizer.build(model.trainable_variables)
    step_function = build_step(model, loaded.scorer(model, "train"), optimizer, experiment)
    state = _State(model, optimizer, workdir)
    history = [line for line in workdir.history() if line["step"] <= state.step]
    if state.step:
        logging.info("Going on after step %d of %d", state.step, total_steps)

    judges = judge_functions(experiment, loaded, model)
    validation = loaded.read(experiment, "validation")
    batches = Timed(loaded.read_training(experiment, state.step))
    writer = tf.summary.create_file_writer(workdir.tensorboard)
    with writer.as_default():
        tf.summary.text("config", f"```\n{config.to_json(experiment)}\n```", step=0)
        while state.step < total_steps and not _gave_up(state, experiment):
            until = min(total_steps, (state.step // evaluation_steps + 1) * evaluation_steps)
            train_loss = _train_until(until, step_function, batches, state, schedule, experiment, progress)
            judged = evaluation.summarize(evaluation.judge(judges["validation"], validation), metrics)
            state.remember(experiment.monitor, judged[experiment.monitor])
            for name in metrics:
                tf.summary.scalar(f"validation/{name}", judged[name], step=state.step)
            rate = float(schedule(state.step))
            line = {"step": state.step, "loss": train_loss, "learning_rate": rate}
            history.append({**line, **{name: judged[name] for name in metrics}})
            workdir.write_history(history)
            state.save()
            if progress:
                print("  validation: " + ", ".join(f"{name} {judged[name]:.2f}" for name in metrics))

    state.restore_best()
    judged = {split: judge(experiment, loaded, judges, split) for split in ("validation", "test")}
    results = {
        "train_examples": examples,
        **judged,
        "best_step": state.best_step,
        "steps": state.step,
        "seconds": round(time.monotonic() - started, 1),
        "seed": experiment.seed,
        "command": sys.argv,
        "git": git_commit(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
    }
    workdir.write_results(results)
    return results


def judge_functions(experiment, loaded, model):
    """Returns split -> function of its batches to the metrics' values, one for splits that score alike."""

    def function(split):
        metrics = evaluation.meaningful(experiment.metrics, loaded.num_scored(split))
        return evaluation.judge_function(loaded.scorer(model, split), metrics)

    seen = function("validation")
    return {"train": seen, "validation": seen, "test": seen if loaded.seen is None else function("test")}


def judge(experiment, loaded, judges, split):
    """Returns a model's metrics on a split, see `evaluation.summarize`; `judges`: from `judge_functions`."""
    values = evaluation.judge(judges[split], loaded.read(experiment, split))
    metrics = evaluation.meaningful(experiment.metrics, loaded.num_scored(split))
    return evaluation.summarize(values, metrics)


def restore(path):
    """Loads a run's problem and its model with the best weights.

    Returns:
      `(experiment, problem, model)`.

    Raises:
      FileNotFoundError: the run has no checkpoint yet.
    """
    workdir = Workdir(path)
    experiment = workdir.experiment()
    config.check(experiment)
    loaded = problem.load(experiment, path)
    workdir.check_data(loaded.hashes)
    workdir.check_class_texts(loaded.class_texts)
    model = loaded.build_model(experiment)
    best = tf.train.latest_checkpoint(os.path.join(workdir.checkpoints, "best"))
    if best is None:
        raise FileNotFoundError(f"{path} has no checkpoint yet: train it first")
    tf.train.Checkpoint(model=model).restore(best).assert_existing_objects_matched().assert_consumed()
    return experiment, loaded, model


def build_schedule(section, total_steps):
    """Builds the learning rate over the steps that `config.Optimizer` describes."""
    end = 0.0 if section.decay == "linear" else section.learning_rate
    schedule = tf.keras.optimizers.schedules.PolynomialDecay(section.learning_rate, total_steps, end)
    warmup_steps = round(section.warmup_share * total_steps)
    if not warmup_steps:
        return schedule
    return lr_schedule.LinearWarmup(schedule, warmup_steps, warmup_learning_rate=0.0)


def build_optimizer(section, schedule):
    """Builds the Keras optimizer that `config.Optimizer` describes."""
    if section.name == "adam":
        return tf.keras.optimizers.Adam(schedule)
    if section.name == "adagrad":
        return tf.keras.optimizers.Adagrad(schedule)
    optimizer = tf.keras.optimizers.AdamW(schedule, weight_decay=section.weight_decay)
    # Biases and the scales of normalisation have nothing to decay to.
    optimizer.exclude_from_weight_decay(var_names=["bias", "beta", "gamma"])
    return optimizer


class _State:
    """What a resumed run needs besides the order of the data and dropout, which are functions of the step."""

    def __init__(self, model, optimizer, workdir):
        self._iterations = optimizer.iterations
        self._best_value = tf.Variable(math.nan, dtype=tf.float64)
        self._best_step = tf.Variable(0, dtype=tf.int64)
        self._stale = tf.Variable(0, dtype=tf.int64)
        best, last = (os.path.join(workdir.checkpoints, name) for name in ("best", "last"))
        self._best_model = tf.train.Checkpoint(model=model)
        self._best = tf.train.CheckpointManager(self._best_model, best, max_to_keep=1)
        everything = tf.train.Checkpoint(
            model=model,
            optimizer=optimizer,
            best_value=self._best_value,
            best_step=self._best_step,
            stale=self._stale,
        )
        self._last = tf.train.CheckpointManager(everything, last, max_to_keep=2)
        if self._last.latest_checkpoint:
            everything.restore(self._last.latest_checkpoint).assert_existing_objects_matched()

    @property
    def step(self):
        return int(self._iterations)

    @property
    def best_step(self):
        return int(self._best_step)

    @property
    def evaluations_without_a_better_one(self):
        return int(self._stale)

    def remember(self, monitor, value):
        """Keeps the model if it is the best so far."""
        if evaluation.better(monitor, value, float(self._best_value)):
            self._best_value.assign(value)
            self._best_step.assign(self.step)
            self._stale.assign(0)
            self._best.save(checkpoint_number=self.step)
        else:
            self._stale.assign_add(1)

    def save(self):
        self._last.save(checkpoint_number=self.step)

    def restore_best(self):
        self._best_model.restore(self._best.latest_checkpoint).assert_existing_objects_matched()


def _gave_up(state, experiment):
    return 0 < experiment.patience <= state.evaluations_without_a_better_one


def _train_until(until, step_function, batches, state, schedule, experiment, progress):
    """Takes the steps up to the next evaluation; returns their mean loss."""
    first, total = state.step, 0.0
    batches.restart()
    summary_steps = max(1, (until - first) // SUMMARIES_BETWEEN_EVALUATIONS)
    # A log file gets one line an evaluation, a terminal the moving bar.
    verbose = 1 if sys.stdout.isatty() else 2
    bar = tf.keras.utils.Progbar(until - first, verbose=verbose, unit_name="step") if progress else None
    if progress:
        print(f"Steps {first + 1} to {until}")
    for step in range(first, until):
        loss = float(step_function(*next(batches)))
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"loss {experiment.loss.name!r} is {loss} at step {step + 1}, learning rate "
                f"{float(schedule(step)):.3g}: lower optimizer.learning_rate or look at the data"
            )
        total += loss
        if (step + 1) % summary_steps == 0:
            tf.summary.scalar("train/loss", loss, step=step + 1)
            tf.summary.scalar("train/learning_rate", schedule(step), step=step + 1)
            tf.summary.scalar("train/waiting_share", batches.waiting_share(), step=step + 1)
        if bar:
            bar.update(step + 1 - first, [("loss", loss)])
    if progress:
        print(f"  waited for data {batches.waiting_share():.1%} of the time")
    return total / (until - first)


class Timed:
    """An iterator that knows which share of the time it was waited for."""

    def __init__(self, batches):
        self._batches = iter(batches)
        self.restart()

    def restart(self):
        self._started, self._waited = time.perf_counter(), 0.0

    def waiting_share(self):
        return self._waited / (time.perf_counter() - self._started)

    def __next__(self):
        before = time.perf_counter()
        batch = next(self._batches)
        self._waited += time.perf_counter() - before
        return batch


def build_step(model, scorer, optimizer, experiment):
    loss = _loss(experiment)
    generators = randomness.generators(model)

    @tf.function(autograph=False)
    def step(features, labels, weights):
        randomness.reset(generators, experiment.seed, optimizer.iterations)
        with tf.GradientTape() as tape:
            scores = scorer(features, training=True)
            value = tf.reduce_sum(loss(labels, scores, sample_weight=weights)) / experiment.batch_size
            value += sum(model.losses)  # weight decay of an encoder
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    return step


def _loss(experiment):
    knobs = config.knobs(experiment.loss)
    if "seed" in loss_registry.knobs_of(experiment.loss.name):
        knobs["seed"] = experiment.seed
    return losses.get(experiment.loss.name, reduction=tf.keras.losses.Reduction.NONE, **knobs)


def git_commit():
    """Returns the commit of the code that runs, with "-dirty" after it where files differ, or None."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        command = ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
