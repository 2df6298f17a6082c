"""The registry: unknown names and knobs."""

import pytest

from rank4class import data


def test_unknown_names_and_knobs():
    with pytest.raises(
        ValueError, match=r"unknown dataset 'digit', did you mean 'digits'\?; there are: digits"
    ):
        data.get("digit")
    with pytest.raises(ValueError, match="dataset 'digits' has no knob 'path'; it has: none"):
        data.get("digits", path="x")
