"""Where a training runs: one device, several, several machines, or TPUs."""

import contextlib
import functools
import os
import socket

import tensorflow as tf

from rank4class.data.readers import strict_json
from rank4class.pipelines import config
from rank4class.pipelines.storage import files

_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)


def get(name, tpu="local"):
    """Makes a strategy by name, before the process does anything else with TensorFlow.

    Args:
      name: "default", one device; "mirrored", all devices of this machine; "multi_worker", those of all
        machines in the environment variable TF_CONFIG; "tpu".
      tpu: for "tpu": "local", the one of this machine, or the name of one.

    Returns:
      A `tf.distribute.Strategy`.

    Raises:
      ValueError: there is no such strategy, TF_CONFIG is wrong, or there is no such TPU.
    """
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        return _mirrored()
    if name == "multi_worker":
        check_tf_config(os.environ.get("TF_CONFIG"))
        return tf.distribute.MultiWorkerMirroredStrategy()
    if name == "tpu":
        return _tpu(tpu)
    raise ValueError(f"no strategy {name!r}; there are: {', '.join(config.STRATEGIES)}")


@functools.cache  # on CPUs the sums of two such strategies in one process would be mixed up
def _mirrored():
    return tf.distribute.MirroredStrategy()


def is_chief(strategy):
    """Whether this process writes what the workers share."""
    resolver = strategy.cluster_resolver
    if not several_workers(strategy):
        return True
    has_chief = "chief" in resolver.cluster_spec().as_dict()
    return resolver.task_type == "chief" or (not has_chief and resolver.task_id in (None, 0))


def check(experiment, strategy):
    """Raises ValueError where an experiment's batches or precision do not go with a strategy's replicas."""
    if experiment.precision == "mixed_float16" and isinstance(strategy, tf.distribute.TPUStrategy):
        raise ValueError("precision 'mixed_float16' is not for TPUs: set it to 'mixed_bfloat16'")
    replicas = strategy.num_replicas_in_sync
    for name in ("batch_size", "evaluation_batch_size"):
        size = getattr(experiment, name)
        if size % replicas:
            raise ValueError(
                f"{name} {size} cannot be divided among {replicas} replicas: set it to "
                f"{-(-size // replicas) * replicas}, or use fewer devices"
            )
    own = experiment.batch_size // replicas
    if own % experiment.accumulation_steps:
        raise ValueError(
            f"accumulation_steps {experiment.accumulation_steps} does not divide the {own} examples of a "
            f"replica (batch_size {experiment.batch_size}, {replicas} replicas)"
        )


def reads_elsewhere(strategy):
    """Whether the batches are made by the TPU's own servers: they know TensorFlow's operations alone."""
    return isinstance(strategy, tf.distribute.TPUStrategy) and strategy.cluster_resolver.master() != "local"


def several_workers(strategy):
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def all_gather(values):
    """Within a replica, returns the values of all replicas one after another along the first axis.

    TensorFlow's own `all_gather` fails where a worker has one replica, so this adds up what the replicas
    put in their places among zeros: exact, for numbers that are not finite too.

    Args:
      values: a structure of tensors, of the same shapes on all replicas.
    """
    context = tf.distribute.get_replica_context()
    replicas, own = context.num_replicas_in_sync, context.replica_id_in_sync_group

    def gather(value):
        places = tf.reshape(tf.range(replicas), [replicas] + [1] * value.shape.rank)
        in_place = tf.where(places == own, value, tf.zeros_like(value))
        return context.all_reduce("SUM", tf.reshape(in_place, [-1, *value.shape[1:]]))

    return tf.nest.map_structure(gather, values)


def check_agreement(strategy, step, workdir):
    """Waits for all workers; raises ValueError where they are not at the same step."""
    if not several_workers(strategy):
        return

    @tf.function(autograph=False)
    def of_all(own):
        gathered = strategy.run(lambda: all_gather(tf.reshape(own, [1])))
        return strategy.experimental_local_results(gathered)[0]

    steps = of_all(tf.constant(step, tf.int64)).numpy()
    if len(set(steps)) > 1:
        raise ValueError(
            f"the workers are at different steps ({', '.join(map(str, steps))}): {workdir} has to be one and "
            "the same folder for all of them"
        )


@contextlib.contextmanager
def naming_lost_workers(strategy):
    """Turns the error of a collective operation whose other side has gone into an `OSError` that says so."""
    try:
        yield
    except _LOST as error:
        if not several_workers(strategy):
            raise
        raise OSError(
            f"another worker was lost ({files.reason(error)}): start all of them again with the same "
            "command; a training goes on from its last checkpoint"
        ) from error


def check_tf_config(text):
    """Raises ValueError where a `TF_CONFIG` does not describe a cluster and this machine's place in it.

    >>> check_tf_config('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}')
    Traceback (most recent call last):
    ...
    ValueError: TF_CONFIG: task.index is 2, but cluster.worker has 2 machines, 0 to 1
    """
    example = (
        """TF_CONFIG='{"cluster": {"worker": ["host1:2222", "host2:2222"]}, """
        """"task": {"type": "worker", "index": 0}}'"""
    )
    if not text:
        raise ValueError(f"strategy multi_worker needs the environment variable {example}")
    try:
        parsed = strict_json.parse(text)
    except ValueError as error:
        raise ValueError(f"TF_CONFIG is not JSON ({error}); an example: {example}") from error
    cluster = parsed.get("cluster") if isinstance(parsed, dict) else None
    task = parsed.get("task") if isinstance(parsed, dict) else None
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise ValueError(f"TF_CONFIG needs a cluster and a task; an example: {example}")
    for kind, addresses in cluster.items():
        if kind not in ("chief", "worker"):
            raise ValueError(
                f"TF_CONFIG: cluster.{kind} is neither chief nor worker, which is all there is here"
            )
        _check_addresses(kind, addresses)
    every = [address for addresses in cluster.values() for address in addresses]
    if len(set(every)) < len(every):
        raise ValueError(f"TF_CONFIG: an address stands twice in {', '.join(every)}")
    kind, index = task.get("type"), task.get("index")
    if kind not in cluster:
        raise ValueError(f"TF_CONFIG: task.type is {kind!r}, but the cluster has {', '.join(cluster)}")
    machines = len(cluster[kind])
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < machines:
        raise ValueError(
            f"TF_CONFIG: task.index is {index!r}, but cluster.{kind} has {machines} machines, 0 to "
            f"{machines - 1}"
        )


def _check_addresses(kind, addresses):
    if not isinstance(addresses, list) or not addresses:
        raise ValueError(f"TF_CONFIG: cluster.{kind} is no list of host:port")
    for address in addresses:
        host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"TF_CONFIG: cluster.{kind} has {address!r}, which is no host:port")


def _check_reachable(resolver):
    """Raises OSError where a worker does not answer, which TensorFlow would wait for without an end."""
    for addresses in resolver.cluster_spec().as_dict().values():
        for address in addresses:
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()


def _tpu(name):
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != "local":
            _check_reachable(resolver)
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # Google's clients, which look a name up, have exceptions of their own
        raise ValueError(
            f"no TPU {name!r} ({files.reason(error)}): run on a TPU VM with its "
            "own TensorFlow, or choose another --strategy"
        ) from error
