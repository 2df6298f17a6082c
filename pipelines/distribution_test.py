import json

import pytest
import tensorflow as tf

from rank4class.pipelines import config, distribution


def tf_config(cluster, kind="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


TWO = {"worker": ["a:1", "b:2"]}


@pytest.mark.parametrize(
    "text",
    [
        tf_config(TWO),
        tf_config(TWO, index=1),
        tf_config({"chief": ["c:1"], **TWO}, kind="chief"),
        tf_config({"worker": ["[::1]:1"]}),
    ],
)
def test_a_cluster_that_is_well_described(text):
    distribution.check_tf_config(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "strategy multi_worker needs the environment variable TF_CONFIG="),
        ("", "needs the environment variable TF_CONFIG="),
        ("{", r"TF_CONFIG is not JSON \(Expecting property name.*an example: "),
        ("[" * 100_000, r"TF_CONFIG is not JSON \(is nested too deeply\); an example: "),
        (
            '{"cluster": {}, "cluster": {}}',
            r"TF_CONFIG is not JSON \(has the key 'cluster' twice\); an example",
        ),
        ("[]", "TF_CONFIG needs a cluster and a task; an example: "),
        ('{"cluster": {"worker": ["a:1"]}}', "needs a cluster and a task"),
        ('{"cluster": "a:1", "task": {}}', "needs a cluster and a task"),
        (tf_config({"worker": "a:1"}), "cluster.worker is no list of host:port"),
        (tf_config({"worker": []}), "cluster.worker is no list of host:port"),
        (tf_config({"worker": ["a"]}), "cluster.worker has 'a', which is no host:port"),
        (tf_config({"worker": ["a:0"]}), "has 'a:0', which is no host:port"),
        (tf_config({"worker": ["a:70000"]}), "has 'a:70000', which is no host:port"),
        (tf_config({"worker": [7]}), "has 7, which is no host:port"),
        (tf_config({"worker": ["a:1", "a:1"]}), "an address stands twice in a:1, a:1"),
        (tf_config({"chief": ["a:1"], "worker": ["a:1"]}), "an address stands twice"),
        (tf_config({"ps": ["a:1"], **TWO}), "cluster.ps is neither chief nor worker"),
        (tf_config(TWO, kind="chief"), "task.type is 'chief', but the cluster has worker"),
        (tf_config(TWO, kind=None), "task.type is None, but"),
        (tf_config(TWO, index=2), "task.index is 2, but cluster.worker has 2 machines, 0 to 1"),
        (tf_config(TWO, index=-1), "task.index is -1, but"),
        (tf_config(TWO, index="0"), "task.index is '0', but"),
        (tf_config(TWO, index=True), "task.index is True, but"),
    ],
)
def test_a_cluster_that_is_not(text, message):
    with pytest.raises(ValueError, match=message):
        distribution.check_tf_config(text)


def test_the_environment_is_read(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config(TWO, index=5))
    with pytest.raises(ValueError, match="task.index is 5"):
        distribution.get("multi_worker")


def test_strategies_by_name():
    assert distribution.get("default").num_replicas_in_sync == 1
    assert distribution.get("mirrored").num_replicas_in_sync == 2  # the tests' logical CPUs
    with pytest.raises(ValueError, match="no strategy 'mirorred'; there are: default, mirrored, "):
        distribution.get("mirorred")


def test_one_process_alone_is_the_chief_and_agrees_with_itself():
    for name in ("default", "mirrored"):
        strategy = distribution.get(name)
        assert distribution.is_chief(strategy)
        distribution.check_agreement(strategy, 7, "anywhere")


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "chief"),
    [
        (TWO, "worker", 0, True),
        (TWO, "worker", 1, False),
        ({"chief": ["c:1"], **TWO}, "chief", 0, True),
        ({"chief": ["c:1"], **TWO}, "worker", 0, False),
    ],
)
def test_one_worker_writes(monkeypatch, cluster, kind, index, chief):
    class Cluster:
        cluster_resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type=kind, task_id=index
        )

    monkeypatch.setattr(distribution, "several_workers", lambda _: True)
    assert distribution.is_chief(Cluster) == chief


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 33}, "batch_size 33 cannot be divided among 2 replicas: set it to 34, or use fewer"),
        ({"evaluation_batch_size": 1}, "evaluation_batch_size 1 cannot be divided .*: set it to 2"),
        ({"accumulation_steps": 3}, "accumulation_steps 3 does not divide the 16 examples of a replica"),
        ({"accumulation_steps": 32}, "accumulation_steps 32 does not divide the 16 examples"),
    ],
)
def test_batches_that_replicas_cannot_share(changes, message):
    experiment = config.override(config.Experiment(), changes)
    with pytest.raises(ValueError, match=message):
        distribution.check(experiment, distribution.get("mirrored"))
    distribution.check(config.Experiment(), distribution.get("mirrored"))


def test_what_all_replicas_have_comes_in_order_and_exact():
    strategy = distribution.get("mirrored")
    values = tf.constant([[1.0, float("nan")], [float("inf"), -0.0]])

    @tf.function
    def gathered():
        def of_replica():
            own = tf.distribute.get_replica_context().replica_id_in_sync_group
            return distribution.all_gather({"rows": values[own : own + 1], "ids": tf.fill([2], own)})

        return strategy.run(of_replica)

    result = tf.nest.map_structure(lambda x: strategy.experimental_local_results(x), gathered())
    for rows in result["rows"]:
        tf.debugging.assert_equal(tf.math.is_nan(rows), tf.math.is_nan(values))
        tf.debugging.assert_equal(
            tf.where(tf.math.is_nan(rows), 0.0, rows), [[1.0, 0.0], [float("inf"), 0.0]]
        )
    for ids in result["ids"]:
        assert ids.numpy().tolist() == [0, 0, 1, 1]


def test_a_lost_worker_is_said_to_be_lost(monkeypatch):
    lost = tf.errors.UnavailableError(None, None, "Connection reset by peer\nmore")
    alone = distribution.get("default")
    with pytest.raises(tf.errors.UnavailableError), distribution.naming_lost_workers(alone):
        raise lost
    monkeypatch.setattr(distribution, "several_workers", lambda _: True)
    message = r"another worker was lost \(Connection reset by peer\): start all of them again with the same"
    with pytest.raises(OSError, match=message), distribution.naming_lost_workers(alone):
        raise lost


class TpuStandIn(tf.distribute.TPUStrategy):
    """As much of the strategy as is asked for."""

    def __init__(self, master):
        self.master = master

    @property
    def cluster_resolver(self):
        return type("Resolver", (), {"master": lambda _: self.master})()

    num_replicas_in_sync = 8


def test_what_a_tpu_asks_of_an_experiment():
    experiment = config.override(config.Experiment(), {"precision": "mixed_float16"})
    with pytest.raises(ValueError, match="'mixed_float16' is not for TPUs: set it to 'mixed_bfloat16'"):
        distribution.check(experiment, TpuStandIn("local"))
    distribution.check(config.override(experiment, {"precision": "mixed_bfloat16"}), TpuStandIn("local"))
    distribution.check(experiment, distribution.get("default"))
    assert distribution.reads_elsewhere(TpuStandIn("grpc://10.0.0.2:8470"))
    assert not distribution.reads_elsewhere(TpuStandIn("local"))
    assert not distribution.reads_elsewhere(distribution.get("mirrored"))
