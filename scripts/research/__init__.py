"""Reproduces, measures and draws for the papers. It may import everything, and nothing imports it."""
