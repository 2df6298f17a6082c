"""Compares losses, interactions and a correction for rare classes on handwritten digits.

python -m rank4class.scripts.demo --workdir=runs/demo
"""

import os
import shutil
import sys
import time
from typing import Any

from absl import flags

from rank4class.scripts import cli

_WORKDIR = flags.DEFINE_string("workdir", "runs/demo", "Folder of the grid.")
_SEEDS = flags.DEFINE_integer("seeds", 5, "Number of seeds.", lower_bound=1)


def main() -> None:
    from rank4class.pipelines import config
    from rank4class.pipelines.configs import digits_mlp
    from rank4class.pipelines.sweep import grid, report, space

    def compare(folder: str, title: str, base: config.Experiment, **axes: Any) -> None:
        print(f"\n{title}\n")
        root = os.path.join(_WORKDIR.value, folder)
        runs = grid.run_grid(base, root, seeds=range(_SEEDS.value), **axes)
        first = {field: space.format_value(values[0]) for field, values in axes.get("vary", {}).items()}
        report.write_grid(runs, root, baseline={**report.BASELINE, **first})

    print("rank4class: multiclass classification as ranking, on scikit-learn's handwritten digits.")
    print(f"Test metrics in percent, {_SEEDS.value} seeds each.")
    started = time.monotonic()
    compare(
        "losses",
        "1. Three losses and two interactions, on 1,078 training images.",
        digits_mlp.get_config(),
        losses=["softmax", "pairwise_logistic", "approx_ndcg"],
        interactions=["dot", "concat_mlp"],
    )
    compare(
        "long_tail",
        "2. Rare classes: 107 training images of the digit 0, fewer of each next one, 2 of the digit 9.\n"
        "With loss.prior_temperature=1 the training adds the logarithm of the frequencies to the scores.",
        config.override(digits_mlp.get_config(), {"data.imbalance": 50.0, "optimizer.learning_rate": 0.01}),
        losses=["softmax", "pairwise_logistic"],
        interactions=["dot"],
        vary={"loss.prior_temperature": [0.0, 1.0]},
    )
    print(f"\n{time.monotonic() - started:.0f} s.")
    # `make demo` runs in an environment that is not active.
    folder = "" if shutil.which("tensorboard") else f"{os.path.relpath(os.path.dirname(sys.executable))}/"
    print(f"TensorBoard: {folder}tensorboard --logdir {_WORKDIR.value}, then open http://localhost:6006")


if __name__ == "__main__":
    cli.run(main, resumes=True)
