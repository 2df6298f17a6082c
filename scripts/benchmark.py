"""Time and memory of the losses or the metrics, as ratios to baselines measured in the same run.

python -m rank4class.scripts.benchmark --suite=losses --json=losses.jsonl
"""

from absl import flags

from rank4class.pipelines import benchmark, report
from rank4class.scripts import main as door

_SUITE = flags.DEFINE_enum("suite", "losses", benchmark.SUITES, "What to measure.")
_SIZES = flags.DEFINE_list("sizes", list(benchmark.SIZES), "Batch sizes and numbers of classes.")
_NAMES = flags.DEFINE_list("names", None, "Which losses or metrics; all by default.")
_JSON = flags.DEFINE_string("json", None, "File for one JSON object a row and line.")


def main():
    lines = []
    if _JSON.value:
        open(_JSON.value, "w", encoding="utf-8").close()  # what cannot be written is better known now
    for rows in benchmark.run(_SUITE.value, _SIZES.value, _NAMES.value or None):
        print(f"\n{rows[0].suite}, {rows[0].size}\n\n{report.text_table(benchmark.table(rows))}", flush=True)
        lines += map(benchmark.to_json, rows)
        if _JSON.value:
            with open(_JSON.value, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    door.run(main)
