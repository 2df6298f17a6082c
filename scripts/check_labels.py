r"""Lists labels that look wrong, with the class that the other examples suggest.

    python -m rank4class.scripts.check_labels comments.csv
    python -m rank4class.scripts.check_labels comments.csv --apply=runs/labels/comments/labels.csv

Every training, validation and test example is judged by all others. The second command writes the file with
the labels of the column correct_label, which a person fills in a spreadsheet.
"""

import os

from absl import flags

from rank4class.scripts import cli

_CONFIG = cli.define_config()
cli.define_cache()
_OUTPUT = flags.DEFINE_string(
    "output", None, "Folder of the report; None: runs/labels/NAME, of the file or dataset."
)
_APPLY = flags.DEFINE_string(
    "apply",
    None,
    "Table of the report with correct labels, by which files are corrected: CSV, TSV or JSON lines.",
)


def main() -> None:
    from rank4class.pipelines.reporting import label_report
    from rank4class.pipelines.task_data import checks, loading

    experiment = label_report.for_vectors(_CONFIG.value)
    checks.check(experiment, trains=False)
    folder = cli.report_folder(_OUTPUT.value, "labels", experiment)
    if _APPLY.value:
        corrected = os.path.join(folder, "corrected")
        count, written = label_report.apply(_APPLY.value, experiment.data, corrected)
        print(f"{count:,} labels corrected: {', '.join(written)}")
        return
    report = label_report.LabelReport(loading.load_data(experiment, folder))
    table = os.path.join(folder, label_report.TABLE)
    commands = [f"rank4class check_labels {experiment.data.path} --apply={table}"] if report.can_apply else []
    print(f"\n{report.text()}\n\nReport: {report.write(folder, commands)}\nTable: {table}")
    for command in commands:
        print(f"To correct labels, fill the last column of the table, then:\n  {command}")


if __name__ == "__main__":
    cli.run(main, lambda: cli.check_files(_CONFIG.value), arguments=["config.data.path"])
