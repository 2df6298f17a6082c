"""One dataset per file; `registry.DATASETS` imports the file of a dataset."""
