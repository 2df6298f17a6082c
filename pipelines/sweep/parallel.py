"""Training of the runs of a sweep, which share their data, through a `concurrent.futures.Executor`.

Each process trains one run at a time, with the thread settings of the process that starts it: a run has the
bits that it has alone.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from multiprocessing import connection
from typing import Any, TypeVar

import tensorflow as tf

from rank4class import compat
from rank4class.pipelines import config, configs
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.sweep import space
from rank4class.pipelines.task_data.task_data import TaskData
from rank4class.pipelines.training import rank_training
from rank4class.pipelines.training.preemption import Interrupted, Interruption
from rank4class.pipelines.training.trainable_rank_model import Draw
from rank4class.progress import time_left

POLL_SECONDS = 0.2  # between two looks at signals


def cell_of(experiment: config.Experiment, varied: Iterable[str] = ()) -> dict[str, str]:
    """Returns the cell of an experiment, which the runs of all seeds share: axis -> value."""
    values = config.values(experiment)
    fields = {field: space.format_value(values[field]) if field in values else "-" for field in varied}
    return {"loss": experiment.loss.title, "interaction": experiment.interaction.name, **fields}


def cell_name(experiment: config.Experiment, varied: Iterable[str] = ()) -> str:
    """Returns the name of an experiment's cell, with which the names of its folders begin."""
    return "-".join(cell_of(experiment, varied).values())


@dataclasses.dataclass(eq=False)
class GridRun:
    """A run of a sweep, equal to itself alone."""

    experiment: config.Experiment
    path: str
    ignored: tuple[str, ...] = ()
    varied: tuple[str, ...] = ()
    results: dict[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def cell(self) -> dict[str, str]:
        return cell_of(self.experiment, self.varied)

    @property
    def name(self) -> str:
        return "-".join(self.cell.values())

    def epochs(self, steps: int) -> float:
        """Converts a number of training steps to epochs."""
        return steps * self.experiment.batch_size / self.results["train_examples"]


AnyRun = TypeVar("AnyRun", bound=GridRun)
Outcome = Any  # the results of a run, a FloatingPointError if it diverged, or a ValueError


def stored_results(run: GridRun) -> dict[str, Any] | None:
    """Returns the results of a finished run; raises ValueError if another one has its folder."""
    folder = RunDirectory(run.path)
    try:
        folder.check_owner(run.experiment)
    except ValueError as error:
        raise ValueError(f"{error} Or remove {run.path}, to train it with these values.") from error
    return folder.results()


class Pool:
    """Trains up to `jobs` runs at once through an executor; the interruption records signals meanwhile.

    The runs of a process share their data. The folder of the sweep also has the outputs of a frozen encoder.
    """

    def __init__(self, root: str, executor: Executor, jobs: int, interruption: Interruption | None):
        self._sweep = uuid.uuid4().hex
        self._root = root
        self._executor = executor
        self._jobs = jobs
        self._interruption = interruption
        self._first: GridRun | None = None  # whose data the others must have
        self._started = time.monotonic()
        self._trained = 0

    def train(self, runs: Iterable[AnyRun], draw: Draw | None = None) -> Iterator[tuple[AnyRun, Outcome]]:
        """Yields each run with its outcome when it ends, at once if it is finished already; see `start`.

        The next run is taken when one can start.
        """
        pending: dict[Future, AnyRun] = {}
        waiting = iter(runs)
        while True:
            while len(pending) < self._jobs and (run := next(waiting, None)) is not None:
                if results := stored_results(run):
                    self.check_data(run)
                    yield run, results
                else:
                    pending[self._submit(run, draw)] = run
            if not pending:
                return
            for future in self._ended(pending):
                run = pending.pop(future)
                outcome = self._result(future, run)
                if not isinstance(outcome, ValueError):
                    self.check_data(run)
                self._trained += 1
                yield run, outcome

    def check_data(self, run: GridRun) -> None:
        """Raises ValueError if a run had other data than the first one."""
        self._first = self._first or run
        if _data_hashes(run) != _data_hashes(self._first):
            raise ValueError(
                f"{run.path}: trained on other data than {self._first.path}. Restore the data, or choose "
                "another --workdir."
            )

    def report(self, ended: int, total: int, run: GridRun, outcome: Outcome, split: str) -> None:
        """Prints a line on a run that has ended: its place, the time left, and its metrics on a split."""
        failed = isinstance(outcome, Exception)
        shown = str(outcome) if failed else f"{split} {evaluator.one_line(outcome[split])}"
        folder = run.path.removeprefix(os.path.join(self._root, ""))
        left = time_left(time.monotonic() - self._started, self._trained, total - ended)
        print(f"[{ended:3d}/{total}{left and f', {left}'}] {folder}: {shown}", flush=True)

    def _submit(self, run: GridRun, draw: Draw | None) -> Future:
        packed = config.to_json(run.experiment), config.user_parts(run.experiment)
        # A cluster's workers do not have the settings of this process, such as of --cache and --log.
        environment = {name: value for name, value in os.environ.items() if name.startswith("RANK4CLASS_")}
        arguments = self._sweep, self._root, *packed, run.path, draw, environment
        future = self._executor.submit(_train, *arguments)
        # CPython's pool may start a process after its watcher has listed them, so that the watcher misses
        # its death. Another task makes it list them again.
        self._executor.submit(int)
        return future

    def _ended(self, futures: Iterable[Future]) -> list[Future]:
        """Waits for one of several futures; returns all that have ended, in their order."""
        while True:
            done, _ = concurrent.futures.wait(futures, POLL_SECONDS, concurrent.futures.FIRST_COMPLETED)
            if self._interruption and self._interruption.requested:
                raise Interrupted("the runs", self._interruption.signal)
            if done:
                return [future for future in futures if future in done]

    def _result(self, future: Future, run: GridRun) -> Any:
        try:
            return future.result()
        except concurrent.futures.BrokenExecutor as error:
            raise ChildProcessError(
                f"jobs={self._jobs}: a process ended by itself, maybe that of {run.path}; see its messages, "
                "if any. If memory ran out, lower --jobs. Run the command again to resume."
            ) from error


def _data_hashes(run: GridRun) -> dict[str, str]:
    hashes = RunDirectory(run.path).data_hashes()
    return {name: value for name, value in hashes.items() if name not in ("encoder.path", "loss.sorter")}


@contextlib.contextmanager
def start(root: str, jobs: int, executor: Executor | None = None) -> Iterator[Pool]:
    """Starts a `Pool`; at the end of the block its runs in progress save and stop."""
    with contextlib.ExitStack() as stack:
        if executor is None and jobs > 1:
            executor = stack.enter_context(_processes(jobs))
        interruption = stack.enter_context(Interruption()) if executor else None
        stack.callback(_loaded.clear)
        yield Pool(root, executor or _ThisProcess(), jobs, interruption)


@contextlib.contextmanager
def connect(name: str) -> Iterator[tuple[Executor | None, int]]:
    """Yields the executor of a name, and the number of its workers.

    It is "processes", those that `start` makes (None), or "dask:ADDRESS", the workers of a Dask cluster. Dask
    trains the run of a lost worker on another one, where it resumes. An interrupted block leaves the runs in
    progress to their workers, which end them. ValueError: another name, or workers of several threads.
    """
    engine, _, address = name.partition(":")
    if name == "processes":
        yield None, 1
        return
    if engine != "dask" or not address:
        raise ValueError(f"executor={name!r}: unknown. Choose 'processes' or 'dask:tcp://HOST:PORT'.")
    compat.require_extra("dask")
    import distributed

    with distributed.Client(address, set_as_default=False) as client:
        threads = client.nthreads().values()
        if set(threads) - {1}:
            raise ValueError(
                f"executor={name!r}: a worker with {max(threads)} threads; a process trains one run at a "
                "time. Start the workers with --nthreads=1."
            )
        executor = client.get_executor()
        yield executor, max(1, len(threads))
        executor.shutdown(wait=False)


class _ThisProcess(Executor):
    """Runs each function when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        future: Future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextlib.contextmanager
def _processes(jobs: int) -> Iterator[Executor]:
    context = multiprocessing.get_context("spawn")  # a fork would share the threads of TensorFlow
    stop, link = context.Pipe(duplex=False)
    threads = (
        tf.config.threading.get_intra_op_parallelism_threads(),
        tf.config.threading.get_inter_op_parallelism_threads(),
    )
    settings = stop, context.Value("i", 0), context.Lock(), context.Event(), jobs, threads, sys.orig_argv
    executor = concurrent.futures.ProcessPoolExecutor(jobs, context, _start_process, settings)
    try:
        yield executor
    except BaseException:
        link.close()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
        link.close()


def _start_process(
    stop: connection.Connection,
    started: Any,
    loading: Any,
    is_loaded: Any,
    jobs: int,
    threads: tuple[int, int],
    command: list[str],
) -> None:
    """Prepares a process of several; `started` counts them."""
    global _loading, _is_loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all processes
    threading.Thread(target=_stop_with_parent, args=[stop], daemon=True).start()
    sys.orig_argv = command  # the sessions of the runs record it
    tf.config.threading.set_intra_op_parallelism_threads(threads[0])
    tf.config.threading.set_inter_op_parallelism_threads(threads[1])
    with started.get_lock():
        index = started.value
        started.value = started.value + 1
    _loading = loading
    _is_loaded = is_loaded
    _use_gpu(index, jobs)


def _stop_with_parent(stop: connection.Connection) -> None:
    """Ends this process once the one that started it has closed its end of a pipe, or has ended itself."""
    connection.wait([stop])
    while True:  # a run in progress saves first
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(POLL_SECONDS)


def _use_gpu(index: int, jobs: int) -> None:
    """Lets this process see one GPU, if there are any, and share its memory if other processes see it too."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[index % len(gpus)], "GPU")
        if jobs > len(gpus):
            tf.config.experimental.set_memory_growth(gpus[index % len(gpus)], True)


_loaded: dict[tuple[str, str], TaskData] = {}  # the last data of this process, by sweep and fields
_loading: Any = None  # of several processes, the lock that the first one to load data takes
_is_loaded: Any = threading.Event()  # whether that one has loaded them


def _train(
    sweep: str,
    cache_dir: str,
    text: str,
    parts: dict[str, Any],
    path: str,
    draw: Draw | None,
    environment: dict[str, str],
) -> Outcome:
    """Trains the experiment of a text, whose parts of the user the process imports if it has not."""
    os.environ.update(environment)
    for kind, part in parts.items():
        if part["name"] not in config.PARTS[kind].names():
            configs.import_user_module(part["module"])
    one = config.from_json(text, "experiment")
    fields = one.data, one.encoder, one.class_encoder, one.sets, one.evaluation_batch_size, one.words
    key = sweep, repr((*fields, one.optimizer.name))
    try:
        if key not in _loaded:
            if _loading and not _loading.acquire(block=False):
                _is_loaded.wait()  # for the outputs of a frozen encoder, which the first process computes
            _loaded.clear()
            try:
                _loaded[key] = rank_training.load_data(one, cache_dir)
            finally:
                _is_loaded.set()
        return rank_training.train(one, path, task_data=_loaded[key], progress=False, draw=draw)
    except (FloatingPointError, ValueError) as error:
        return error
    finally:
        gc.collect()  # models have reference cycles; of 83,000 classes they keep half a gigabyte a run
