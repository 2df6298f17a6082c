"""File formats: text rows, Parquet, Arrow, arrays, SVMlight, and tables of classes."""
