"""Every encoder, class encoder and interaction by name, in one place."""

import difflib
import inspect

from rank4class.models import class_encoders, encoders, interactions

ENCODERS = {
    "identity": encoders.Identity,
    "mlp": encoders.Mlp,
    "small_cnn": encoders.SmallCnn,
    "bert": encoders.Bert.from_folder,
}

CLASS_ENCODERS = {
    "embedding": class_encoders.Embedding,
}

INTERACTIONS = {
    "dot": interactions.Dot,
    "lc_mlp": interactions.LatentCrossMlp,
    "concat_mlp": interactions.ConcatMlp,
}


def get_encoder(name, **knobs):
    """Returns the instance encoder of that name.

    Raises:
      ValueError: an unknown name, or a knob that this encoder does not have.

    >>> get_encoder("mlp", hidden=(32,)).width
    32
    """
    return _get("encoder", ENCODERS, name, knobs)


def get_class_encoder(name, **knobs):
    """Returns the class encoder of that name; see `get_encoder`."""
    return _get("class encoder", CLASS_ENCODERS, name, knobs)


def get_interaction(name, **knobs):
    """Returns the interaction of that name; see `get_encoder`.

    >>> get_interaction("lc_mlp", units=8).units
    8
    """
    return _get("interaction", INTERACTIONS, name, knobs)


def _get(kind, table, name, knobs):
    if name not in table:
        close = difflib.get_close_matches(name, table, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown {kind} {name!r}{hint}; there are: {', '.join(table)}")
    parameters = inspect.signature(table[name]).parameters
    known = [p for p in parameters if p != "kwargs"]
    for knob in knobs:
        if knob not in known:
            raise ValueError(f"{kind} {name!r} has no knob {knob!r}; it has: {', '.join(known) or 'none'}")
    missing = [p for p in known if parameters[p].default is inspect.Parameter.empty and not knobs.get(p)]
    if missing:
        raise ValueError(f"{kind} {name!r} needs {', '.join(missing)}")
    return table[name](**knobs)
