"""Every encoder, class encoder, interaction and count prior by name, in one place."""

import difflib
import inspect
import re

from rank4class.models import class_encoders, count_priors, encoders, interactions, item_model

ENCODERS = {
    "identity": encoders.Identity,
    "embedding": encoders.InstanceEmbedding,
    "mlp": encoders.Mlp,
    "small_cnn": encoders.SmallCnn,
    "vgg16": encoders.Vgg16.from_checkpoint,
    "resnet50": encoders.ResNet50.from_checkpoint,
    "bert": encoders.Bert.from_checkpoint,
    "electra": encoders.Electra.from_checkpoint,
    "items": item_model.ItemModel,  # the whole of a model: it scores the items that an instance brings
}

CLASS_ENCODERS = {
    "embedding": class_encoders.Embedding,
    "text": class_encoders.Text,
    "frozen_text": class_encoders.FrozenText,
    "attention": class_encoders.Attention,
}

INTERACTIONS = {
    "dot": interactions.Dot,
    "lc_mlp": interactions.LatentCrossMlp,
    "concat_mlp": interactions.ConcatMlp,
    "bilinear": interactions.Bilinear,
    "cosine": interactions.Cosine,
}

COUNT_PRIORS = {
    "learned": count_priors.LearnedCounts,
    "fixed": count_priors.FixedCounts,
}

PARTS = {
    "encoder": ENCODERS,
    "class encoder": CLASS_ENCODERS,
    "interaction": INTERACTIONS,
    "count prior": COUNT_PRIORS,
}


def get(part, name, **knobs):
    """Returns a part of a rank model by name.

    Args:
      part: "encoder", "class encoder", "interaction" or "count prior".
      name: see `PARTS[part]`.
      **knobs: the part's own.

    Raises:
      ValueError: see `check`.

    >>> get("encoder", "mlp", hidden=(32,)).width
    32
    """
    check(part, name, knobs)
    return PARTS[part][name](**knobs)


def knobs_of(part, name):
    """Returns the names of what can be set of a part.

    Raises:
      ValueError: an unknown name; the message lists the known ones.

    >>> knobs_of("interaction", "lc_mlp")
    ('units', 'dropout')
    """
    table = PARTS[part]
    if name not in table:
        close = difflib.get_close_matches(name.replace("-", "_"), table, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        if part == "encoder" and not close and re.search("[-/]", name):  # as published checkpoints are named
            hint = (
                ", and nothing is downloaded. Set encoder.name to 'bert' or 'electra', and encoder.path to "
                "the folder of a checkpoint (config.json, model.safetensors, vocab.txt)"
            )
        raise ValueError(f"unknown {part} {name!r}{hint}; there are: {', '.join(table)}")
    return tuple(_parameters(table[name]))


def check(part, name, knobs):
    """Raises ValueError for an unknown name, a knob that the part does not have, or one that it lacks."""
    known = knobs_of(part, name)
    for knob in knobs:
        if knob not in known:
            raise ValueError(f"{part} {name!r} has no knob {knob!r}; it has: {', '.join(known) or 'none'}")
    parameters = _parameters(PARTS[part][name])
    for knob in known:
        if parameters[knob].default is inspect.Parameter.empty and knob not in knobs:
            raise ValueError(f"{part} {name!r} needs {knob!r}")


def _parameters(factory):
    # Of a class, its constructor's: what Python 3.10 takes for a Keras class's own signature is empty.
    target = factory.__init__ if inspect.isclass(factory) else factory
    parameters = inspect.signature(target).parameters
    return {name: parameter for name, parameter in parameters.items() if name not in ("self", "kwargs")}
