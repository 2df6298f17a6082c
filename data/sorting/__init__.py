"""Data for learned sorters and for losses on ranks."""
