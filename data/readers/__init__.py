"""File formats: text rows, JSON, IDX, pickled arrays, TFRecords and tables of classes."""
