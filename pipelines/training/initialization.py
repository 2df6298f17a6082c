"""Initial weights of a run from the trained model of another one."""

import tensorflow as tf
from absl import logging

from rank4class import models
from rank4class.pipelines.task_data.task_data import TaskData

# Parts with weights of single classes, which a model of other classes does not take over.
_PARTS_OF_CLASSES = ("class_encoder", "interaction")


def initialize(
    model: tf.keras.Model, task_data: TaskData, source: tf.keras.Model, source_classes: tuple[str, ...]
) -> None:
    """Copies the weights of a trained model that fit a new one, and logs the others by name.

    A weight fits if the same layer has one of its shape, and weights of single classes if both models rank
    the same classes in the same order. A class encoder keeps vectors that are not trained: those of the new
    model's texts. If no weight fits, it raises ValueError.
    """
    if isinstance(model, models.ItemModel) or isinstance(source, models.ItemModel):
        pairs = [("items", model, source)]
    else:
        pairs = [
            (part, getattr(model, part), getattr(source, part))
            for part in models.RankModel.PARTS
            if part != "words"
        ]
    if hasattr(model, "rank_sorter"):
        pairs.append(("rank_sorter", model.rank_sorter, getattr(source, "rank_sorter", None)))
    same_classes = task_data.class_names == source_classes
    copied = []
    others = []
    for part, target_layer, source_layer in pairs:
        weights = "trainable_weights" if part == "class_encoder" else "weights"
        targets = getattr(target_layer, weights, [])
        sources = list(getattr(source_layer, weights, []))
        sources += [None] * (len(targets) - len(sources))
        for target, weight in zip(targets, sources):  # noqa: B905, surplus weights of the source fit nothing
            name = f"{part}/{target.name.removesuffix(':0')} {target.shape.as_list()}"
            of_classes = part in _PARTS_OF_CLASSES and target.shape[:1] == [len(task_data.class_names)]
            if weight is None or weight.shape != target.shape or (of_classes and not same_classes):
                others.append(name)
            else:
                target.assign(weight)
                copied.append(name)
    if not copied:
        raise ValueError("no weight of the run fits this model. Choose a run with the same encoder.")
    logging.info("%d of %d weights are those of init_from", len(copied), len(copied) + len(others))
    for name in others:
        logging.info("not in init_from, newly initialized: %s", name)
