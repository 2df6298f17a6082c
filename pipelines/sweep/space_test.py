import pytest

from rank4class.pipelines import config
from rank4class.pipelines.sweep import space
from rank4class.pipelines.sweep.space import Range


@pytest.mark.parametrize(
    ("values", "end", "expected"),
    [
        ((0.01, 0.1), "high", 1.0),  # equal ratios
        ((0.01, 0.1), "low", 0.001),
        ((0.001, 0.003, 0.01, 0.03), "high", 0.1),  # the ratios 3 and 10 / 3 in turn
        ((0.001, 0.003, 0.01, 0.03), "low", 0.0003),
        ((0.03, 0.001, 0.003, 0.01), "high", 0.1),  # in any order
        ((0.1, 0.2, 0.3), "high", 0.4),  # equal steps
        ((0.1, 0.2, 0.3), "low", 0.0),
        ((0.1, 0.3, 0.5), "low", 0.0),  # not negative
        ((64, 128, 256), "high", 512),
        ((64, 128), "low", 32),
        ((1, 2), "low", 0),  # half of 1 is no integer
        ((1, 2, 3), "high", 4),
        ((0.0, 0.5), "high", 1.0),  # no ratio to 0
        ((0, 1, 10), "high", 100),
        ((-1.0, 1.0), "low", -3.0),
        ((10_001.0, 10_002.0, 10_003.0), "high", 10_004.0),  # four digits would be below the last value
        ((-10.0, -1.0, 1.0), "low", -100.0),
    ],
)
def test_a_list_is_continued(values, end, expected):
    wider = space.widen(values, end)
    assert wider == (*values, expected)
    assert type(wider[-1]) is type(values[-1])
    assert space.outermost(wider, end) == expected


@pytest.mark.parametrize(
    ("values", "end", "expected"),
    [
        (Range(0.00001, 0.1), "high", Range(0.00001, 1.0)),  # a quarter of four decades
        (Range(0.00001, 0.1), "low", Range(0.000001, 0.1)),
        (Range(0.2, 0.6), "high", Range(0.2, 0.7)),
        (Range(0.1, 0.7), "low", Range(0.0, 0.7)),  # not negative
        (Range(-1.0, 1.0), "low", Range(-1.5, 1.0)),
        (Range(4, 12), "high", Range(4, 14)),
        (Range(4, 64), "low", Range(2, 64)),
        (Range(1, 64), "low", Range(1, 64)),  # there is no lower positive integer
        (Range(0.5, 4.5), "high", Range(0.5, 5.5, False)),  # the scale stays, although the ratio exceeds 10
    ],
)
def test_a_range_becomes_wider_by_a_quarter(values, end, expected):
    assert space.widen(values, end) == expected


def test_the_inserted_value_of_a_range_is_in_its_new_part():
    assert space.inserted(Range(8, 16), Range(8, 18), "high") == 17
    assert space.inserted(Range(0.2, 0.6), Range(0.1, 0.6), "low") == 0.15
    assert space.inserted(Range(4, 64), Range(1, 64), "low") == 2


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
    assert space.fields_of(cell, tune) == ["optimizer.weight_decay", "optimizer.name"]
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
    names = [
        space.folder_name("mse-dot", choice, 10000)
        for choice in ({"encoder.path": "a/b"}, {"encoder.path": "a/c"}, long)
    ]
    assert len(set(names)) == 3
    assert all(len(name) == len("mse-dot--seed10000") + 16 for name in names)


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        (
            "optimizer.learning_rate",
            "0.1:0.1",
            "0.1:0.1': an empty range. Write LOW:HIGH with LOW below HIGH.",
        ),
        ("optimizer.learning_rate", "0.1:lots", "='lots': not a number. Write a number."),
        ("steps", "none:3", "none:3': an empty range."),
        ("batch_size", "8.5", "batch_size='8.5': not an integer. Write an integer."),
        ("jit_compile", "1", "jit_compile='1': not true or false. Write true or false."),
        ("encoder.hidden", "8", "encoder.hidden: holds several values. Choose another field."),
    ],
)
def test_texts_that_state_no_values(field, text, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        space.parse(config.Experiment(), field, text)


def test_parsed_values():
    cell = config.override(config.Experiment(), {"class_encoder.name": "frozen_text"})
    parsed = {
        "jit_compile": ("true,False", (True, False)),
        "optimizer.clip_norm": ("none,1", (None, 1.0)),
        "class_encoder.path": ("a:b", ("a:b",)),
        "optimizer.learning_rate": ("1e-4:0.1", Range(0.0001, 0.1, True)),
        "batch_size": ("8:64", Range(8, 64, False)),
    }
    for field, (text, expected) in parsed.items():
        assert space.parse(cell, field, text) == expected
