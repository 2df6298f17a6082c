"""File formats: text rows, JSON, IDX, TFRecords and tables of classes."""
