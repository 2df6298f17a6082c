"""The registry of datasets: unknown names and options."""

import pytest

from rank4class import data


def test_unknown_names_and_options():
    with pytest.raises(ValueError, match=r"dataset='digit': unknown. Did you mean 'digits'\? There are: "):
        data.get("digit")
    with pytest.raises(ValueError, match="path: dataset 'digits' has no such option. It has: none"):
        data.get("digits", path="x")
