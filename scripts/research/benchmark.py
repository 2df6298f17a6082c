"""Measures time and memory of a suite, relative to baselines measured in the same run.

python -m rank4class.scripts.research.benchmark --suite=losses --json=losses.jsonl
"""

import dataclasses

from absl import flags

from rank4class.scripts import cli
from rank4class.scripts.research.benchmarks import suites

_SUITE = flags.DEFINE_enum("suite", "losses", suites.names(), "Suite to measure.")
_SIZES = flags.DEFINE_list("sizes", None, "Sizes, such as 64x1000; None: those of the suite.")
_NAMES = flags.DEFINE_list("names", None, "Entries of the suite to measure; None: all.")
_JSON = flags.DEFINE_string("json", None, "File for the results, one JSON object per row.")


def main() -> None:
    from rank4class.pipelines.reporting import tables
    from rank4class.pipelines.storage import files
    from rank4class.scripts.research.benchmarks import measurement

    measured: list[measurement.Row] = []
    if _JSON.value:
        try:
            open(_JSON.value, "a", encoding="utf-8").close()
        except OSError as error:  # before the measurement
            raise ValueError(
                f"--json={_JSON.value}: cannot be written ({error.strerror}). Choose another file."
            ) from error
    for rows in measurement.run(_SUITE.value, _SIZES.value, _NAMES.value or ()):
        title = f"{rows[0].suite}, {rows[0].size}"
        print(f"\n{title}\n\n{tables.text_table(measurement.table(rows))}", flush=True)
        measured += rows
        if _JSON.value:
            with open(_JSON.value, "w", encoding="utf-8") as file:
                file.writelines(f"{files.to_json(dataclasses.asdict(row))}\n" for row in measured)


if __name__ == "__main__":
    cli.run(main)
