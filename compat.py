"""Compatibility with versions of Keras and TF-Ranking, and with installations that lack packages.

TensorFlow brings Keras 3 as `tf.keras`, and the package `tf_keras` holds Keras 2. TensorFlow chooses at the
first use of `tf.keras`, by the environment variable `TF_USE_LEGACY_KERAS`, and a program has one `tf.keras`
from then on. Losses, metrics and models work with either. Pipelines, and encoders of tf-models-official, need
Keras 2.
"""

import contextlib
import importlib
import logging
import os
import re
import sys
import types
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement

_CHOICE = "TF_USE_LEGACY_KERAS"


def choose_keras_2() -> None:
    """Makes `tf.keras` Keras 2 in a program that has not chosen, before it imports TensorFlow."""
    os.environ.setdefault(_CHOICE, "1")


def require_keras_2(part: str) -> None:
    """Raises ImportError, with the remedy, in a program whose `tf.keras` is Keras 3."""
    if is_keras_3():
        raise ImportError(
            f"tf.keras: {part} needs Keras 2, but this program uses Keras 3. Set {_CHOICE}=1 before it "
            "starts, or import rank4class.pipelines before any use of tf.keras."
        )


def is_keras_3() -> bool:
    """Returns whether this program's `tf.keras` is Keras 3, or will be when TensorFlow is imported."""
    if "tensorflow" not in sys.modules:
        return os.environ.get(_CHOICE) not in ("1", "true", "True")
    import tensorflow as tf

    return hasattr(tf.keras, "ops")


def variable_path(variable: Any) -> str:
    """Returns the name of a variable after those of its layers, such as "dense/kernel"."""
    return getattr(variable, "path", variable.name).removesuffix(":0")


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Silences the logs of all packages, except errors, within the block."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def in_xla() -> bool:
    """Returns whether the code is being traced for XLA: in a function with `jit_compile=True`, or for TPUs.

    TensorFlow has no public name for it. An inner `tf.function` keeps its first trace, even if it is called
    both ways, so forms for XLA must be right without it.
    """
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def slurm_hosts(nodes: str, tasks_per_node: str) -> list[str]:
    """Returns the host of each task in Slurm's order; TensorFlow's public resolver sorts the hosts.

    >>> slurm_hosts("gpu[9-10]", "2,1")
    ['gpu9', 'gpu9', 'gpu10']
    """
    from tensorflow.python.distribute.cluster_resolver import slurm_cluster_resolver as slurm

    counts = slurm.expand_tasks_per_node(tasks_per_node)
    return [host for host, n in zip(slurm.expand_hostlist(nodes), counts, strict=True) for _ in range(n)]


def require_extra(name: str) -> None:
    """Raises ModuleNotFoundError, with the remedy, if a package of an extra is not installed."""
    missing = sorted(filter(_is_missing, _requirements(name)))
    if missing:
        raise ModuleNotFoundError(
            f"{', '.join(missing)}: not installed. Install all of {name}: pip install 'rank4class[{name}]'."
        )


def import_extra(module: str, extra: str) -> Any:
    """Returns a module that an extra installs; see `require_extra`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        require_extra(extra)
        raise


def _requirements(extra: str) -> Iterator[str]:
    """Yields the names of the packages of an extra, without those of the extras that it includes."""
    try:
        stated = metadata.requires("rank4class") or []
    except metadata.PackageNotFoundError:  # imported from a checkout that is not installed
        return
    for requirement in map(Requirement, stated):
        if requirement.marker and requirement.marker.evaluate({"extra": extra}):
            yield requirement.name


def _is_missing(package: str) -> bool:
    return not any(metadata.distributions(name=package))


def import_tensorflow_ranking() -> types.ModuleType:
    """Returns the module `tensorflow_ranking`, with which the tests and benchmarks compare.

    TF-Ranking 0.5.5 names `tf.estimator` when it is imported, which TensorFlow removed in 2.16.
    """
    from unittest import mock

    import tensorflow as tf

    one, other = (mock.patch.object(module, "estimator", create=True) for module in (tf, tf.compat.v1))
    with one, other:
        return importlib.import_module("tensorflow_ranking")


_BEFORE_CONTEXT = re.compile(r"\n(?:  \(0\) [A-Z_]+:  )?(?:assertion failed: \[)?([^\n]+?)\]?\n[ \t]*\[\[")
_AFTER_NODE = re.compile(
    r"(?:^|\n|\w: )(?:\{\{[^\n]*?\}\} )+"
    r"(?:Error in user-defined function passed to .*? with iterator: \S+: )?(?:\S+; )?"
    r"([^{\n].*?)(?: \[Op:|\n|$)"
)
_OTHERS = re.compile(
    r"(?:(?:Graph execution error|Additional GRPC|:\{).*\n|\n)*(?:\S+; )?(.*?)(?: \[Op:|\n|$)"
)


def reason(error: BaseException) -> str:
    """Returns the message of a TensorFlow error in one line, without operation, file and final period.

    >>> reason(ValueError("{{function_node a}} {{node b}} cut short. [Op:Read]"))
    'cut short'
    >>> lines = ["Graph execution error:", "", "assertion failed: [one pixel]", " [[{{node a}}]]"]
    >>> reason(ValueError(chr(10).join(lines)))
    'one pixel'
    >>> lines[2:3] = ["2 root error(s) found.", "  (0) INVALID_ARGUMENT:  one pixel"]  # of several devices
    >>> reason(ValueError(chr(10).join(lines)))
    'one pixel'
    >>> lines = ["Graph execution error:", "", "{{node Save}} /a/b; No space left on device [Op:SaveV2]"]
    >>> reason(ValueError(chr(10).join(lines)))
    'No space left on device'
    """
    message = getattr(error, "message", None) or str(error)
    match = _BEFORE_CONTEXT.search(message) or _AFTER_NODE.search(message) or _OTHERS.match(message)
    return ((match and match[1]) or type(error).__name__)[:200].rstrip(".")
