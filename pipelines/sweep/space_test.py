import pytest

from rank4class.pipelines import config
from rank4class.pipelines.sweep import space
from rank4class.pipelines.sweep.space import Range


@pytest.mark.parametrize(
    ("values", "value", "expected"),
    [
        ((1, 2, 3), 1, "low"),
        ((1, 2, 3), 3, "high"),
        ((3, 1, 2), 2, None),
        ((0.0, 0.5), 0.0, None),  # no value is below 0
        ((-1.0, 0.0), 0.0, "high"),
        ((0.1,), 0.1, None),
        ((False, True), True, None),
        (("adam", "adagrad"), "adam", None),
        ((None, 1.0), 1.0, None),
        ((None, 1.0, 2.0), 2.0, "high"),
        ((None, 1.0, 2.0), None, None),
        (Range(0.001, 0.1), 0.0015, "low"),  # log10(1.5) / 2 = 0.09
        (Range(0.001, 0.1), 0.0016, None),  # 0.102
        (Range(0.001, 0.1), 0.065, "high"),
        (Range(0.0, 1.0), 0.05, None),
        (Range(0.0, 1.0), 0.91, "high"),
    ],
)
def test_boundary(values, value, expected):
    assert space.boundary(values, value) == expected


def test_fields_of_parts_that_a_choice_names():
    cell = config.Experiment()
    tune = {"optimizer.weight_decay": (0.0, 0.1), "optimizer.name": ("adam", "adamw"), "loss.k": (1, 2)}
    assert space.combinations(cell, tune) == [  # Adam has no weight decay, and softmax has no k
        {"optimizer.name": "adam"},
        {"optimizer.weight_decay": 0.0, "optimizer.name": "adamw"},
        {"optimizer.weight_decay": 0.1, "optimizer.name": "adamw"},
    ]
    assert space.apply(cell, {"optimizer.weight_decay": 0.1, "optimizer.name": "adamw"}).optimizer == (
        config.Optimizer("adamw", weight_decay=0.1)
    )


def test_names_of_folders():
    long = {f"encoder.field_number_{i}": 0.123456 for i in range(6)}
    choices = ({"encoder.path": "a/b"}, {"encoder.path": "a/c"}, long)
    names = [space.folder_name("mse-dot", choice, 10000) for choice in choices]
    assert len(set(names)) == 3
    assert all(len(name) == len("mse-dot--seed10000") + 16 for name in names)


def test_parsed_values():
    cell = config.override(config.Experiment(), {"class_encoder.name": "frozen_text"})
    parsed = {
        "jit_compile": ("true,False", (True, False)),
        "optimizer.clip_norm": ("none,1", (None, 1.0)),
        "class_encoder.path": ("a:b", ("a:b",)),
        "optimizer.learning_rate": ("1e-4:0.1", Range(0.0001, 0.1)),
        "batch_size": ("8:64", Range(8, 64)),
    }
    for field, (text, expected) in parsed.items():
        assert space.parse(cell, field, text) == expected
