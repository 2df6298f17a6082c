"""Studies of sorters and of other rank functions: their names, which flags need without TensorFlow."""

from rank4class.scripts.research.sorters.training_config import LEARNED

TASKS = ("map", "recall", "multi_label", "regression")
RANK_FNS = ("handcrafted", *LEARNED, "neural_sort", "soft_sort")
SEEDS = (0, 1, 2, 3, 4)
