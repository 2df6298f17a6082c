"""Export of a run's model as a SavedModel that takes raw inputs."""

import os
import tempfile
import threading
from typing import Any

import tensorflow as tf

from rank4class.pipelines.export.answers import Answers
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import write_json

_SAVING = threading.Lock()  # the state in which Keras traces models belongs to the process


def save(answers: Answers, folder: str | os.PathLike, k: int, card: str) -> None:
    """Writes a SavedModel for `tf.saved_model.load`, TensorFlow Serving and `saved_model_cli`.

    Its signatures take the raw features as named inputs, such as `text` `[B]`:

    - `classify`, the default: `classes`, `scores` and `probabilities` of the `k` best classes, `[B, k]`, and
      `in_set` for those that are decided; or `rank` for lists of items: their `positions` and `scores`, the
      best first.
    - `score`: the `scores` of all classes, `[B, n]`, with `probabilities` and `in_set`.
    - `encode`: the `vectors` of the inputs, `[B, d]`; `encode_classes`, without inputs, those of the classes.

    A program that loads a model of texts has to import `tensorflow_text`. The names of the classes are the
    asset `classes.txt`, the model card is `README.md`, thresholds are in `thresholds.json`, and the limits of
    prediction sets in `prediction_sets.json`. The folder appears whole or not at all.
    """
    answers.check_k(k)
    specs = {
        name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in answers.specs_of_batch().items()
    }

    def signature(function: Any) -> Any:
        return tf.function(function, autograph=False).get_concrete_function(**specs)

    signatures = {"score": signature(lambda **features: answers.score(features))}
    if answers.has_items:
        best = "rank"
        signatures[best] = signature(lambda **features: answers.rank(features))
    else:
        best = "classify"
        signatures[best] = signature(lambda **features: answers.classify(features, k))
        signatures["encode"] = signature(lambda **features: answers.encode(features))
        encode_classes = tf.function(answers.encode_classes, autograph=False, input_signature=[])
        signatures["encode_classes"] = encode_classes.get_concrete_function()
    signatures["serving_default"] = signatures[best]
    with _SAVING, tempfile.TemporaryDirectory() as temporary:
        path = os.path.join(temporary, "classes.txt")
        files.write(path, "".join(f"{files.printable(name)}\n" for name in answers.class_names))
        answers.class_names_file = tf.saved_model.Asset(path)
        with files.new_folder(folder) as partial:
            options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)  # of no use there
            tf.saved_model.save(answers, partial, signatures, options)
            files.write(os.path.join(partial, "README.md"), card)
            if answers.thresholds is not None:
                write_json(os.path.join(partial, "thresholds.json"), answers.thresholds.to_json())
            if (sets := answers.sets) is not None:
                limits = {"coverage": answers.coverage, "limits": answers.limits.tolist()}
                described = {"score": sets.name, "options": dict(sets.options), **limits}
                write_json(os.path.join(partial, "prediction_sets.json"), described)


def usage(answers: Answers) -> str:
    """Returns a program that loads the SavedModel, for the model card."""
    signature = "rank" if answers.has_items else "classify"
    kind = answers.inputs.kind
    columns = answers.inputs.columns
    inputs = [f"{name}=tf.constant({kind.usage.get(name, '...')})" for name in answers.specs]
    inputs += ["excluded=..."] if answers.has_items else []
    lines = [f"# The columns of {', '.join(answers.specs)}: {', '.join(columns)}"] if columns else []
    lines += ["import tensorflow as tf"]
    if kind.tokenizes:
        lines.append("import tensorflow_text  # the operations of the tokenizer")
    lines += [
        "",
        'model = tf.saved_model.load("FOLDER")',
        f'print(model.signatures["{signature}"]({", ".join(inputs)}))',
    ]
    return "\n".join(lines)
