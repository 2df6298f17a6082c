"""Studies of sorters and of other rank functions: their names, which flags need without TensorFlow."""

import os

from rank4class import registry
from rank4class.pipelines.training.sorter_config import LEARNED

TASKS = tuple(registry.read_signatures([os.path.join(os.path.dirname(__file__), "studies.py")], "STUDIES"))
RANK_FNS = ("handcrafted", *LEARNED, "neural_sort", "soft_sort")
SEEDS = (0, 1, 2, 3, 4)
