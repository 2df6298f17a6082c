"""A run's folder: what it holds, whose it is, and what a restart may trust.

config.json      the experiment
data.json        hashes of the classes and of each split's examples
class_texts.json what described the classes, where something did
metrics.jsonl    one line an evaluation: step, training loss, learning rate, validation metrics
tensorboard/     the same for TensorBoard
checkpoints/     last/ to resume from, best/ by the monitored metric
features-*.npz   a frozen encoder's outputs
results.json     written once, at the end
"""

import json
import os

from rank4class.pipelines import config


class Workdir:
    """The folder of one experiment's run."""

    def __init__(self, path):
        if "[" in path:
            raise ValueError(
                f"{path} has a bracket, by which TensorFlow looks for checkpoints of other names"
            )
        self.path = path
        self.checkpoints = os.path.join(path, "checkpoints")
        self.tensorboard = os.path.join(path, "tensorboard")
        self._config = os.path.join(path, "config.json")
        self._data = os.path.join(path, "data.json")
        self._class_texts = os.path.join(path, "class_texts.json")
        self._metrics = os.path.join(path, "metrics.jsonl")
        self._results = os.path.join(path, "results.json")

    def check_owner(self, experiment):
        """Raises ValueError where the folder belongs to another experiment."""
        if not os.path.exists(self._config):
            return
        difference = config.first_difference(self.experiment(), experiment)
        if difference:
            field, there, here = difference
            raise ValueError(
                f"{self.path} holds another experiment: {field} is {there!r} there and {here!r} here; "
                "choose another --workdir"
            )

    def check_data(self, hashes):
        """Raises ValueError where the run was made with other classes or examples.

        Args:
          hashes: `problem.Problem.hashes`.
        """
        if not os.path.exists(self._data):
            return
        with open(self._data, encoding="utf-8") as file:
            kept = _parse(file.read(), self._data)
        for name, value in hashes.items():
            if kept.get(name) != value:
                what = "classes" if name == "classes" else f"examples of the {name} split"
                raise ValueError(
                    f"{self.path} was made with other {what}: restore the data, or choose another --workdir"
                )

    def check_class_texts(self, texts):
        """Raises ValueError where the run was made with other texts of the classes."""
        if not os.path.exists(self._class_texts):
            return
        with open(self._class_texts, encoding="utf-8") as file:
            kept = _parse(file.read(), self._class_texts)["texts"]
        if kept != list(texts):
            raise ValueError(
                f"{self.path} was made with other class texts: restore those in {self._class_texts}, or "
                "choose another --workdir"
            )

    def claim(self, experiment, hashes, class_texts=None):
        """Makes the folder this experiment's own; raises OSError where it cannot be written."""
        if not os.path.exists(self._config):
            os.makedirs(self.path, exist_ok=True)
            _write(self._data, json.dumps(hashes, indent=2) + "\n")
            if class_texts is not None:
                _write(self._class_texts, json.dumps({"texts": class_texts}, indent=2) + "\n")
            _write(self._config, config.to_json(experiment))

    def experiment(self):
        """Returns the experiment that the folder belongs to.

        Raises:
          FileNotFoundError, ValueError: there is none, or it is broken.
        """
        if not os.path.exists(self._config):
            raise FileNotFoundError(f"{self.path} is not a run's folder: it has no config.json")
        with open(self._config, encoding="utf-8") as file:
            return config.from_json(file.read(), self._config)

    def results(self):
        """Returns the finished run's results, or None."""
        if not os.path.exists(self._results):
            return None
        with open(self._results, encoding="utf-8") as file:
            return _parse(file.read(), self._results)

    def write_results(self, results):
        _write(self._results, json.dumps(results, indent=2) + "\n")

    def history(self):
        """Returns the evaluations so far, oldest first."""
        if not os.path.exists(self._metrics):
            return []
        with open(self._metrics, encoding="utf-8") as file:
            return [
                _parse(line, f"{self._metrics}:{number}")
                for number, line in enumerate(file, 1)
                if line.endswith("\n")
            ]

    def write_history(self, history):
        _write(self._metrics, "".join(json.dumps(line) + "\n" for line in history))


def _parse(text, where):
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{where} is damaged ({error.msg}): remove it, or choose another --workdir"
        ) from error
    if not isinstance(parsed, dict):
        raise ValueError(f"{where} is damaged (no JSON object): remove it, or choose another --workdir")
    return parsed


def _write(path, text):
    """Writes a whole file or nothing."""
    partial = f"{path}.partial"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(partial, path)
