r"""Compares runs with the first one on the same examples: differences, intervals and tests.

python -m rank4class.scripts.evaluate --workdir=runs/a --output=runs/a/test
python -m rank4class.scripts.evaluate --workdir=runs/b --output=runs/b/test
python -m rank4class.scripts.compare --scores=runs/a/test/predictions.npz --scores=runs/b/test/predictions.npz
"""

from absl import flags

from rank4class.scripts import cli

_SCORES = flags.DEFINE_multi_string(
    "scores", None, "A predictions.npz of `rank4class evaluate`; repeat the flag for each run.", required=True
)


def main() -> None:
    from rank4class.pipelines.evaluation import comparison, predictions
    from rank4class.pipelines.reporting import tables

    first_path, *paths = _SCORES.value
    if not paths:
        raise ValueError(f"--scores={first_path}: there is only one file. Repeat --scores for each run.")
    first, *others = runs = list(map(predictions.read, _SCORES.value))
    for path, other in zip(paths, others, strict=True):
        predictions.check_same_examples(first, other, first_path, path)
    first_values, *values = (dict(zip(run.metrics.tolist(), run.values.T, strict=True)) for run in runs)
    for path, other, second_values in zip(paths, others, values, strict=True):
        same_weights = predictions.have_same_weights(first, other)
        comparisons = comparison.compare_all(first_values, second_values, same_weights=same_weights)
        if not comparisons:
            raise ValueError(
                f"--scores={path}: no metric in common with {first_path}. "
                "Train both runs with the same metrics."
            )
        print(f"A: {first_path}\nB: {path}\n{len(first.origins):,} examples\n")
        print(tables.comparison_table(comparisons) + "\n")


if __name__ == "__main__":
    cli.run(main)
