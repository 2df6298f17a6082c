"""The parts of an experiment: dataset, encoder, class encoder, interaction, loss, count prior, optimizer.

A part is a dataclass generated from the signature of a registered function or class. `Loss("rankmax", k=5)`
has the options of `rankmax` as fields and no others. A part's class also has the fields that apply to all
entries of its kind, and those from which the framework makes an argument: a loss with the argument
`temperature` has the field `final_temperature`.

The signatures of this package are read from its source files, so this module imports no TensorFlow. A user's
function or class is an entry once the module that registers it is imported.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import inspect
import os
import sys
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

from rank4class import registry
from rank4class.registry import Registry

ROOT = os.path.dirname(registry.__file__)
Fields = tuple[tuple[str, Any, Any], ...]  # name, type and default of each


class Part:
    """A part of an experiment, created by name: `Loss("rankmax", k=5)`.

    Attributes:
      kind: name of the experiment's field that holds the part.
      name: of the entry.
      sources: glob patterns of the files that hold the entries, relative to the package.
      registry: name of the registry's variable.
      default: the entry used where none is chosen.
      provided: arguments that the framework provides; they are no fields.
      derived: argument -> fields of the entries that have this argument.
      common: fields of all entries.
      word: for an entry in error messages; None is the kind.
      others: names of entries that the framework implements; they have no options.

    Raises:
      ValueError: an unknown name or field; the message lists close matches.

    >>> Loss("rankmax", k=5).k
    5
    >>> Loss("rankmax", kk=5)
    Traceback (most recent call last):
    ...
    ValueError: loss.kk: loss 'rankmax' has no such option. Did you mean 'k'? It has: temperature, k, \
final_temperature.
    """

    __slots__ = ()
    kind: ClassVar[str]
    sources: ClassVar[tuple[str, ...]]
    registry: ClassVar[str]
    default: ClassVar[str]
    provided: ClassVar[tuple[str, ...]] = ()
    derived: ClassVar[dict[str, Fields]] = {}
    common: ClassVar[Fields] = ()
    others: ClassVar[tuple[str, ...]] = ()
    word: ClassVar[str | None] = None
    entry: ClassVar[str | None] = None
    required: ClassVar[tuple[str, ...]]
    option_names: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]
    name: str

    if typing.TYPE_CHECKING:  # the fields depend on the entry

        def __getattr__(self, field: str) -> Any: ...

        def __setattr__(self, field: str, value: Any) -> None: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Gives entries without a derived field its default, so that it can be read of each part."""
        super().__init_subclass__(**kwargs)
        for field, _, default in (field for fields in cls.derived.values() for field in fields):
            if cls.entry is None:
                setattr(cls, field, default)

    def __new__(cls, name: str | None = None, **fields: Any) -> Part:
        generated = cls if cls.entry else cls.of(cls.default if name is None else name)
        generated.check_fields(fields)
        return object.__new__(generated)

    def __init__(self, name: str | None = None, **fields: Any):
        """Initializes the fields; generated classes replace this method."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of all entries."""
        return tuple(dict.fromkeys([*cls.others, *cls.signatures(), *cls._registered()]))

    @classmethod
    @functools.cache
    def signatures(cls) -> dict[str, list[inspect.Parameter]]:
        """Returns name -> parameters of the registered entries of this package."""
        paths = [p for s in cls.sources for p in sorted(glob.glob(os.path.join(ROOT, s))) if not _is_test(p)]
        return registry.read_signatures(paths, cls.registry)

    @classmethod
    def of(cls, name: str) -> type[Part]:
        """Returns the class of an entry; raises ValueError if there is none of that name."""
        return _generated(cls.kind, name, () if name in cls.others else tuple(cls.parameters(name)))

    @classmethod
    def of_defaults(cls, name: str, defaults: Mapping[str, Any]) -> type[Part]:
        """Returns the class of an entry that is not registered, from the defaults of its fields."""
        kind = inspect.Parameter.KEYWORD_ONLY
        fields = (inspect.Parameter(n, kind, default=d, annotation=object) for n, d in defaults.items())
        return _generated(cls.kind, name, tuple(fields))

    @classmethod
    def parameters(cls, name: str) -> list[inspect.Parameter]:
        """Returns the parameters of a registered entry."""
        if name in cls.signatures():
            return cls.signatures()[name]
        if name not in cls._registered():
            raise ValueError(f"{cls.kind}={name!r}: unknown. {cls.suggestion(name)}")
        parameters = cls._registered()[name].parameters(name)
        for p in parameters:
            if p.annotation is p.empty and p.default is p.empty and p.name not in cls.provided:
                raise ValueError(
                    f"{cls.kind}={name!r}: argument {p.name!r} has no default, and no type of a number, a "
                    "string, a bool or a tuple of these. Annotate it."
                )
        return parameters

    @classmethod
    def module_of(cls, name: str) -> str | None:
        """Returns the module that registers a user's entry; None for the entries of this package."""
        if name in cls.signatures() or name not in cls._registered():
            return None
        module = cls._registered()[name][name].__module__
        program = getattr(sys.modules["__main__"], "__file__", None)
        return os.path.abspath(program) if module == "__main__" and program else module

    @classmethod
    def _registered(cls) -> dict[str, Registry]:
        return registry.registered(cls.word or cls.kind)

    @classmethod
    def suggestion(cls, name: str) -> str:
        """Returns the remedy for an unknown name."""
        return f"{registry.did_you_mean(str(name), cls.names())}There are: {', '.join(cls.names())}."

    @classmethod
    def check_fields(cls, names: typing.Iterable[str]) -> None:
        """Raises ValueError for a name that is no field of this entry."""
        known = cls.field_names()
        for name in names:
            if name not in known and name != "name":
                kind = PARTS[cls.kind]
                having = [entry for entry in kind.names() if name in kind.of(entry).field_names()]
                remedy = registry.did_you_mean(name, known)
                if having and not remedy:
                    remedy = f"Choose an entry that has it with --{cls.kind}: {', '.join(having)}. "
                raise ValueError(
                    f"{cls.kind}.{name}: {cls.word or cls.kind} {cls.entry!r} has no such option. {remedy}"
                    f"It has: {', '.join(known) or 'none'}."
                )

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Returns the names of all fields but `name`."""
        return tuple(field.name for field in dataclasses.fields(cls) if field.name != "name")

    def options(self) -> dict[str, Any]:
        """Returns the options of the entry; without those that are required and not set."""
        values = {name: getattr(self, name) for name in self.option_names}
        return {n: value for n, value in values.items() if value is not None or n not in self.required}

    def changed(self) -> dict[str, Any]:
        """Returns the fields that differ from their defaults, the name from that of the default entry."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)} | {"name": self.default}
        return {name: getattr(self, name) for name in defaults if getattr(self, name) != defaults[name]}

    def swapped(self, name: str) -> Part:
        """Returns the part of another entry; changed fields that it has as well keep their values."""
        other = PARTS[self.kind].of(name)
        return other(**{key: value for key, value in self.changed().items() if key in other.field_names()})


def _is_test(path: str) -> bool:
    return path.endswith(("_test.py", "__init__.py"))


@functools.cache
def _generated(kind_name: str, name: str, parameters: tuple[inspect.Parameter, ...]) -> type[Part]:
    """Generates the dataclass of an entry from its parameters."""
    kind = PARTS[kind_name]
    options = [p for p in parameters if p.annotation is not p.empty and p.name not in kind.provided]
    fields: dict[str, tuple[Any, Any]] = {"name": (str, name)}
    for option in options:
        is_required = option.default is option.empty
        annotation = option.annotation | None if is_required else option.annotation
        fields[option.name] = (annotation, None if is_required else option.default)
    derived = [field for p in parameters for field in kind.derived.get(p.name, ())]
    for field, annotation, default in (*derived, *kind.common):
        fields.setdefault(field, (annotation, default))
    return dataclasses.make_dataclass(
        kind.__name__,
        [(field, type_, dataclasses.field(default=default)) for field, (type_, default) in fields.items()],
        bases=(kind,),
        namespace={
            "entry": name,
            "required": tuple(option.name for option in options if option.default is option.empty),
            "option_names": tuple(option.name for option in options),
        },
        slots=True,
    )


class Data(Part):
    """The dataset, and how its examples are prepared.

    Attributes:
      max_length: number of tokens of a text.
      image_size: height and width of images that are read from files.
      augmentation: of the training images, "none", "affine_flip" or "random_crop"; see `data.preprocessing`.
      class_weights: weights of the training examples in the loss, by their class: "none", "balanced" (each
        class has the same total weight), or a file with one class per line: name, tab, weight. An example of
        several classes has the mean of their weights, one without a class the weight 1.
      max_examples: number of examples drawn from each split that has more. Validation and test keep the users
        of the training split, if examples are known by their ids alone.
      max_train_examples: the same for the training split alone.
      label_noise: fraction of the training examples that get another class, drawn uniformly, to study losses;
        for examples of one class.
      split_seed: seed of the splits, of `max_examples`, `max_train_examples` and `label_noise`.
      cache: whether each example is preprocessed once and kept in memory, texts at `max_length` tokens.
      group_by_length: whether training batches hold texts of similar lengths, which are padded to the longest
        of them; other batches are padded to the longest too.
      held_out: classes that training and validation leave out; the test split then has the examples of these
        classes, ranked among all classes.
    """

    __slots__ = ()
    kind = "data"
    word = "dataset"
    sources = ("data/datasets/*.py",)
    registry = "DATASETS"
    default = "digits"
    path: str | None = None  # of datasets without this option
    on_invalid_row = "fail"
    common = (
        ("max_length", int, 32),
        ("image_size", int, 224),
        ("augmentation", str, "none"),
        ("class_weights", str, "none"),
        ("max_examples", int | None, None),
        ("max_train_examples", int | None, None),
        ("label_noise", float, 0.0),
        ("split_seed", int, 0),
        ("cache", bool, False),
        ("group_by_length", bool, True),
        ("held_out", tuple[str, ...], ()),
    )


class Encoder(Part):
    """The instance encoder.

    The encoder "items" is a whole model, of instances that bring the items to rank, such as a query and its
    documents. It leaves no choice of class encoder, interaction and count prior.

    Attributes:
      frozen: whether the encoder keeps its weights; its outputs are then computed once.
    """

    __slots__ = ()
    kind = "encoder"
    sources = ("models/encoders/*.py", "models/item_model.py")
    registry = "ENCODERS"
    default = "mlp"
    path: str | None = None  # of encoders without this option
    provided = ("num_ids", "width")
    derived: ClassVar[dict[str, Fields]] = {"path": (("frozen", bool, False),)}

    @classmethod
    def suggestion(cls, name: str) -> str:
        remedy = super().suggestion(name)
        if "Did you mean" in remedy or not {"-", "/"} & set(str(name)):
            return remedy
        return (
            "Nothing is downloaded: set encoder.name to 'bert' or 'electra', and encoder.path to the folder "
            f"of a checkpoint (config.json, model.safetensors, vocab.txt). {remedy}"
        )


_TEXTS: Fields = (("texts", str | None, None),)


class ClassEncoder(Part):
    """The class encoder, and self-attention among the classes on top of it.

    "text" encodes the names of the classes with the instance encoder, and trains it on them. "frozen_text"
    encodes them once, with the initial instance encoder or that of `path`, and trains a linear map.

    Attributes:
      init: vectors of "embedding" before training: "random", "zeros", those of the "names" by the initial
        instance encoder, or the "means" of the training examples of each class by it. The latter two have
        length 1, so that with interaction "dot" the initial order is that of the cosine.
      texts: file of descriptions in place of the names, one class per line: name, tab, description.
      path: folder of another text encoder.
      attention_layers: number of self-attention blocks.
      attention_heads: heads of each block.
      attention_dropout: dropout rate of the blocks, in [0, 1).
    """

    __slots__ = ()
    kind = "class_encoder"
    sources = ("models/class_encoders.py",)
    registry = "CLASS_ENCODERS"
    default = "embedding"
    provided = ("num_classes", "width", "shape", "vectors", "features", "initial")
    derived: ClassVar[dict[str, Fields]] = {
        "initial": (("init", str, "random"),),
        "features": _TEXTS,
        "vectors": (*_TEXTS, ("path", str | None, None)),
    }
    common = (
        ("attention_layers", int, 0),
        ("attention_heads", int, 4),
        ("attention_dropout", float, 0.0),
    )


class Interaction(Part):
    """The interaction between the encoded instance and the encoded classes."""

    __slots__ = ()
    kind = "interaction"
    sources = ("models/interactions.py",)
    registry = "INTERACTIONS"
    default = "dot"


class Loss(Part):
    """The training loss. `gumbel_NAME` is a loss averaged over Gumbel noise on the scores.

    Attributes:
      final_temperature: the temperature changes to this value exponentially, from the first step to the last.
      rank_fn: rank function: "sigmoid", "neural_sort", "soft_sort", or a sorter, "handcrafted", "cnn", "lstm"
        or "equivariant".
      sorter: file of a sorter's weights; None uses the shipped weights.
      fine_tune: whether the sorter is trained on the model's scores, together with the model.
      l1_epochs: number of epochs with the mean absolute error, of weight `l1`; None: all.
    """

    __slots__ = ()
    kind = "loss"
    sources = ("losses/*.py",)
    registry = "LOSSES"
    default = "softmax"
    provided = ("seed", "max_relevant", "rank_fn")
    derived: ClassVar[dict[str, Fields]] = {
        "temperature": (("final_temperature", float | None, None),),
        "rank_fn": (
            ("rank_fn", str | None, None),
            ("sorter", str | None, None),
            ("fine_tune", bool, False),
        ),
        "l1": (("l1_epochs", float | None, None),),
    }

    @property
    def title(self) -> str:
        """Name of the loss in a sweep, with that of its rank function.

        >>> Loss("approx_ndcg", rank_fn="lstm").title, Loss("mse").title
        ('approx_ndcg@lstm', 'mse')
        """
        rank_fn = getattr(self, "rank_fn", None)
        return self.name if rank_fn is None else f"{self.name}@{rank_fn}"

    @classmethod
    def parameters(cls, name: str) -> list[inspect.Parameter]:
        noiseless = str(name).removeprefix("gumbel_")
        if name in cls.signatures() or noiseless == name or noiseless not in cls.signatures():
            return super().parameters(name)
        noise = cls.signatures()["gumbel_approx_ndcg"]
        return [*cls.signatures()[noiseless], *(p for p in noise if p.name in NOISE_OPTIONS)]


NOISE_OPTIONS = ("samples", "gumbel_temperature")


class CountPrior(Part):
    """The distribution of the number of classes of an example, which n-choose-k models use with the scores.

    "none" has no distribution, "learned" learns it from the instance and adds its likelihood to the loss,
    "empirical" uses the training frequencies, "fixed" the given probabilities, and "poisson_binomial" assumes
    that the classes occur independently; with the loss `sigmoid_cross_entropy` that is logistic regression.
    """

    __slots__ = ()
    kind = "count_prior"
    sources = ("models/count_priors.py",)
    registry = "COUNT_PRIORS"
    default = "none"
    others = ("none", "empirical", "poisson_binomial")


class Optimizer(Part):
    """The optimizer and the schedule of its learning rate.

    Attributes:
      learning_rate: the rate before any decay.
      warmup_fraction: fraction of all steps, in [0, 1), over which the rate rises from 0. The decay begins at
        the first step too, so the rate rises to the decayed one.
      decay: "none", "linear" or "cosine", the latter two to 0 at the last step, or "step".
      decay_epochs: number of epochs after which "step" multiplies the learning rate, each time.
      decay_factor: the factor of "step", in (0, 1).
      clip_norm: largest norm of the gradient of all weights; a larger gradient is scaled down.
      ema_momentum: momentum of a moving average of the weights, in (0, 1), which validation, the best
        checkpoint and the results use; None keeps no average.
    """

    __slots__ = ()
    kind = "optimizer"
    sources = ("pipelines/config/optimizers.py",)
    registry = "OPTIMIZERS"
    default = "adam"
    provided = ("schedule",)
    common = (
        ("learning_rate", float, 1e-3),
        ("warmup_fraction", float, 0.0),
        ("decay", str, "none"),
        ("decay_epochs", float | None, None),
        ("decay_factor", float, 0.5),
        ("clip_norm", float | None, None),
        ("ema_momentum", float | None, None),
    )


PARTS: dict[str, type[Part]] = {
    part.kind: part for part in (Data, Encoder, ClassEncoder, Interaction, Loss, CountPrior, Optimizer)
}
