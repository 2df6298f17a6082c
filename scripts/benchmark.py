"""Time and memory of losses, metrics or interactions, as ratios to baselines measured in the same run.

python -m rank4class.scripts.benchmark --suite=losses --json=losses.jsonl
"""

from absl import flags

from rank4class.scripts import main as door

SUITES = (  # of `benchmarks.suites`
    "losses",
    "metrics",
    "interactions",
    "projections",
    "n_choose_k",
    "sorters",
    "data",
    "training",
)

_SUITE = flags.DEFINE_enum("suite", "losses", SUITES, "What to measure.")
_SIZES = flags.DEFINE_list("sizes", None, "Sizes such as 64x1000; by default the suite's own.")
_NAMES = flags.DEFINE_list("names", None, "What of the suite to measure; all by default.")
_JSON = flags.DEFINE_string("json", None, "File for one JSON object a row and line.")


def main():
    from rank4class.pipelines.reporting import tables
    from rank4class.scripts.benchmarks import measurement, suites

    sizes = suites.SUITES[_SUITE.value].sizes if _SIZES.value is None else _SIZES.value
    lines = []
    if _JSON.value:
        open(_JSON.value, "w", encoding="utf-8").close()  # what cannot be written is better known now
    for rows in measurement.run(_SUITE.value, sizes, _NAMES.value or None):
        print(
            f"\n{rows[0].suite}, {rows[0].size}\n\n{tables.text_table(measurement.table(rows))}", flush=True
        )
        lines += map(measurement.to_json, rows)
        if _JSON.value:
            with open(_JSON.value, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    door.run(main)
