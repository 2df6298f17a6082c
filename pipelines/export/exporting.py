"""The export of a run in any format."""

import functools
import os
from typing import Any

from rank4class import arguments
from rank4class.pipelines import config
from rank4class.pipelines.evaluation.trained_model import TrainedModel
from rank4class.pipelines.export import onnx_export, saved_model, text_encoder
from rank4class.pipelines.export.answers import Answers
from rank4class.pipelines.export.approximate import ApproximateAnswers
from rank4class.pipelines.reporting.model_card import model_card
from rank4class.pipelines.storage import files


def export(
    trained: TrainedModel,
    folder: str | os.PathLike,
    k: int | None,
    coverage: float | None,
    index: str,
    format: str,
    neighbors: int | None,
    quantize: str,
    max_loss: float | None,
) -> dict[str, Any] | None:
    """Exports a model; returns the report of an ONNX model, or None. See `Run.export` for the arguments."""
    arguments.check_choice(config.EXPORT_INDICES, index=index)
    arguments.check_choice(config.EXPORT_FORMATS, format=format)
    arguments.check_choice(config.QUANTIZATIONS, quantize=quantize)
    folder = files.check_folder_name("output", os.fspath(folder).rstrip("/"))
    if files.exists(folder):
        raise FileExistsError(f"output={folder}: exists already. Choose another folder, or remove it.")
    if format != "onnx" and quantize != "none":
        raise ValueError(f"quantize={quantize!r}: of ONNX models. Set format to 'onnx'.")
    if quantize == "none" and max_loss is not None:
        raise ValueError(f"max_loss={max_loss}: nothing is quantized. Set quantize to 'int8'.")
    has_options = k is not None or index != "exact" or neighbors is not None
    if format in ("huggingface", "static"):
        if has_options or coverage is not None:
            raise ValueError(
                f"format={format!r}: exports no classes. Leave out top_k, coverage, index and neighbors."
            )
        text_encoder.save(trained, folder, format)
        return None
    if format == "onnx":
        if has_options:
            raise ValueError(f"format={format!r}: scores all classes. Leave out top_k, index and neighbors.")
        card = functools.partial(_card, trained, coverage, onnx_export.usage(trained.description.inputs))
        return onnx_export.save(trained, folder, card, coverage, quantize, max_loss)
    num_classes = len(trained.description.class_names)
    if trained.description.inputs.kind.ranks_items and k is not None:
        raise ValueError(f"top_k={k}: a model of lists of items ranks all of them. Leave it out.")
    if (coverage is not None or neighbors is not None) and index != "exact":
        raise ValueError(f"index={index!r}: has neither prediction sets nor neighbors. Set it to 'exact'.")
    if k is None:
        k = min(5, num_classes) if coverage is None else num_classes
    if index == "exact":
        answers = Answers(trained, coverage, None, neighbors)
    else:
        answers = ApproximateAnswers(trained, k)
    saved_model.save(answers, folder, k, _card(trained, coverage, saved_model.usage(answers), answers))
    return None


def _card(trained: TrainedModel, coverage: float | None, usage: str, answers: Answers) -> str:
    """Returns the model card of an export that answers as `answers` do."""
    run_dir = trained.run_dir
    of_run = run_dir.results(), run_dir.data_hashes(), run_dir.sessions()
    fitted = answers.sets, coverage, answers.detector and trained.detector
    return model_card(trained.experiment, trained.description.class_names, *of_run, usage, *fitted)
