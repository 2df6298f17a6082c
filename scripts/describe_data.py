r"""Describes a dataset: classes, lengths or image sizes, duplicates, images.

    python -m rank4class.scripts.describe_data comments.csv
    python -m rank4class.scripts.describe_data --config=goemotions_minilm \
        --config.data.path=FOLDER

For a large dataset, `--config.data.max_examples=1000` describes a sample.
"""

from absl import flags

from rank4class.scripts import cli

_CONFIG = cli.define_config()
cli.define_cache()
_OUTPUT = flags.DEFINE_string(
    "output", None, "Folder of the report; None: runs/data/NAME, of the file or dataset."
)


def main() -> None:
    from rank4class.pipelines.reporting import dataset_report
    from rank4class.pipelines.task_data import checks, loading

    experiment = _CONFIG.value
    checks.check(experiment, trains=False)
    dataset = loading.read_dataset(experiment.data)
    folder = cli.report_folder(_OUTPUT.value, "data", experiment)
    report = dataset_report.Report(experiment, dataset, folder)
    print(report.text())
    print(f"\nReport: {report.write(folder)}")


if __name__ == "__main__":
    cli.run(main, lambda: cli.check_files(_CONFIG.value), arguments=["config.data.path"])
