"""Experiments of studies; each imports its dataset."""
