r"""Describes a dataset before anyone trains on it: classes, lengths or sizes, duplicates, examples.

    python -m rank4class.scripts.describe_data --config=goemotions_minilm \
        --config.data.path=FOLDER

--config.data.max_examples=1000 makes it a quick look at a large one.
"""

import os

from absl import flags

from rank4class.pipelines import config
from rank4class.scripts import main as door

_CONFIG = door.define_config()
_OUTPUT = flags.DEFINE_string("output", None, "Folder for the report; by default runs/data/DATASET.")


def main():
    from rank4class.pipelines.reporting import dataset_report, dataset_summary
    from rank4class.pipelines.storage import files
    from rank4class.pipelines.task import loading

    experiment = _CONFIG.value
    config.check(experiment, trains=False)
    dataset = loading.read_dataset(experiment.data)
    folder = _OUTPUT.value or os.path.join("runs", "data", experiment.data.name)
    files.make_writable(folder)  # before all the data are looked at
    described = dataset_summary.describe(experiment, dataset)
    print(dataset_report.text(described))
    print(f"\nReport with plots: {dataset_report.write(described, folder)}")


if __name__ == "__main__":
    door.run(main)
