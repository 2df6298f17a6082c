"""Export of a run for ONNX Runtime, and what it costs."""

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import compat, data, models
from rank4class.data.dataset import map_splits
from rank4class.pipelines.evaluation import comparison, detector
from rank4class.pipelines.evaluation.trained_model import TrainedModel
from rank4class.pipelines.export import onnx_graph, onnx_model
from rank4class.pipelines.export.answers import Answers
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import write_json
from rank4class.pipelines.task_data.inputs import Inputs
from rank4class.pipelines.task_data.task_data import TaskData

_SHOWN = 0.9  # coverage in the report
_REPETITIONS = {1: 200, 64: 20}  # texts -> timed calls


def usage(inputs: Inputs) -> str:
    """Returns a program that loads an ONNX model, for the model card."""
    example = '["a text", "another"]' if inputs.tokenizer else "array"
    return f"""from rank4class.pipelines.export.onnx_model import OnnxModel  # imports no TensorFlow

model = OnnxModel("FOLDER")
print(model.predict({example}, k=3))"""


def save(
    trained: TrainedModel,
    folder: str,
    card: Callable[[Answers], str],
    coverage: float | None = None,
    quantize: str = "none",
    max_loss: float | None = None,
) -> dict[str, Any]:
    """Writes a model to a folder for `onnx_model.OnnxModel`, all files or none; returns its report.

    The files are, of texts, `tokenizer.json`, `encoder.onnx`, from tokens to vectors, and `words.npz`, if
    there are words; `answers.onnx`, from vectors or arrays to all outputs of `Answers.score`; `model.json`,
    with the names of the classes; `report.json` and the model card, `README.md`.

    With "int8" the matrices of the encoder have eight bits, with a scale for each column, and so have their
    inputs, with a scale for each batch: the scores of a text depend a little on the others in its batch.
    Calibration, thresholds, prediction sets and detector are then fitted anew to its scores of the validation
    and calibration splits, and the report compares it with the run on the test split. The data of the
    training have to be here.

    Args:
      trained: the model.
      folder: must not exist.
      card: function of the answers to the model card.
      coverage: of prediction sets, see `Answers`.
      quantize: "none" or "int8".
      max_loss: largest loss of top-1 error by the quantization, in points; None is any.

    Returns:
      "bytes" of all files; "milliseconds" of 1 and 64 texts, median and 99th percentile, on this machine; and
      if quantized the "test" metrics, name -> of the run, of the export, their difference and its interval,
      and "changed", the share of inputs whose first class is another, in percent.

    Raises:
      ValueError: the model has a part that the export lacks, or the loss is larger.
      FileNotFoundError: the data of the training are not here.
    """
    _check(trained, folder, quantize)
    inputs = trained.description.inputs
    report: dict[str, Any] = {}
    with files.new_folder(folder) as partial, tempfile.TemporaryDirectory() as temporary:
        if inputs.tokenizer is not None:
            _write_encoder(trained, partial, temporary, quantize)
        described = {
            "classes": trained.description.class_names,
            "several": trained.description.multi_label,
            "coverage": coverage,
            "prefix": inputs.tokenizer and inputs.tokenizer.prefix,
            "columns": inputs.file_columns(trained.experiment.data.options())._asdict(),
        }
        write_json(os.path.join(partial, onnx_model.DESCRIPTION), described)
        of_vectors = _of_vectors(trained) if inputs.tokenizer else trained
        if quantize == "int8":
            _write_answers(Answers(of_vectors, coverage), os.path.join(partial, onnx_model.ANSWERS))
            model = onnx_model.OnnxModel(partial)
            original = trained.load_task()
            task_data = _encoded(original, model)
            of_vectors = _refitted(of_vectors, task_data)
            report = _compare(trained, original, of_vectors, task_data)
            loss = report["test"]["top1_error"]["difference"]
            if max_loss is not None and loss > max_loss:
                raise ValueError(
                    f"max_loss={max_loss}: quantization raises the top-1 error by {loss:.2f} points. Raise "
                    "it, or set quantize to 'none'."
                )
        answers = Answers(of_vectors, coverage)
        _write_answers(answers, os.path.join(partial, onnx_model.ANSWERS))
        files.write(os.path.join(partial, "README.md"), card(answers))
        sizes = sum(os.path.getsize(os.path.join(partial, name)) for name in os.listdir(partial))
        report |= {"bytes": sizes, "milliseconds": _milliseconds(onnx_model.OnnxModel(partial))}
        write_json(os.path.join(partial, "report.json"), report)
    return report


def _write_encoder(trained: TrainedModel, folder: str, temporary: str, quantize: str) -> None:
    """Writes the files of a model of texts between strings and the features of the answers."""
    inputs: Any = trained.description.inputs
    onnx = compat.import_extra("onnx", "onnx")
    path, plain = (os.path.join(place, onnx_model.ENCODER) for place in (folder, temporary))
    graph = onnx_graph.of_encoder(inputs.encoder or trained.model.encoder)
    onnx.save(graph, plain if quantize == "int8" else path)
    if quantize == "int8":
        _quantize(plain, path)
    write_tokenizer(inputs.tokenizer, os.path.join(folder, onnx_model.TOKENIZER))
    if inputs.words is not None:
        _write_words(trained, os.path.join(folder, onnx_model.WORDS))


def _check(trained: TrainedModel, folder: str, quantize: str) -> None:
    """Raises ValueError for a model that the export does not take, or a folder that is not local."""
    if not files.is_local(folder):
        raise ValueError(f"output={folder}: ONNX's files are written to a disk. Choose a folder there.")
    described = trained.description
    inputs = described.inputs
    experiment = trained.experiment
    encoder: Any = inputs.encoder or getattr(trained.model, "encoder", None)
    tokenizer = inputs.tokenizer
    is_of_arrays = inputs.specs.keys() in ({"embedding"}, {"image"}) and inputs.words is None
    for is_wrong, reason in (
        (
            tokenizer is None and not is_of_arrays,
            "takes texts, vectors and images in memory. It has no decoder of images",
        ),
        (
            tokenizer is not None and not isinstance(encoder, (models.encoders.Bert, models.encoders.Static)),
            "needs a text encoder of BERT's family or static vectors",
        ),
        (tokenizer is not None and encoder.TOKENIZER != "WordPiece", "needs a tokenizer WordPiece"),
        (tokenizer is not None and tokenizer.windows > 1, "has no data.windows"),
        ("text_pair" in inputs.specs, "has no pairs of texts"),
        (inputs.cells is not None, "has no columns beside texts"),
        (
            "features" in models.CLASS_ENCODERS.options(experiment.class_encoder.name),
            f"has no class encoder {experiment.class_encoder.name!r}",
        ),
        (experiment.count_prior.name != "none", "has no count prior"),
    ):
        if is_wrong:
            raise ValueError(f"format='onnx': the export {reason}. Set it to 'saved_model'.")
    if quantize != "none" and tokenizer is None:
        raise ValueError(f"quantize={quantize!r}: of encoders of texts. Set it to 'none'.")


def _quantize(source: str, target: str) -> None:
    quantization = compat.import_extra("onnxruntime.quantization", "onnx")
    # Operators of ONNX Runtime state no type of their outputs, which are all float32.
    options = {"DefaultTensorType": compat.import_extra("onnx", "onnx").TensorProto.FLOAT}
    int8 = quantization.QuantType.QInt8
    with compat.without_warnings():  # of graphs that are not prepared, as of images
        quantization.quantize_dynamic(
            source, target, per_channel=True, weight_type=int8, extra_options=options
        )


def write_tokenizer(tokenizer: data.Tokenizer, path: str) -> None:
    """Writes a `WordPiece` as a file of Hugging Face's package tokenizers."""
    tokenizers = compat.import_extra("tokenizers", "onnx")
    settings, special = tokenizer.settings, tokenizer.special
    vocab = settings["vocab"]
    _, longest = settings["words"]
    ids = {piece: i for i, piece in enumerate(vocab)}
    model = tokenizers.models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=longest)
    fast = tokenizers.Tokenizer(model)
    lower = settings["lower_case"]
    fast.normalizer = tokenizers.normalizers.BertNormalizer(strip_accents=lower, lowercase=lower)
    fast.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    start, end = vocab[special.start], vocab[special.end]
    fast.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(start, special.start), (end, special.end)]
    )
    fast.enable_truncation(settings["max_length"])
    fast.enable_padding(pad_id=special.padding, pad_token=vocab[special.padding])
    fast.save(path)


def _write_words(trained: TrainedModel, path: str) -> None:
    """Writes the arguments of `onnx_model.Words`."""
    words: Any = trained.description.inputs.words
    hashes, idf = words.get_weights()
    added = trained.model.words
    weight = added.weight.numpy()
    scores = {"kernel": weight * added.kernel.numpy(), "bias": weight * added.bias.numpy()}
    np.savez(path, hashes=hashes, idf=idf, **scores)


class _Given(tf.keras.layers.Layer):
    """Scores of words that are computed already."""

    def call(self, scores: tf.Tensor, class_ids: tf.Tensor | None = None) -> tf.Tensor:
        return scores


def _of_vectors(trained: TrainedModel) -> TrainedModel:
    """Returns the model of the vectors of texts, `embedding`, and the scores of their words, `words`."""
    model = trained.model
    parts = {name: getattr(model, name) for name in models.RankModel.PARTS}
    parts |= {"encoder": models.get("encoder", "identity"), "words": model.words and _Given()}
    n = len(trained.description.class_names)
    specs = {"embedding": tf.TensorSpec([None, (trained.description.inputs.encoder or model.encoder).width])}
    if model.words is not None:
        specs["words"] = tf.TensorSpec([None, n])
    described = dataclasses.replace(trained.description, inputs=Inputs(specs))
    return dataclasses.replace(trained, model=models.RankModel(num_classes=n, **parts), description=described)


def _encoded(task_data: TaskData, model: onnx_model.OnnxModel) -> TaskData:
    """Returns the task whose features are those of `_of_vectors`, by an exported model."""

    def encoded(split: data.Split) -> data.Split:
        texts: Any = split.inputs
        features = model.features(texts.tolist())
        return dataclasses.replace(split, features=features, lengths=None)

    splits = {name: split for name, split in task_data.splits.items() if name != "train"}
    return dataclasses.replace(task_data, splits=map_splits(encoded, splits), preprocess=None)


def _refitted(of_vectors: TrainedModel, task_data: TaskData) -> TrainedModel:
    """Returns the model with all that it has fitted to scores fitted anew, where the data have the split."""
    if "validation" in task_data.splits:
        of_vectors = of_vectors.refitted(task_data)
    fitted = of_vectors.detector
    if fitted is None or "calibration" not in task_data.splits:
        return of_vectors
    outputs = detector.reader(of_vectors.model, of_vectors.experiment.evaluation_batch_size)
    scores = fitted.scores_of(outputs(task_data, "calibration"))
    return dataclasses.replace(of_vectors, detector=fitted.calibrated(scores, fitted.rate))


def _write_answers(answers: Answers, path: str) -> None:
    """Writes the outputs of `Answers.score`, and the "ranking" of the classes, as an ONNX graph."""
    tf2onnx = compat.import_extra("tf2onnx", "onnx")
    onnx = compat.import_extra("onnx", "onnx")
    specs = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in answers.inputs.specs.items()}

    @tf.function(input_signature=[*specs.values()], autograph=False)
    def score(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        results = answers.score(dict(zip(specs, inputs, strict=True)))
        return {"ranking": answers.ranking(results["scores"]), **results}

    handlers: dict[str, Any] = {"UpperBound": (_upper_bound, [])}
    with compat.without_warnings():  # of the run's table of tokens, which is no part of the graph
        converted, _ = tf2onnx.convert.from_function(
            score, [*specs.values()], opset=onnx_graph.OPSET, custom_op_handlers=handlers
        )
    onnx.save(converted, path)


def _upper_bound(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """Replaces `tf.searchsorted(SORTED, VALUES, side="right")`, of `[b, N]` and `[b, m]`, in a graph."""
    types = compat.import_extra("onnx", "onnx").TensorProto
    operands, [output] = node.input, node.output
    graph.remove_node(node.name)
    axes = [graph.make_const(f"{name}/{axis}", np.array([axis])) for axis in (1, 2)]
    pairs = [
        graph.make_node("Unsqueeze", [each, axis.output[0]]).output[0]
        for each, axis in zip(operands, axes, strict=True)
    ]
    is_up_to = graph.make_node("LessOrEqual", pairs).output[0]
    ones = graph.make_node("Cast", [is_up_to], attr={"to": types.INT32}).output[0]
    graph.make_node("ReduceSum", [ones, axes[1].output[0]], attr={"keepdims": 0}, outputs=[output])


def _compare(
    trained: TrainedModel, original: TaskData, of_vectors: TrainedModel, task_data: TaskData
) -> dict[str, Any]:
    """Returns the figures of the run and of the export on the test split; see `save`."""
    results = [
        each.evaluate(of_task, "test", coverages=() if each.sets is None else (_SHOWN,))
        for each, of_task in ((trained, original), (of_vectors, task_data))
    ]
    columns = []
    for result in results:
        values = dict(zip(result.names, result.values.T, strict=True)) | {"top1_error": 1.0 - result.right}
        columns.append(values | (result.sets.metrics(_SHOWN) if result.sets else {}))
    figures = {
        each.metric: {
            "run": each.first,
            "export": each.second,
            "difference": each.difference,
            "interval": list(each.interval) if np.isfinite(each.interval).all() else None,
        }
        for each in comparison.compare_all(*columns)
    }
    calibrated = [result.calibrated for result in results if result.calibrated is not None]
    if len(calibrated) == len(results):
        before, after = (100.0 * each.after.ece for each in calibrated)
        figures["ece"] = {"run": before, "export": after, "difference": after - before}
    changed = 100.0 * float(np.mean(results[0].top_classes != results[1].top_classes))
    return {"test": figures, "changed": changed}


def _milliseconds(model: onnx_model.OnnxModel) -> dict[str, list[float]]:
    """Returns the number of inputs of a call -> median and 99th percentile of its time."""
    text = "Where is the parcel that I sent to my sister last week, and what may it cost now?"
    times = {}
    for count, repetitions in _REPETITIONS.items():
        inputs: Any = [text[: len(text) - 5 * (i % 10)] for i in range(count)]  # of different lengths
        if isinstance(model.features, onnx_model.ArrayFeatures):
            inputs = np.zeros([count, *(size or 1 for size in model.features.spec.shape[1:])])
        model.outputs(inputs)
        seconds = []
        for _ in range(repetitions):
            start = time.perf_counter()
            model.outputs(inputs)
            seconds.append(time.perf_counter() - start)
        times[str(count)] = [1e3 * float(each) for each in np.percentile(seconds, [50, 99])]
    return times
