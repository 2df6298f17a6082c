"""Studies of sorters and of other rank functions: their names, which flags need without TensorFlow."""

LEARNED = ("cnn", "lstm", "equivariant")
TASKS = ("map", "recall", "multi_label", "regression")
RANK_FNS = ("handcrafted", *LEARNED, "neural_sort", "soft_sort")
SEEDS = (0, 1, 2, 3, 4)
