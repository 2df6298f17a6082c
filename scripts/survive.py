"""Kills a training again and again, inside its saves too, and proves that it ends as if nothing had been.

    python -m rank4class.scripts.survive --output=runs/survive --kills=30 --inside_saves=10 \
        --train="--config=digits_mlp --config.epochs=100"

The training's flags are those of `train`, all but --workdir. Running time: one training, and for every kill
another start.
"""

import shlex
import signal
import sys

from absl import flags

from rank4class.scripts import main as door

_TRAIN = flags.DEFINE_string("train", None, "The training's flags, in one string.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for both runs; not there yet.", required=True)
_KILLS = flags.DEFINE_integer("kills", 30, "How often the run is killed.", lower_bound=1)
_INSIDE = flags.DEFINE_integer("inside_saves", 10, "At least so many of them inside a save.", lower_bound=0)
_SEED = flags.DEFINE_integer("seed", 0, "Every moment is drawn from it.")
_TIMEOUT = flags.DEFINE_float("timeout", 3600.0, "Seconds that one start may run.")


def main():
    from rank4class.pipelines import survival

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by an exception: what it started ends with it
    outcome = survival.survive(
        shlex.split(_TRAIN.value),
        _OUTPUT.value,
        kills=_KILLS.value,
        inside_saves=_INSIDE.value,
        seed=_SEED.value,
        timeout=_TIMEOUT.value,
    )
    print(f"\n{survival.table(outcome)}\n")
    for name in outcome.leftovers:
        print(f"left over: {name}")
    for difference in outcome.differences:
        print(survival.difference_line(difference))
    if outcome.differences:
        raise ValueError(survival.summary(outcome))
    print(survival.summary(outcome))


if __name__ == "__main__":
    door.run(main)
