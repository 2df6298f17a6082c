"""Sorting tasks: seeds, disjoint parts, and the relations to be learned."""

import numpy as np
import pytest

from rank4class.scripts.research.sorters import sorting_tasks


@pytest.mark.parametrize("load", [sorting_tasks.relevant_vectors, sorting_tasks.pairs])
def test_seed_determines_the_task(load):
    first = load(seed=3)
    again = load(seed=3)
    other = load(seed=4)
    assert tuple(first) == sorting_tasks.PARTS
    for part in sorting_tasks.PARTS:
        for values, same in zip(first[part], again[part], strict=True):
            assert values.dtype == np.float32
            np.testing.assert_array_equal(values, same)
        assert (first[part][0] != other[part][0]).any()
    rows = [row.tobytes() for features, *_ in first.values() for row in features]
    assert len(set(rows)) == len(rows)  # the parts are disjoint


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
