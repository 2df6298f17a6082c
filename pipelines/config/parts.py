"""The parts of an experiment: dataset, encoder, class encoder, interaction, loss, and the others of `PARTS`.

A part is the name of an entry of a registry with values for its options. `Loss("rankmax", k=5)` has the
options of `rankmax` as fields. The annotated attributes of a part's class are fields too: those in `derived`
of the entries with an argument from which the framework makes them, the others of all entries of the kind.
"""

import inspect
import itertools
import os
import typing
from collections.abc import Iterable
from typing import Any, ClassVar

from rank4class import registry, strict_json
from rank4class.registry import REQUIRED, Option, Registry, did_you_mean


class Part:
    """A part of an experiment, created by name: `Loss("rankmax", k=5)`.

    Attributes:
      kind: name of the experiment's field that holds the part.
      entries: the registry of the functions or classes.
      default: the entry used where none is chosen.
      provided: arguments that the framework provides; they are no fields.
      derived: argument -> fields of the entries that have this argument; others read their defaults.
      others: names of entries that the framework implements; they have no options.
      fields: name -> `registry.Option`, without the name of the entry.

    Raises:
      ValueError: an unknown name or field; the message lists close matches.

    >>> Loss("rankmax", k=5).k
    5
    >>> Loss("rankmax", kk=5)
    Traceback (most recent call last):
    ...
    ValueError: loss.kk: loss 'rankmax' has no such option. Did you mean 'k'? It has: temperature, k, \
final_temperature, prior_temperature.
    """

    __slots__ = ("__dict__", "fields")
    kind: ClassVar[str]
    entries: ClassVar[Registry]
    default: ClassVar[str]
    provided: ClassVar[tuple[str, ...]] = ()
    derived: ClassVar[dict[str, tuple[str, ...]]] = {}
    others: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str | None = None, **values: Any):
        name = self.default if name is None else name
        self.fields = self.fields_of(name)
        vars(self).update({"name": name, **{field: each.default for field, each in self.fields.items()}})
        self.check_fields(values)
        vars(self).update(values)

    if typing.TYPE_CHECKING:  # the fields depend on the entry
        name: str
        fields: dict[str, Option]

        def __getattr__(self, field: str) -> Any: ...

    def __setattr__(self, field: str, value: Any) -> None:
        if field == "name" or field not in (*vars(self), "fields"):
            raise AttributeError(f"{self!r} has no field {field!r}. Create a {type(self).__name__} with it.")
        object.__setattr__(self, field, value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        values = (f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({', '.join(values)})"

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of all entries."""
        return (*cls.others, *cls.entries)

    @classmethod
    def fields_of(cls, name: str) -> dict[str, Option]:
        """Returns the fields of an entry; raises ValueError if there is none of that name."""
        annotations = inspect.get_annotations(cls).items()
        declared = {n: Option(kind, getattr(cls, n)) for n, kind in annotations if n != "derived"}
        fields: dict[str, Option] = {}
        derived: list[str] = []
        for option, (kind, default) in cls._options(name).items():
            derived += cls.derived.get(option, ())
            if option in (*cls.provided, "name"):  # Keras layers have a name of their own
                continue
            if kind is not None:
                fields[option] = Option(kind | None, None) if default is REQUIRED else Option(kind, default)
            elif default is REQUIRED:
                raise ValueError(
                    f"{cls.kind}={name!r}: argument {option!r} has no default, and no type of a number, a "
                    "string, a bool or a tuple of these. Annotate it."
                )
        common = [n for n in declared if n not in itertools.chain(*cls.derived.values())]
        return fields | {n: declared[n] for n in (*derived, *common) if n not in fields}

    @classmethod
    def _options(cls, name: str) -> dict[str, Option]:
        try:
            return {} if name in cls.others else cls.entries.options(name)
        except ValueError as error:
            raise ValueError(f"{cls.kind}={name!r}: unknown. {cls.suggestion(name)}") from error

    @classmethod
    def suggestion(cls, name: str) -> str:
        """Returns the remedy for an unknown name."""
        return f"{did_you_mean(str(name), cls.names())}There are: {', '.join(cls.names())}."

    def check_fields(self, names: Iterable[str]) -> None:
        """Raises ValueError for a name that is no field of this entry."""
        for name in names:
            if name not in self.fields and name != "name":
                having = [entry for entry in self.names() if name in self.fields_of(entry)]
                remedy = f"Choose an entry that has it with --{self.kind}: {', '.join(having)}. "
                remedy = remedy if having else did_you_mean(name, self.fields)
                raise ValueError(
                    f"{self.kind}.{name}: {self.entries.kind} {self.name!r} has no such option. {remedy}"
                    f"It has: {', '.join(self.fields) or 'none'}."
                )

    def options(self) -> dict[str, Any]:
        """Returns the options of the entry; without those that are required and not set."""
        options = {n: option for n, option in self._options(self.name).items() if n not in self.provided}
        values = {name: getattr(self, name) for name in self.fields if name in options}
        return {n: v for n, v in values.items() if v is not None or options[n].default is not REQUIRED}

    def changed(self) -> dict[str, Any]:
        """Returns the fields that differ from their defaults, the name from that of the default entry."""
        defaults = {"name": self.default} | {name: field.default for name, field in self.fields.items()}
        return {name: value for name, value in vars(self).items() if value != defaults[name]}

    def swapped(self, name: str) -> "Part":
        """Returns the part of another entry; changed fields that it has as well keep their values."""
        fields = self.fields_of(name)
        return type(self)(name, **{key: value for key, value in self.changed().items() if key in fields})


class Data(Part):
    """The dataset, and how its examples are prepared.

    The dataset "memory" is a `data.Dataset` that the program passes to `rank4class.train`.

    Attributes:
      max_length: number of tokens of a text, or of each of its windows.
      windows: largest number of windows of a text, each of which shares a quarter of its tokens with the one
        before; the vectors of windows are averaged.
      image_size: height and width of images that are read from files.
      augmentation: of the training images, "none", "flip", "affine_flip" or "random_crop"; see
        `data.preprocessing`.
      class_weights: weights of the training examples in the loss, by their class: "none", "balanced" (each
        class has the same total weight), or a file with one class per line: name, tab, weight. An example of
        several classes has the mean of their weights, one without a class the weight 1.
      max_examples: number of examples drawn from each split that has more. Validation and test keep the users
        of the training split, if examples are known by their ids alone.
      max_train_examples: the same for the training split alone.
      split_seed: seed of the splits, of `max_examples` and of `max_train_examples`.
      cache: whether each example is preprocessed once and kept in memory, texts at `max_length` tokens.
      group_by_length: whether training batches hold texts of similar lengths, which are padded to the longest
        of them; other batches are padded to the longest too.
      name_examples: largest number of examples of a class whose name is a training example too, if the
        nearest name, by a frozen text encoder, is that of the class more often than by chance; 0 takes none.
      unknown: file of inputs of no class, by which `unknown` is measured, in a form that predictions take;
        its labels, if there are any, are not read.
      unknown_train: file of other such inputs, from which the detector of unknown inputs learns.
      held_out: classes that training and validation leave out; the test split then has the examples of these
        classes, ranked among all classes.
    """

    kind = "data"
    entries = registry.DATASETS
    default = "digits"
    others = ("memory",)
    derived: ClassVar = {"path": ("path",), "on_invalid_row": ("on_invalid_row",)}

    path: str | None = None
    on_invalid_row: str = "fail"
    max_length: int = 32
    windows: int = 1
    image_size: int = 224
    augmentation: str = "none"
    class_weights: str = "none"
    max_examples: int | None = None
    max_train_examples: int | None = None
    split_seed: int = 0
    cache: bool = False
    group_by_length: bool = True
    name_examples: int = 0
    unknown: str | None = None
    unknown_train: str | None = None
    held_out: tuple[str, ...] = ()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(cls.entries)  # a command has no data in memory


class Encoder(Part):
    """The instance encoder.

    The encoder "items" is a whole model, of instances that bring the items to rank, such as a query and its
    documents. It leaves no choice of class encoder, interaction and count prior.

    Attributes:
      frozen: whether the encoder keeps its weights; its outputs are then computed once.
      prefix: text before each text of a text encoder, with its space, such as "query: " of E5.
    """

    kind = "encoder"
    entries = registry.ENCODERS
    default = "mlp"
    provided = ("num_ids", "width")
    derived: ClassVar = {"path": ("path", "frozen"), "pooling": ("prefix",)}

    path: str | None = None
    frozen: bool = False
    prefix: str = ""

    @classmethod
    def name_of(cls, path: str | None) -> str | None:
        """Returns the encoder of a folder of Hugging Face's layout; None for another path or encoder."""
        file = os.path.join(path or "", "config.json")
        if not path or not os.path.isfile(file):
            return None
        kind = strict_json.read_object(file).get("model_type")
        name = "static" if kind == "model2vec" else kind
        return name if name in cls.entries else None

    @classmethod
    def suggestion(cls, name: str) -> str:
        remedy = super().suggestion(name)
        if "Did you mean" in remedy or not {"-", "/"} & set(str(name)):
            return remedy
        return (
            "Nothing is downloaded: set encoder.path to the folder of a checkpoint (config.json, "
            f"model.safetensors, vocab.txt or the like). {remedy}"
        )


class ClassEncoder(Part):
    """The class encoder.

    "text" encodes the names of the classes with the instance encoder, and trains it on them. "frozen_text"
    encodes them once, with the initial instance encoder or that of `path`, and trains a linear map.

    Attributes:
      init: vectors of "embedding" before training: "random", "zeros", those of the "names" by the initial
        instance encoder, the "means" of the training examples of each class by it, or a "probe": the head
        that optimizer "lbfgs" solves for it, with its bias. Names and means have length 1, so that with
        interaction "dot" the initial order is that of the cosine.
      texts: file of descriptions in place of the names, one class per line: name, tab, description.
      path: folder of another text encoder.
      residual: whether a learned vector of each class, at first 0, is added to that of its text.
    """

    kind = "class_encoder"
    entries = registry.CLASS_ENCODERS
    default = "embedding"
    provided = ("num_classes", "width", "shape", "vectors", "features", "initial")
    derived: ClassVar = {
        "initial": ("init",),
        "features": ("texts", "residual"),
        "vectors": ("texts", "path", "residual"),
    }

    init: str = "random"
    texts: str | None = None
    path: str | None = None
    residual: bool = False


class Interaction(Part):
    """The interaction between the encoded instance and the encoded classes."""

    kind = "interaction"
    entries = registry.INTERACTIONS
    default = "dot"


class Loss(Part):
    """The training loss. `gumbel_NAME` is a loss averaged over Gumbel noise on the scores.

    Attributes:
      final_temperature: the temperature changes to this value exponentially, from the first step to the last.
      rank_fn: rank function: "sigmoid", "neural_sort", "soft_sort", or a sorter, "handcrafted"
        or "equivariant".
      sorter: file of a sorter's weights; None uses the shipped weights.
      fine_tune: whether the sorter is trained on the model's scores, together with the model.
      prior_temperature: `tau` of logit adjustment, at least 0, for examples of one class. The loss is that of
        the scores plus `tau log pi`, times the temperature if it has one, in validation too; `pi` are the
        frequencies of the classes among the training examples, where a class without any counts as having
        one. All else uses the scores alone. With "softmax" 1 is balanced softmax, whose scores rank as if
        all classes were equally frequent.

    References:
      Menon, Jayasumana, Rawat, Jain, Veit, Kumar (2021), "Long-tail learning via logit adjustment", eq. 10.
      Ren, Yu, Sheng, Ma, Zhao, Yi, Li (2020), "Balanced meta-softmax for long-tailed visual recognition".
    """

    kind = "loss"
    entries = registry.LOSSES
    default = "softmax"
    provided = ("seed", "max_relevant", "rank_fn")
    derived: ClassVar = {"temperature": ("final_temperature",), "rank_fn": ("rank_fn", "sorter", "fine_tune")}

    final_temperature: float | None = None
    rank_fn: str | None = None
    sorter: str | None = None
    fine_tune: bool = False
    prior_temperature: float = 0.0

    @property
    def title(self) -> str:
        """Name of the loss in a sweep, with that of its rank function.

        >>> Loss("approx_ndcg", rank_fn="sigmoid").title, Loss("mse").title
        ('approx_ndcg@sigmoid', 'mse')
        """
        return self.name if self.rank_fn is None else f"{self.name}@{self.rank_fn}"


class Candidates(Part):
    """The classes that a training step scores.

    "all" scores all classes, "sampled" those of the batch and `count` others, and "mined" replaces a fraction
    of these by the classes that the model wrongly ranks first, as of the last evaluation. Evaluations and
    predictions rank all classes.

    Attributes:
      log_q: whether losses that sum exponentials of the scores, such as "softmax", correct for the
        probabilities of the candidates; the other losses are those of the candidates as they are.

    References: see `data.candidates`.
    """

    kind = "candidates"
    entries = registry.CANDIDATES
    default = "all"
    provided = ("split", "num_classes", "batch_size", "nearest", "padded")
    others = ("all",)
    derived: ClassVar = {"count": ("log_q",)}

    log_q: bool = True


class CountPrior(Part):
    """The distribution of the number of classes of an example, which n-choose-k models use with the scores.

    "none" has no distribution, "learned" learns it from the instance and adds its likelihood to the loss,
    "empirical" uses the training frequencies, "fixed" the given probabilities, and "poisson_binomial" assumes
    that the classes occur independently; with the loss `sigmoid_cross_entropy` that is logistic regression.
    """

    kind = "count_prior"
    entries = registry.COUNT_PRIORS
    default = "none"
    others = ("none", "empirical", "poisson_binomial")


class Thresholds(Part):
    """The thresholds of the scores above which the classes of an example that may have several are decided.

    They are fitted for each class on the validation split: "f1" has the highest F1 score, "precision" the
    highest recall with a precision of `at_least`, and "recall" the highest precision with a recall of
    `at_least`. "none" fits none. With a `confidence` the precision is that of new examples, in this fraction
    of draws of the split "calibration", which fits them then; see `Sets`.
    """

    kind = "thresholds"
    entries = registry.THRESHOLDS
    default = "none"
    provided = ("hits", "decided", "relevant")
    others = ("none",)


class Sets(Part):
    """The prediction sets, which contain the class of an example with the probability that a user chooses.

    Their examples are a part of the validation split that chooses no checkpoint and fits no temperature, the
    split "calibration". "rank" has the same number of classes for all examples, "threshold" the smallest sets
    on average, and "adaptive" a size that fits each example. "none" keeps no such examples.

    Attributes:
      fraction: of the validation examples that calibrate, in (0, 1), drawn with `data.split_seed`; a dataset
        with a split "calibration" has it instead.
      by_class: whether classes with enough calibration examples have separate limits: then the sets of each
        of them contain it with the probability. Other classes share limits in clusters, and the rest shares
        one: the sets of each group contain its classes with the probability.
    """

    kind = "sets"
    entries = registry.SET_SCORES
    default = "none"
    provided = ("probabilities", "places")
    others = ("none",)

    fraction: float = 0.5
    by_class: bool = False


class Optimizer(Part):
    """The optimizer and the schedule of its learning rate.

    "lbfgs" solves the head of a frozen encoder, or of vectors, for each strength `C` of a penalty; the best
    one is the model. It has no learning rate, and reads no `epochs`, `steps` and `batch_size`.

    Attributes:
      learning_rate: the rate before any decay.
      warmup_fraction: fraction of all steps, in [0, 1), over which the rate rises from 0. The decay begins at
        the first step too, so the rate rises to the decayed one.
      decay: "none", or "linear" or "cosine" to 0 at the last step.
      clip_norm: largest norm of the gradient of all weights; a larger gradient is scaled down.
      ema_momentum: momentum of a moving average of the weights, in (0, 1), which validation, the best
        checkpoint and the results use; None keeps no average.
      encoder_multiplier, class_encoder_multiplier, interaction_multiplier: factors of the learning rate, and
        of the weight decay, of the weights of a part.
      layer_decay: positive factor of the rate of a layer of a text encoder over that of the layer above it.
        The highest layer has it once, and the embeddings once more than the lowest.
      selection: of the best strength: by the "likelihood" of the validation examples, after a calibration to
        them, or by `monitor`, whose means over examples differ more by chance. Scores that cannot be
        calibrated are selected by `monitor`.
    """

    kind = "optimizer"
    entries = registry.OPTIMIZERS
    default = "adam"
    provided = ("schedule",)
    derived: ClassVar = {
        "schedule": (
            "learning_rate",
            "warmup_fraction",
            "decay",
            "clip_norm",
            "ema_momentum",
            "encoder_multiplier",
            "class_encoder_multiplier",
            "interaction_multiplier",
            "layer_decay",
        ),
        "C": ("selection",),
    }

    learning_rate: float = 1e-3
    warmup_fraction: float = 0.0
    decay: str = "none"
    clip_norm: float | None = None
    ema_momentum: float | None = None
    encoder_multiplier: float = 1.0
    class_encoder_multiplier: float = 1.0
    interaction_multiplier: float = 1.0
    layer_decay: float = 1.0
    selection: str = "likelihood"


PARTS: dict[str, type[Part]] = {part.kind: part for part in Part.__subclasses__()}  # as they are defined
