"""Cells of numbers, dates and names as vectors."""

import datetime
import json

import numpy as np
import pytest
import tensorflow as tf

from rank4class.data.preprocessing.cells import CellEncoder

CELLS = np.array(
    [
        ["1.5", "2024-02-29", "red", "a"],
        ["", "2024-03-01 17:30", "blue", "b"],
        [" 2e1 ", "", "red", "c"],
        ["-4", "1969-12-31T05:00:00Z", "blue", "d"],
        ["0", "1900-01-01", "green", "e"],
    ],
    object,
)


def encoded(encoder, cells):
    return encoder({"cells": tf.constant(cells, tf.string)})["embedding"].numpy()


def days_of(date):
    return (datetime.date.fromisoformat(date) - datetime.date(1970, 1, 1)).days


def test_vectors_by_hand():
    encoder = CellEncoder.fit(CELLS)
    assert [column["kind"] for column in encoder.settings["columns"]] == ["number", "date", "names", "names"]
    vectors = encoded(encoder, CELLS)
    # The number and whether it is missing, five parts of the date and whether it is missing, blue, red; no
    # name of the last column repeats, and "green" is there once.
    assert vectors.shape == (5, 2 + 6 + 2)
    np.testing.assert_allclose(vectors[0], [1.5, 0, days_of("2024-02-29"), 2, 29, 3, 0, 0, 0, 1])
    np.testing.assert_allclose(vectors[1], [0.75, 1, days_of("2024-03-01"), 3, 1, 4, 17, 0, 1, 0])
    medians = [(days_of("2024-02-29") - 1) / 2, 2.5, 15, 2.5, 2.5]
    np.testing.assert_allclose(vectors[2], [20, 0, *medians, 1, 0, 1])
    np.testing.assert_allclose(vectors[3], [-4, 0, -1, 12, 31, 2, 5, 0, 1, 0])
    np.testing.assert_allclose(vectors[4], [0, 0, days_of("1900-01-01"), 1, 1, 0, 0, 0, 0, 0])


def test_dates_are_those_of_python():
    dates = [datetime.date(1600, 1, 1) + datetime.timedelta(days=997 * i) for i in range(300)]
    cells = np.array([[date.isoformat()] for date in dates], object)
    expected = [[(d - datetime.date(1970, 1, 1)).days, d.month, d.day, d.weekday(), 0] for d in dates]
    np.testing.assert_array_equal(encoded(CellEncoder.fit(cells), cells), expected)


def test_a_few_cells_of_a_column_of_numbers_may_be_none(caplog):
    cells = np.array([[str(i)] for i in range(19)] + [["1,5"]], object)
    [column] = CellEncoder.fit(cells).settings["columns"]
    assert column == {"kind": "number", "values": [9.0], "is_missing": True}
    assert "1 cells of a column of numbers are none, such as '1,5': they count as missing" in caplog.text


def test_cells_that_training_did_not_have():
    encoder = CellEncoder.from_settings(json.loads(json.dumps(CellEncoder.fit(CELLS).settings)))
    missing = encoded(encoder, [["", "", "", ""]])
    strange = encoded(
        encoder, [["many", "31.12.2023", "pink", "z"], ["1e99", "soon", "RED", ""], ["nan", "", "", ""]]
    )
    np.testing.assert_array_equal(strange, np.repeat(missing, 3, axis=0))
    assert missing[0, [1, 7]].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("cells", [["1", "x", "y"], ["2024-01-01", "2024-13-01"], ["1", "2024-01-01"]])
def test_a_column_of_unlike_cells_has_names(cells):
    [column] = CellEncoder.fit(np.array([[cell] for cell in cells * 2], object)).settings["columns"]
    assert column == {"kind": "names", "levels": sorted(cells)}


def test_scaled_values_have_mean_0_and_a_mean_square_of_1():
    encoder = CellEncoder.fit_scaled(CELLS)
    plain = encoded(CellEncoder.fit(CELLS), CELLS)
    scaled = encoder.rows(CELLS)
    varies = plain.std(axis=0) > 0.0
    expected = (plain - plain.mean(axis=0))[:, varies] / plain.std(axis=0)[varies] / np.sqrt(varies.sum())
    np.testing.assert_allclose(scaled[:, varies], expected, rtol=1e-5, atol=1e-6)
    assert not scaled[:, ~varies].any()
    assert np.square(scaled).sum(axis=1).mean() == pytest.approx(1.0, rel=1e-5)
    again = CellEncoder.from_settings(json.loads(json.dumps(encoder.settings)))
    np.testing.assert_array_equal(again.rows(CELLS), scaled)
    constant = CellEncoder.fit_scaled(np.array([["0.1", str(i % 7)] for i in range(90)], object))
    assert not constant.rows(np.array([["0.5", "3"]], object))[:, 0].any()  # no rounding is a deviation
