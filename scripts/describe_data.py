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
    from rank4class.pipelines import description, description_report, files, problem

    experiment = _CONFIG.value
    config.check(experiment, trains=False)
    dataset = problem.read_dataset(experiment.data)
    folder = _OUTPUT.value or os.path.join("runs", "data", experiment.data.name)
    files.make_writable(folder)  # before all the data are looked at
    described = description.describe(experiment, dataset)
    print(description_report.text(described))
    print(f"\nReport with plots: {description_report.write(described, folder)}")


if __name__ == "__main__":
    door.run(main)
