"""Experiments of the papers alone, which `--config` takes by name in a checkout."""
