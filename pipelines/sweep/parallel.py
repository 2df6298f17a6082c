"""Training of experiments that share their data: one after the other, or several at once in processes.

Each process has the data and trains one run at a time, with the thread settings of the process that starts
it: a run has the bits that it has alone. Where there are several GPUs, each process uses one of them.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing import connection
from typing import Any, TypeVar

import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.task import loading
from rank4class.pipelines.task.task import TaskData
from rank4class.pipelines.training import rank_training
from rank4class.pipelines.training.preemption import Interrupted, Interruption
from rank4class.pipelines.training.trainable_rank_model import Draw

POLL_SECONDS = 0.2  # between two looks at signals
RETRY_SECONDS = 2.0  # until runs are asked for again where none could start
_END: Any = object()  # after the last run


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run to train, equal to itself alone.

    Attributes:
      experiment: the experiment.
      path: of the run's folder.
      draw: see `rank_training.train`; a function of a module.
    """

    experiment: config.Experiment
    path: str
    draw: Draw | None = dataclasses.field(default=None, kw_only=True)


AnyRun = TypeVar("AnyRun", bound=Run)
Outcome = Any  # the results of a run, or a FloatingPointError if it diverged


def train_all(
    base: config.Experiment, cache_dir: str, runs: Iterator[AnyRun | None], jobs: int
) -> Generator[tuple[AnyRun, Outcome], None, None]:
    """Trains runs; yields each with its outcome when it ends.

    Close the generator to stop the runs in progress: they save, and another call resumes them.

    Args:
      base: an experiment with the data of all runs. The task of a run with another frozen encoder, checkpoint
        or texts of the classes is loaded when the run starts.
      cache_dir: folder for the outputs of a frozen encoder.
      runs: the runs, each of which is taken when it can start, after the outcomes that have been yielded.
        None is taken where no run can start yet; the next one is taken after an outcome, or a while later.
      jobs: number of runs to train at once; 1 trains in this process.

    Raises:
      ChildProcessError: a process ended by itself, such as one that took too much memory.
      ValueError, OSError, Interrupted: see `rank_training.train`. The other runs save and stop.
    """
    if jobs > 1:
        yield from _train_in_processes(base, cache_dir, runs, jobs)
        return
    task = loading.load(base, cache_dir)
    for run in _reporting_waits(runs, lambda: True):
        if run is None:
            time.sleep(RETRY_SECONDS)
        else:
            yield run, _train(base, task, cache_dir, run.experiment, run.path, run.draw)


def _reporting_waits(runs: Iterator[AnyRun | None], is_idle: Callable[[], bool]) -> Iterator[AnyRun | None]:
    """Yields the runs; prints a line when this process is idle until other processes have ended."""
    is_reported = False
    for run in runs:
        if run is None and is_idle() and not is_reported:
            print("Waiting for runs of other processes", flush=True)
        is_reported = run is None and is_idle()
        yield run


def _train(
    base: config.Experiment,
    task: TaskData,
    cache_dir: str,
    experiment: config.Experiment,
    path: str,
    draw: Draw | None,
) -> Outcome:
    loaded = _task_of(base, task, cache_dir, experiment)
    try:
        return rank_training.train(experiment, path, loaded=loaded, progress=False, draw=draw)
    except FloatingPointError as error:
        return error


def _task_of(
    base: config.Experiment, task: TaskData, cache_dir: str, experiment: config.Experiment
) -> TaskData:
    """Returns the task of an experiment with the data of `base`, whose task is loaded."""
    shares_classes = all(
        getattr(base.class_encoder, field) == getattr(experiment.class_encoder, field)
        for field in ("name", "init", "texts", "path")
    )
    encoders = base.encoder, experiment.encoder
    if shares_classes and encoders[0] == encoders[1]:
        return task
    shares_inputs = encoders[0].path == encoders[1].path and not any(one.frozen for one in encoders)
    if shares_classes and shares_inputs and task.class_vectors is None:  # an encoder made the vectors
        return loading.with_encoder(task, experiment.encoder)
    return loading.load(experiment, cache_dir)


def _train_in_processes(
    base: config.Experiment, cache_dir: str, runs: Iterator[AnyRun | None], jobs: int
) -> Generator[tuple[AnyRun, Outcome], None, None]:
    with Interruption() as interruption, _start_workers(base, cache_dir, jobs) as workers:
        runs = _reporting_waits(runs, lambda: not any(worker.run for worker in workers))
        not_loaded = workers[1:]
        workers[0].load()  # computes the outputs of a frozen encoder, which the others read
        is_exhausted = False
        while not is_exhausted or any(worker.run for worker in workers):
            worker = _next_ready(workers, interruption)
            if worker is not None:
                run, outcome = worker.receive()
                if run is not None:
                    yield run, outcome
                while not_loaded:
                    not_loaded.pop().load()
            for idle in (worker for worker in workers if worker.is_idle and not is_exhausted):
                following = next(runs, _END)
                is_exhausted = following is _END
                if is_exhausted or following is None:
                    break
                idle.train(following)


@contextlib.contextmanager
def _start_workers(base: config.Experiment, cache_dir: str, jobs: int) -> Iterator[list["_Worker"]]:
    workers: list[_Worker] = []
    try:
        for index in range(jobs):
            workers.append(_Worker(base, cache_dir, index, jobs))
        yield workers
    finally:
        try:
            for worker in workers:
                worker.stop()
            for worker in workers:
                worker.process.join()
        except KeyboardInterrupt:
            for worker in workers:
                worker.process.kill()
            raise


def _next_ready(workers: Sequence["_Worker"], interruption: Interruption) -> "_Worker | None":
    """Returns a worker that has answered or ended, None after a while; raises Interrupted after a signal."""
    by_connection: dict[Any, _Worker] = {worker.connection: worker for worker in workers}
    until = time.monotonic() + RETRY_SECONDS
    while time.monotonic() < until:
        ready = connection.wait(list(by_connection), POLL_SECONDS)
        if interruption.requested:
            raise Interrupted("the runs", interruption.signal)
        if ready:
            return by_connection[ready[0]]
    return None


class _Worker:
    """A process that loads the data, then trains one run at a time.

    Attributes:
      process: the process.
      connection: to the process; it is ready to be read when the process has answered or ended.
      run: in progress; None while the process loads or waits.
      is_idle: whether the process waits for a run.
    """

    def __init__(self, base: config.Experiment, cache_dir: str, index: int, jobs: int):
        context = multiprocessing.get_context("spawn")  # a fork would share the threads of TensorFlow
        self.connection, theirs = context.Pipe()
        self.run: Any = None
        self.is_idle = False
        self._jobs, self._doing = jobs, "starts"
        threads = (
            tf.config.threading.get_intra_op_parallelism_threads(),
            tf.config.threading.get_inter_op_parallelism_threads(),
        )
        arguments = (theirs, _packed(base), cache_dir, index, jobs, threads, sys.orig_argv)
        self.process = context.Process(target=_work, args=arguments)
        with _ignored_interrupts():
            self.process.start()
        theirs.close()

    def load(self) -> None:
        """Starts to load the data."""
        self._doing = "loads the data"
        self._send(None)

    def train(self, run: Run) -> None:
        """Starts to train a run."""
        self.run, self.is_idle, self._doing = run, False, f"trains {run.path}"
        self._send((_packed(run.experiment), run.path, run.draw))

    def receive(self) -> tuple[Any, Outcome]:
        """Returns the run that has ended with its outcome; None if the data are loaded instead.

        Raises:
          Exception: that of the process.
        """
        with self._loss_reported():
            outcome, error, text = self.connection.recv()
        if error is not None:
            raise error from RuntimeError(f"The process that {self._doing} raised:\n{text}")
        run, self.run, self.is_idle, self._doing = self.run, None, True, "waits for a run"
        return run, outcome

    def stop(self) -> None:
        """Ends the process; a run in progress saves before."""
        self.process.terminate()
        self.connection.close()

    def _send(self, message: Any) -> None:
        with self._loss_reported():
            self.connection.send(message)

    @contextlib.contextmanager
    def _loss_reported(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            self.process.join()
            code = self.process.exitcode or 0
            if code == -signal.SIGTERM:
                raise Interrupted("the runs", signal.SIGTERM) from error
            end = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            raise ChildProcessError(
                f"jobs={self._jobs}: the process that {self._doing} {end}; see its messages, if any. If "
                "memory ran out, lower --jobs. Run the command again to resume."
            ) from error


@contextlib.contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Lets processes that are started within the block ignore Ctrl-C, which a terminal sends to all of them.

    The process that starts them sends them SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():  # no other thread may handle signals
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _packed(experiment: config.Experiment) -> tuple[str, list[str]]:
    """Returns an experiment as JSON, and the modules that register its parts."""
    parts = config.user_parts(experiment).values()
    return config.to_json(experiment), [part["module"] for part in parts]


def _unpacked(packed: tuple[str, list[str]]) -> config.Experiment:
    text, modules = packed
    for module in modules:
        config.import_user_module(module)
    return config.from_json(text, "experiment")


def _work(
    link: Any,
    base: tuple[str, list[str]],
    cache_dir: str,
    index: int,
    jobs: int,
    threads: tuple[int, int],
    command: list[str],
) -> None:
    """Answers the messages of a `_Worker`: None to load, or the parts of a `Run` to train."""
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    sys.orig_argv = command  # the sessions of the runs record it
    tf.config.threading.set_intra_op_parallelism_threads(threads[0])
    tf.config.threading.set_inter_op_parallelism_threads(threads[1])
    _use_gpu(index, jobs)
    task: Any = None
    with contextlib.suppress(EOFError, ConnectionError):  # the process that started this one has ended
        while True:
            message = link.recv()
            try:
                if message is None:
                    task, outcome = loading.load(_unpacked(base), cache_dir), None
                else:
                    packed, path, draw = message
                    outcome = _train(_unpacked(base), task, cache_dir, _unpacked(packed), path, draw)
                answer: Any = (outcome, None, None)
            except Exception as error:  # is raised in the process that started this one
                answer = (None, error, traceback.format_exc())
            link.send(answer)


def _stop_with_parent() -> None:
    """Waits until the process that started this one has ended, then saves and stops."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _use_gpu(index: int, jobs: int) -> None:
    """Lets this process see one GPU, if there are any, and share its memory if other processes see it too."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[index % len(gpus)], "GPU")
        if jobs > len(gpus):
            tf.config.experimental.set_memory_growth(gpus[index % len(gpus)], True)
