"""Sorting tasks: seeds, disjoint parts, and the relations to be learned."""

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.metrics

from rank4class.scripts.research.sorters import sorting_tasks


@pytest.mark.parametrize("load", [sorting_tasks.relevant_vectors, sorting_tasks.pairs])
def test_seed_determines_the_task(load):
    first, again, other = load(seed=3), load(seed=3), load(seed=4)
    assert tuple(first) == sorting_tasks.PARTS
    for part in sorting_tasks.PARTS:
        for values, same in zip(first[part], again[part], strict=True):
            assert values.dtype == np.float32
            np.testing.assert_array_equal(values, same)
        assert (first[part][0] != other[part][0]).any()
    rows = [row.tobytes() for features, *_ in first.values() for row in features]
    assert len(set(rows)) == len(rows)  # the parts are disjoint


def test_a_fifth_is_relevant_and_linear_models_predict_it_poorly():
    parts = sorting_tasks.relevant_vectors(seed=0)
    for vectors, relevant in parts.values():
        assert relevant.mean() == pytest.approx(0.2, abs=1e-3)
        assert set(relevant[:, 0]) == {0.0, 1.0}
        assert vectors.mean() == pytest.approx(0.0, abs=0.02)
    vectors, relevant = parts["train"]
    model = sklearn.linear_model.LogisticRegression().fit(vectors, relevant[:, 0])
    test_vectors, test_relevant = parts["test"]
    precision = sklearn.metrics.average_precision_score(test_relevant, model.decision_function(test_vectors))
    assert 0.3 < precision < 0.7


def test_views_of_a_pair_are_related():
    parts = sorting_tasks.pairs(seed=0)
    (first, second, _), (test_first, test_second, _) = parts["train"], parts["test"]
    # A linear prediction of the second view generalizes to new pairs, but not to reordered ones.
    model = sklearn.linear_model.LinearRegression().fit(first, second)
    assert model.score(test_first, test_second) > 0.3
    assert model.score(test_first, test_second[::-1]) < 0.0


def test_table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("kind,size,price\na,,3\n" + "".join(f"{'ab'[i % 2]},{i},{2 * i}\n" for i in range(20)))
    parts = sorting_tasks.table(path, "price", seed=0)
    assert {name: features.shape for name, (features, _) in parts.items()} == {
        "train": (12, 3),
        "validation": (4, 3),
        "test": (4, 3),
    }
    for features, targets in parts.values():
        np.testing.assert_allclose(features[:, 0], targets, rtol=1e-5)  # both are linear in the row's number
        np.testing.assert_allclose(features[:, 1], -features[:, 2], rtol=1e-5)  # "a" or "b"


def test_invalid_tables(tmp_path):
    for content, message in (
        (b"price,kind\n1,a\n", "target='kind': no column of numbers of .*table.csv. Choose another"),
        (b"", "not a CSV file with a header: No columns to parse from file. Correct it."),
        (b"price\n\xff\n", "not a CSV file with a header: 'utf-8' codec can't decode"),
        (b"price,size\n" + b"1,2\n" * 9 + b"1,inf\n", "only 9 complete rows. Use a larger table."),
    ):
        path = tmp_path / "table.csv"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            sorting_tasks.table(path, "kind" if b"kind" in content else "price", seed=0)
