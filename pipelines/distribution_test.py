import json
import socket

import numpy as np
import pytest
import tensorflow as tf

from rank4class.pipelines import config, distribution


def tf_config(cluster, kind="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


TWO = {"worker": ["a:1", "b:2"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "TF_CONFIG: Expecting value.* Set TF_CONFIG='"),
        ("[]", "TF_CONFIG: task None None is not in the cluster, which has {}. Set TF_CONFIG='"),
        ('{"cluster": "a:1", "task": {}}', "`cluster` must be a dictionary"),
        (tf_config({"worker": "a:1"}), "The tasks for job 'worker' must be a list"),
        (tf_config({"worker": []}), "task worker 0 is not in the cluster"),
        (tf_config({"worker": ["a"]}), "address 'a' is not of the form host:port"),
        (tf_config({"worker": ["a:0"]}), "address 'a:0' is not of the form host:port"),
        (tf_config({"worker": [7]}), "Task address 7 must be bytes or unicode"),
        (tf_config(TWO, kind="chief"), "task chief 0 is not in the cluster, which has .*'worker'"),
        (tf_config(TWO, index=2), "task worker 2 is not in the cluster, which has"),
        (tf_config(TWO, index=-1), "task worker -1 is not in the cluster"),
        (tf_config(TWO, index=None), r"int\(\) argument must be"),
    ],
)
def test_invalid_clusters(monkeypatch, text, message):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match=message):
        distribution.get("multi_worker")


HOST = "job-train-0-2.job.space.svc.cluster.local"


@pytest.mark.parametrize(
    ("variables", "workers", "index"),
    [
        (
            {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.3\n", "SLURM_PROCID": "0"},
            ["10.0.0.7:2222", "10.0.0.3:2222"],
            1,
        ),
        (
            {
                "SLURM_PROCID": "3",
                "SLURM_STEP_NODELIST": "gpu[9-10],login",
                "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
            },
            ["gpu9:2222", "gpu9:2223", "gpu10:2222", "gpu10:2223", "login:2222"],
            3,
        ),
        (
            {"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "3"},
            [f"job-train-0-{i}.job.space.svc.cluster.local:2222" for i in range(3)],
            2,
        ),
    ],
)
def test_jobs_that_describe_themselves(monkeypatch, variables, workers, index):
    monkeypatch.setattr(socket, "getfqdn", lambda: HOST)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    expected = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    assert json.loads(distribution.describe_cluster()) == expected


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "TF_CONFIG: not set, nor one of SKYPILOT_NODE_RANK, SLURM_PROCID, JOB_COMPLETION"),
        (
            {"SLURM_PROCID": "0"},
            "SLURM_PROCID=0: the variables of Slurm do not describe the cluster: 'SLURM_STEP_NODELIST' is",
        ),
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "a[1-", "SLURM_STEP_TASKS_PER_NODE": "1"},
            "Invalid hostlist format",
        ),
        ({"SKYPILOT_NODE_RANK": "1"}, "of SkyPilot do not .*: 'SKYPILOT_NODE_IPS' is not set. Start"),
        ({"JOB_COMPLETION_INDEX": "2"}, "of Kubernetes do not .*: 'JOB_COMPLETIONS' is not set. Start"),
        ({"JOB_COMPLETION_INDEX": "1"}, f"this host, {HOST}, has no name of a pod with a subdomain"),
        ({"SKYPILOT_NODE_RANK": "2", "SKYPILOT_NODE_IPS": "a\nb"}, "TF_CONFIG: task worker 2 is not"),
    ],
)
def test_jobs_whose_description_is_incomplete(monkeypatch, variables, message):
    monkeypatch.setattr(socket, "getfqdn", lambda: HOST)
    monkeypatch.setenv("TF_CONFIG", "")  # restored afterwards
    monkeypatch.delenv("TF_CONFIG")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        distribution.get("multi_worker")


def test_strategies_by_name():
    assert distribution.get("default").num_replicas_in_sync == 1
    assert distribution.get("mirrored").num_replicas_in_sync == 2  # the logical CPUs of conftest.py
    with pytest.raises(ValueError, match="strategy='mirorred': unknown. There are: default, mirrored, "):
        distribution.get("mirorred")


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "chief"),
    [
        (TWO, "worker", 0, True),
        (TWO, "worker", 1, False),
        ({"chief": ["c:1"], **TWO}, "chief", 0, True),
        ({"chief": ["c:1"], **TWO}, "worker", 0, False),
        ({"worker": ["[::1]:1"]}, "worker", 0, True),
    ],
)
def test_valid_clusters_and_their_chief(monkeypatch, cluster, kind, index, chief):
    monkeypatch.setenv("TF_CONFIG", tf_config(cluster, kind, index))
    distribution.check_tf_config()

    class Cluster:
        cluster_resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type=kind, task_id=index
        )

    monkeypatch.setattr(distribution, "has_several_workers", lambda _: True)
    assert distribution.is_chief(Cluster) == chief


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 33}, "batch_size=33: cannot be divided among 2 replicas. Set it to 34, or use fewer"),
        ({"evaluation_batch_size": 1}, "evaluation_batch_size=1: cannot be divided .* Set it to 2"),
        ({"accumulation_steps": 3}, "accumulation_steps=3: does not divide the 16 examples per replica."),
        ({"accumulation_steps": 32}, "accumulation_steps=32: does not divide the 16 examples"),
    ],
)
def test_batch_sizes_that_replicas_do_not_divide(changes, message):
    experiment = config.Experiment(batch_size=32, evaluation_batch_size=500)
    with pytest.raises(ValueError, match=message):
        distribution.check(distribution.get("mirrored"), config.override(experiment, changes))
    distribution.check(distribution.get("mirrored"), experiment)


def test_all_gather_is_ordered_and_exact(mirrored):
    values = tf.constant([[1.0, float("nan")], [float("inf"), -0.0]])

    def of_replica():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return distribution.all_gather({"rows": values[replica : replica + 1], "ids": tf.fill([2], replica)})

    gathered = tf.function(lambda: mirrored.run(of_replica))()
    for rows in mirrored.experimental_local_results(gathered["rows"]):
        np.testing.assert_array_equal(rows, values)
    for ids in mirrored.experimental_local_results(gathered["ids"]):
        assert ids.numpy().tolist() == [0, 0, 1, 1]


def test_errors_of_lost_workers(monkeypatch):
    lost = tf.errors.UnavailableError(None, None, "Connection reset by peer\nmore")
    one_device = distribution.get("default")
    with pytest.raises(tf.errors.UnavailableError), distribution.lost_worker_errors(one_device):
        raise lost
    monkeypatch.setattr(distribution, "has_several_workers", lambda _: True)
    message = r"strategy='multi_worker': another worker was lost \(Connection reset by peer\)\. Start all"
    with pytest.raises(ConnectionError, match=message), distribution.lost_worker_errors(one_device):
        raise lost


class FakeTpuStrategy(tf.distribute.TPUStrategy):
    """The attributes of the strategy that `distribution` reads."""

    def __init__(self, master):
        self.master = master

    @property
    def cluster_resolver(self):
        return type("Resolver", (), {"master": lambda _: self.master})()

    num_replicas_in_sync = 8


def test_requirements_of_a_tpu():
    experiment = config.Experiment(batch_size=32, evaluation_batch_size=800, precision="mixed_float16")
    with pytest.raises(ValueError, match="precision='mixed_float16': not available on TPUs. Set it to"):
        distribution.check(FakeTpuStrategy("local"), experiment)
    distribution.check(distribution.get("default"), experiment)
    experiment.precision = "mixed_bfloat16"
    distribution.check(FakeTpuStrategy("local"), experiment)
    assert distribution.reads_remotely(FakeTpuStrategy("grpc://10.0.0.2:8470"))
    assert not distribution.reads_remotely(FakeTpuStrategy("local"))
    assert not distribution.reads_remotely(distribution.get("mirrored"))
