r"""Trains a grid of losses, interactions and seeds, and writes a report.

    python -m rank4class.scripts.sweep --config=goemotions_minilm_frozen \
        --config.data.path=FOLDER --workdir=runs/goemotions_grid \
        --tune=optimizer.learning_rate=0.001,0.003,0.01,0.03
"""

from absl import flags

from rank4class.scripts import cli

_CONFIG = cli.define_config()
cli.define_cache()
cli.define_log()
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the grid.", required=True)
_LOSSES = flags.DEFINE_list(
    "losses",
    ["softmax", "pairwise_logistic", "approx_ndcg", "gumbel_approx_ndcg", "mse"],
    "Losses of the grid.",
)
_INTERACTIONS = flags.DEFINE_list(
    "interactions", ["dot", "lc_mlp", "concat_mlp"], "Interactions of the grid."
)
_VARY = flags.DEFINE_multi_string(
    "vary",
    [],
    "FIELD=VALUE,VALUE,...: values of a field to compare, each with each loss and interaction. Repeat the "
    "flag for more fields.",
)
_SEEDS = flags.DEFINE_multi_integer("seed", [0, 1, 2, 3, 4], "Seed of the runs; repeat the flag for more.")
_TUNE = flags.DEFINE_multi_string(
    "tune",
    [],
    "FIELD=VALUE,VALUE,... or FIELD=LOW:HIGH: values of a field; the best on the validation split are "
    "selected for each loss and interaction. Repeat the flag to search several fields together. Ranges need "
    "--trials.",
)
_BASELINE = flags.DEFINE_string(
    "baseline",
    None,
    "LOSS,INTERACTION, and after a comma the value of each --vary: the cell to compare the others with. The "
    "default is softmax,dot with the first values, if the grid has it.",
)
_MARGIN = flags.DEFINE_float(
    "margin", 0.5, "Largest difference that counts as equivalent, in percentage points.", lower_bound=0.0
)
_JOBS = flags.DEFINE_integer(
    "jobs",
    None,
    "Runs to train at once, in separate processes; each takes one GPU where there are several. None: 1, or "
    "one for each worker of --executor.",
)
_EXECUTOR = flags.DEFINE_string(
    "executor",
    "processes",
    "Trains the runs: processes of this machine, or dask:tcp://HOST:PORT, the workers of a Dask cluster, "
    "which see --workdir and the data at the same paths.",
)
_OPTIONS = (  # of `grid.run_grid`
    flags.DEFINE_integer(
        "trials",
        None,
        "Choices that TPE proposes for each loss and interaction, if there are more combinations; without "
        "it, all combinations are tried.",
    ),
    flags.DEFINE_integer(
        "tuning_seeds", 3, "Runs of each trial, with the seeds 10000, 10001, ...; the mean counts."
    ),
    flags.DEFINE_bool("pictures", False, "Whether TensorBoard shows pictures of each run."),
)


def main() -> None:
    from rank4class.pipelines.sweep import grid, parallel, report

    base = _CONFIG.value
    cells = {"losses": _LOSSES.value, "interactions": _INTERACTIONS.value}
    cells["vary"] = grid.parse_values("vary", _VARY.value, base, **cells)
    tune = grid.parse_values("tune", _TUNE.value, base, **cells)
    grid.check_overrides(cli.overrides(), base, **cells, tune=tune)
    for part, axis in (("loss", _LOSSES), ("interaction", _INTERACTIONS)):
        name = flags.FLAGS[part].value
        if name is not None and name not in [title.partition("@")[0] for title in axis.value]:
            raise ValueError(f"--{part}={name}: not in --{axis.name}. Add it there, or leave it out.")
    if flags.FLAGS["tuning_seeds"].present and not tune:
        raise ValueError("--tuning_seeds: nothing is tuned. Add --tune, or leave it out.")
    baseline = report.parse_baseline(_BASELINE.value, grid.build_cells(base, **cells), cells["vary"])
    options = {flag.name: flag.value for flag in _OPTIONS}
    with parallel.connect(_EXECUTOR.value) as (executor, workers):
        options |= {"executor": executor, "jobs": workers if _JOBS.value is None else _JOBS.value}
        runs = grid.run_grid(base, _WORKDIR.value, seeds=_SEEDS.value, tune=tune, **cells, **options)
    report.write_grid(runs, _WORKDIR.value, baseline=baseline, margin=_MARGIN.value)
    print(f"TensorBoard: tensorboard --logdir {_WORKDIR.value}")


if __name__ == "__main__":
    cli.run(main, arguments=["config.data.path"], workdir="runs/{}_sweep", resumes=True)
