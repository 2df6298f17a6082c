r"""Trains on a table of handwritten digits: an answer, sets, an unknown input, and a verdict on rare classes.

    python -m rank4class.scripts.demo --workdir=runs/demo

It writes the tables and runs three commands that it prints.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time

from absl import flags

from rank4class.scripts import cli

_WORKDIR = flags.DEFINE_string("workdir", "runs/demo", "Folder of the tables and the runs.")
_SEEDS = flags.DEFINE_integer("seeds", 5, "Number of seeds of the sweep.", lower_bound=1)
_SHOWN = 1500  # a digit of which the model is not sure


def main() -> None:
    from rank4class.pipelines.storage import files

    folder = _WORKDIR.value
    started = time.monotonic()
    files.make_writable(folder)
    _write_tables(folder)
    steps = {
        "1. A table of 64 columns of pixels and the digit, 1,797 rows.": (
            f"train {folder}/digits.csv --workdir={folder}/digits --sets=adaptive --unknown=0.05"
        ),
        "2. A digit between 1 and 3, whose set has both, and a cross. The scores take the cross for a 2 with "
        "99.9%;\nunknown=1 says that it looks like none of the training, which 5% of the digits do too.": (
            f"predict {folder}/digits {folder}/new.csv --coverage=0.9"
        ),
        "3. Rare classes: 107 training images of the digit 0, fewer of each next one, 2 of the digit 9.\n"
        "With loss.prior_temperature=1 the training adds the logarithm of the frequencies to the scores.": (
            f"sweep --config=digits_mlp --workdir={folder}/long_tail --losses=softmax --interactions=dot "
            "--config.data.imbalance=50 --config.optimizer.learning_rate=0.01 "
            f"--vary=loss.prior_temperature=0,1 {' '.join(f'--seed={i}' for i in range(_SEEDS.value))}"
        ),
    }
    for title, command in steps.items():
        print(f"\n{title}\n\n$ rank4class {command}", flush=True)
        finished = subprocess.run([sys.executable, "-m", "rank4class", *shlex.split(command)], check=False)
        if finished.returncode:
            sys.exit(finished.returncode)
    print(f"\n{time.monotonic() - started:.0f} s. Open {folder}/digits/report.html, and try next:\n")
    # `make demo` runs in an environment that is not active.
    place = "" if shutil.which("rank4class") else f"{os.path.relpath(os.path.dirname(sys.executable))}/"
    for command in (
        f"rank4class serve {folder}/digits",
        f"rank4class check_labels {folder}/digits.csv",
        f"tensorboard --logdir {folder}/long_tail",
    ):
        print(f"  {place}{command}")


def _write_tables(folder: str) -> None:
    """Writes `digits.csv`, and `new.csv` with a digit and a cross, which is none."""
    import numpy as np
    import sklearn.datasets

    digits = sklearn.datasets.load_digits(as_frame=True)
    table = digits.frame.rename(columns={"target": "label"})
    table.to_csv(os.path.join(folder, "digits.csv"), index=False)
    new = digits.data.iloc[[_SHOWN, _SHOWN]].assign(id=["digit", "cross"])
    new.iloc[1, :64] = 16.0 * np.maximum(np.eye(8), np.eye(8)[::-1]).ravel()
    new.to_csv(os.path.join(folder, "new.csv"), index=False)


if __name__ == "__main__":
    cli.run(main, resumes=True)
