"""The description of a trained model (`docs/reference/files.md`), from which it is built without its data."""

import dataclasses
import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf

from rank4class import strict_json
from rank4class.models.rank_model import create_variables
from rank4class.pipelines.storage import files
from rank4class.pipelines.task_data import inputs
from rank4class.pipelines.task_data.task_data import TaskData

SORTER = "sorter.safetensors"


@dataclasses.dataclass(frozen=True)
class Description:
    """A model without its weights."""

    class_names: tuple[str, ...]
    seen: np.ndarray | None  # ids of the classes of training and validation; None for all
    training_counts: np.ndarray  # training examples of each class, int64 `[n]`
    num_train: int  # training examples of all classes together
    multi_label: bool  # whether an example may have several classes
    inputs: inputs.Inputs
    instance_ids: Mapping[str, int]  # name -> id; empty for other inputs
    _structure: dict[str, Any]
    _features: dict[str, tf.TensorSpec]

    def num_scored(self, split: str) -> int:
        """Returns the number of classes that the model scores for a split."""
        return len(self.class_names if self.seen is None or split == "test" else self.seen)

    def build_model(self) -> tf.keras.Model:
        """Returns a new model with its variables."""
        model = tf.keras.layers.deserialize(self._structure)
        if not model.built:
            create_variables(model, inputs.zeros(self._features))
        return model


def write(folder: str, task: TaskData, model: tf.keras.Model) -> None:
    """Writes the description of a model with its variables to a folder, which is created."""
    files.make_folder(folder)
    specs = dict(task.evaluation_batches("train", 1).element_spec[0])
    specs.pop("excluded", None)
    seen = None if task.seen is None else task.seen.tolist()
    counts = task.training_counts("test").tolist()  # of all classes
    sizes = {"training_examples": counts, "num_train": len(task.splits["train"])}
    labels = {"multi_label": task.splits["train"].multi_label}
    contents = {
        "classes.json": files.to_json({"names": task.class_names, "seen": seen, **sizes, **labels}),
        "model.json": files.to_json(
            {"structure": tf.keras.layers.serialize(model), "features": inputs.specs_to_json(specs)}
        ),
        "inputs.json": task.inputs.to_json(),
    }
    for name, content in contents.items():
        files.write(os.path.join(folder, name), content)
    if task.inputs.kind.has_ids:
        _write_instances(folder, task)
    if task.inputs.words is not None:
        inputs.write_encoder(os.path.join(folder, "words"), task.inputs.words, task.inputs.specs)
    if task.encoder_files is not None:
        prefix = task.encoder_files()
        for ending in ("json", "safetensors"):
            files.link(f"{prefix}.{ending}", os.path.join(folder, f"encoder.{ending}"))


def _write_instances(folder: str, task: TaskData) -> None:
    """Writes the names of the instances, null for ids that no split has, and their classes in all splits."""
    num_ids = 1 + max(int(split.features["id"].max()) for split in task.splits.values())
    names: list[str | None] = [None] * num_ids
    known = scipy.sparse.csr_array((num_ids, len(task.class_names)), dtype=bool)
    for split in task.splits.values():
        ids = split.features["id"]
        for i, origin in zip(ids, ids if split.origins is None else split.origins, strict=True):
            names[i] = str(origin).removeprefix("user ")
        place = scipy.sparse.csr_array(
            (np.ones(len(ids), bool), (ids, np.arange(len(ids)))), shape=(num_ids, len(ids))
        )
        known = known + place @ split.class_matrix(len(task.class_names))
    files.write(os.path.join(folder, "instances.json"), files.to_json({"names": names}))
    content = io.BytesIO()
    scipy.sparse.save_npz(content, known.tocsr(), compressed=False)
    files.write(os.path.join(folder, "known.npz"), content.getvalue())


def read_known(folder: str) -> scipy.sparse.csr_array:
    """Returns the classes of each instance with an id in the data of the training, bool `[num_ids, n]`."""
    path = os.path.join(folder, "known.npz")
    if not files.exists(path):
        raise ValueError("exclude_known=True: the inputs are no users of the training data. Set it to False.")
    return scipy.sparse.csr_array(scipy.sparse.load_npz(io.BytesIO(files.read_bytes(path))))


def read(folder: str) -> Description:
    """Returns the description in a folder."""
    paths = (os.path.join(folder, name) for name in ("classes.json", "model.json"))
    classes, model = (strict_json.parse_object(path, files.read_text(path)) for path in paths)
    return Description(
        tuple(classes["names"]),
        None if classes["seen"] is None else np.array(classes["seen"]),
        np.array(classes["training_examples"]),
        classes["num_train"],
        classes.get("multi_label", False),  # runs before it
        inputs.read(folder),
        _read_instances(folder),
        model["structure"],
        inputs.specs_from_json(model["features"]),
    )


def _read_instances(folder: str) -> dict[str, int]:
    """Returns name -> id of the instances that a split has; empty if they are not known by ids."""
    path = os.path.join(folder, "instances.json")
    if not files.exists(path):
        return {}
    names = strict_json.parse_object(path, files.read_text(path))["names"]
    return {name: i for i, name in enumerate(names) if name is not None}
