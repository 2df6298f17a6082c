"""Datasets of studies, registered when they are imported."""
