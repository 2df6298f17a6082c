"""File formats: text rows, JSON, IDX and tables of classes."""
