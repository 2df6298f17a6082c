"""Trains three losses and three interactions on handwritten digits, with five seeds each.

python -m rank4class.scripts.demo --workdir=runs/demo
"""

import os
import shutil
import sys
import time

from absl import flags

from rank4class.scripts import cli

_WORKDIR = flags.DEFINE_string("workdir", "runs/demo", "Folder of the grid.")
_SEEDS = flags.DEFINE_integer("seeds", 5, "Number of seeds.", lower_bound=1)


def main() -> None:
    from rank4class.pipelines.configs import digits_mlp
    from rank4class.pipelines.sweep import grid, report

    print("rank4class: multiclass classification as ranking, on scikit-learn's handwritten digits.")
    print(f"3 losses x 3 interactions x {_SEEDS.value} seeds; the figures are test metrics in percent.\n")
    started = time.monotonic()
    runs = grid.run_grid(
        digits_mlp.get_config(),
        _WORKDIR.value,
        losses=["softmax", "pairwise_logistic", "approx_ndcg"],
        interactions=["dot", "lc_mlp", "concat_mlp"],
        seeds=range(_SEEDS.value),
    )
    report.write_grid(runs, _WORKDIR.value, baseline=report.BASELINE)
    print(f"{len(runs)} runs in {time.monotonic() - started:.0f} s.")
    # `make demo` runs in an environment that is not active.
    folder = "" if shutil.which("tensorboard") else f"{os.path.relpath(os.path.dirname(sys.executable))}/"
    print(f"TensorBoard: {folder}tensorboard --logdir {_WORKDIR.value}, then open http://localhost:6006")


if __name__ == "__main__":
    cli.run(main, resumes=True)
