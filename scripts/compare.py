r"""Compares runs on the same examples, each with the first: by how much they differ, and whether by chance.

python -m rank4class.scripts.evaluate --workdir=runs/a --output=runs/a/test
python -m rank4class.scripts.evaluate --workdir=runs/b --output=runs/b/test
python -m rank4class.scripts.compare --scores=runs/a/test/predictions.npz --scores=runs/b/test/predictions.npz
"""

from absl import flags

from rank4class.scripts import main as door

_SCORES = flags.DEFINE_multi_string(
    "scores", None, "A predictions.npz of scripts.evaluate; repeat the flag for the others.", required=True
)


def main():
    from rank4class.pipelines.evaluation import predictions

    if len(_SCORES.value) < 2:
        raise ValueError("one predictions.npz has nothing to be compared with: give --scores twice or more")
    first, *others = _SCORES.value
    read = {path: predictions.read(path) for path in _SCORES.value}
    for other in others:
        predictions.check_same_examples(read[first], read[other], first, other)
    for other in others:
        _compare(first, other, read[first], read[other])


def _compare(first_path, second_path, first, second):
    from rank4class.pipelines.evaluation import comparison
    from rank4class.pipelines.reporting import tables

    values = [dict(zip(run.metrics.tolist(), run.values.T, strict=True)) for run in (first, second)]
    shared = [metric for metric in values[0] if metric in values[1]]
    if not shared:
        raise ValueError(f"{first_path} and {second_path} have no metric in common: train with the same ones")
    compared = [comparison.compare(metric, *(own[metric] for own in values)) for metric in shared]
    print(f"A: {first_path}\nB: {second_path}\n{len(first.origins):,} examples\n")
    print(tables.comparison_table(compared) + "\n")


if __name__ == "__main__":
    door.run(main)
