"""Distribution strategies: one device, several devices, several machines, or TPUs."""

import contextlib
import functools
import itertools
import json
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from rank4class import arguments, compat
from rank4class.pipelines import config

# Errors of a collective operation whose other workers are gone.
_LOST_WORKER_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)
FIRST_PORT = 2222  # of the workers of a machine
_TF_CONFIG_EXAMPLE = (
    """TF_CONFIG='{"cluster": {"worker": ["host1:2222", "host2:2222"]}, """
    """"task": {"type": "worker", "index": 0}}'"""
)


def get(name: str, tpu: str | None = None) -> tf.distribute.Strategy:
    """Builds a strategy by name, before the process runs any other TensorFlow operation.

    It is "default", one device; "mirrored", all devices of this machine; "multi_worker", all machines in the
    environment variable TF_CONFIG, which is set here if it is not; or "tpu", by its name or that of this
    machine. ValueError: a wrong name or cluster.
    """
    arguments.check_choice(config.STRATEGIES, strategy=name)
    if tpu is not None and name != "tpu":
        raise ValueError(f"tpu={tpu}: has no effect with strategy {name!r}. Set --strategy=tpu.")
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        return _mirrored()
    if name == "multi_worker":
        if "TF_CONFIG" not in os.environ:
            os.environ["TF_CONFIG"] = describe_cluster()
            print(f"TF_CONFIG={os.environ['TF_CONFIG']}", flush=True)
        check_tf_config()
        return tf.distribute.MultiWorkerMirroredStrategy()
    return _tpu(tpu or "local")


@functools.cache  # on CPUs two such strategies in one process would mix up their sums
def _mirrored() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy()


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the files that the workers share."""
    if not has_several_workers(strategy):
        return True
    resolver = strategy.cluster_resolver
    has_chief = "chief" in resolver.cluster_spec().as_dict()
    return resolver.task_type == "chief" or (not has_chief and resolver.task_id in (None, 0))


def check(strategy: tf.distribute.Strategy, experiment: config.Experiment) -> None:
    """Raises ValueError if replicas cannot share an experiment's batches or compute in its precision."""
    if isinstance(strategy, tf.distribute.TPUStrategy):
        if experiment.precision == "mixed_float16":
            raise ValueError("precision='mixed_float16': not available on TPUs. Set it to 'mixed_bfloat16'.")
        if experiment.optimizer.name == "lazy_adam":
            raise ValueError("optimizer='lazy_adam': not available on TPUs. Choose 'adam'.")
    if experiment.minutes is not None and has_several_workers(strategy):
        problem = "the clocks of several workers differ. Leave it out, and set epochs."
        raise ValueError(f"minutes={experiment.minutes:g}: {problem}")
    replicas = strategy.num_replicas_in_sync
    for name in ("batch_size", "evaluation_batch_size"):
        size = getattr(experiment, name)
        if size % replicas:
            raise ValueError(
                f"{name}={size}: cannot be divided among {replicas} replicas. Set it to "
                f"{-(-size // replicas) * replicas}, or use fewer devices."
            )
    batch_size = experiment.batch_size
    steps = experiment.accumulation_steps
    if batch_size // replicas % steps:
        raise ValueError(
            f"accumulation_steps={steps}: does not divide the {batch_size // replicas} examples per replica. "
            f"Choose a divisor (batch_size={batch_size}, {replicas} replicas)."
        )


def reads_remotely(strategy: tf.distribute.Strategy) -> bool:
    """Whether the servers of the TPU make the batches. They run TensorFlow's operations only."""
    return isinstance(strategy, tf.distribute.TPUStrategy) and strategy.cluster_resolver.master() != "local"


def has_several_workers(strategy: tf.distribute.Strategy) -> bool:
    """Whether several processes train together."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def all_gather(values: Any) -> Any:
    """Within a replica, returns the values of all replicas, concatenated along the first axis.

    TensorFlow's `all_gather` fails if a worker has one replica. This sums zeros with each replica's values at
    its index, which is exact for infinities and NaN too. All replicas have the same shapes.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    replica = context.replica_id_in_sync_group

    def gather(value: tf.Tensor) -> tf.Tensor:
        indices = tf.reshape(tf.range(replicas), [replicas] + [1] * value.shape.rank)
        at_index = tf.where(indices == replica, value, tf.zeros_like(value))
        return context.all_reduce("SUM", tf.reshape(at_index, [-1, *value.shape[1:]]))

    return tf.nest.map_structure(gather, values)


def check_agreement(strategy: tf.distribute.Strategy, step: int, path: str) -> None:
    """Waits for all workers; raises ValueError if they are at different steps."""
    if not has_several_workers(strategy):
        return

    @tf.function(autograph=False)
    def gather_steps(step: tf.Tensor) -> tf.Tensor:
        gathered = strategy.run(lambda: all_gather(tf.reshape(step, [1])))
        return strategy.experimental_local_results(gathered)[0]

    steps = gather_steps(tf.constant(step, tf.int64)).numpy()
    if len(set(steps)) > 1:
        raise ValueError(
            f"--workdir={path}: the workers are at different steps ({', '.join(map(str, steps))}). Give all "
            "of them one and the same folder."
        )


@contextlib.contextmanager
def lost_worker_errors(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Turns the error of a collective operation with a lost worker into a `ConnectionError` with a remedy."""
    try:
        yield
    except _LOST_WORKER_ERRORS as error:
        if not has_several_workers(strategy):
            raise
        raise ConnectionError(
            f"strategy='multi_worker': another worker was lost ({compat.reason(error)}). Start all workers "
            "again with the same command: training resumes from the last checkpoint."
        ) from error


def describe_cluster() -> str:
    """Returns TF_CONFIG as SkyPilot, Slurm or an indexed Job of Kubernetes describes it to this process.

    Kubernetes does not tell the number of workers: its job file sets JOB_COMPLETIONS. ValueError: there is no
    such description, or it is incomplete or wrong.
    """
    rank = {"SKYPILOT_NODE_RANK": "SkyPilot", "SLURM_PROCID": "Slurm", "JOB_COMPLETION_INDEX": "Kubernetes"}
    variable = next((name for name in rank if name in os.environ), None)
    if variable is None:
        raise ValueError(f"TF_CONFIG: not set, nor one of {', '.join(rank)}. Set {_TF_CONFIG_EXAMPLE}.")
    try:
        index = int(os.environ[variable])
        if variable == "SKYPILOT_NODE_RANK":
            hosts = os.environ["SKYPILOT_NODE_IPS"].split()
        elif variable == "SLURM_PROCID":
            names = "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"
            hosts = compat.slurm_hosts(*(os.environ[name] for name in names))
        else:
            name, dot, domain = socket.getfqdn().partition(f"-{index}.")
            if not dot:
                raise ValueError(f"this host, {name}, has no name of a pod with a subdomain")
            hosts = [f"{name}-{i}.{domain}" for i in range(int(os.environ["JOB_COMPLETIONS"]))]
    except (KeyError, ValueError) as error:
        problem = f"{error} is not set" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{variable}={os.environ[variable]}: the variables of {rank[variable]} do not describe the "
            f"cluster: {problem}. Start the workers as the guide on distributed training shows."
        ) from error
    addresses = [f"{host}:{FIRST_PORT + hosts[:i].count(host)}" for i, host in enumerate(hosts)]
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def check_tf_config() -> None:
    """Raises ValueError unless TF_CONFIG has a cluster and this machine's task; TensorFlow might wait."""
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        cluster = resolver.cluster_spec().as_dict()
        job = resolver.task_type
        index = resolver.task_id
        for address in itertools.chain(*cluster.values()):
            if not re.fullmatch(r".+:[1-9]\d{0,4}", address):
                raise ValueError(f"address {address!r} is not of the form host:port")
        if index not in range(len(cluster.get(job, ()))):
            raise ValueError(f"task {job} {index} is not in the cluster, which has {cluster}")
    except (ValueError, TypeError) as error:
        raise ValueError(f"TF_CONFIG: {error}. Set {_TF_CONFIG_EXAMPLE}, for example.") from error


def _tpu(name: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            for address in itertools.chain(*resolver.cluster_spec().as_dict().values()):
                host, _, port = address.rpartition(":")  # TensorFlow would wait forever for it
                socket.create_connection((host, int(port)), timeout=10).close()
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # Google's clients, which look a name up, raise other exceptions
        raise ValueError(
            f"tpu={name!r}: no TPU ({compat.reason(error)}). Run on a TPU VM with its TensorFlow, or "
            "choose another --strategy."
        ) from error
