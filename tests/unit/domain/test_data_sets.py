from __future__ import annotations

import pytest

from domain import data_sets, errors
from domain.data_sets import DataFacts
from domain.models import TensorSpec


def spec(name: str, dtype: str, *shape: int | str | None) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def facts(*arrays: TensorSpec) -> DataFacts:
    return DataFacts(arrays=arrays, rows=int(arrays[0].shape[0] or 0))


PICTURES = spec("x", "float32", 200, 3, 8, 8)
CLASSES = spec("labels", "int64", 200)
SCORES = spec("y", "float32", "batch", 10)


@pytest.mark.parametrize(
    ("array", "wanted", "rows", "runs"),
    [
        (PICTURES, spec("x", "float32", 1, 3, 8, 8), 1, 200),
        (PICTURES, spec("x", "float32", 16, 3, 8, 8), 16, 12),
        (spec("x", "float32", 9, 16000), spec("x", "float32", 16000), 1, 9),
        (spec("x", "float32", 9, 2, 1, 64), spec("x", "float32", 2, 1, 64), 1, 9),
        (spec("x", "float32", 9), spec("x", "float32"), 1, 9),
        (spec("x", "float32", 9), spec("x", "float32", 3), 3, 3),
    ],
)
def test_a_row_is_a_sample_of_the_batch_or_a_whole_input(
    array: TensorSpec, wanted: TensorSpec, rows: int, runs: int
) -> None:
    found = data_sets.fit(facts(array), [wanted], [SCORES])
    assert (found.rows, found.runs, found.labels) == (rows, runs, None)


def test_inputs_of_a_run_take_the_same_rows() -> None:
    ids, state = spec("ids", "int64", 8, 32), spec("state", "float32", 8, 2, 1, 64)
    inputs = [spec("ids", "int64", 1, 32), spec("state", "float32", 2, 1, 64)]
    assert data_sets.fit(facts(ids, state), inputs, []).runs == 8
    batched = [spec("ids", "int64", 4, 32), inputs[1]]
    with pytest.raises(errors.DataMismatch, match="4 rows of 'ids' and 1 of 'state'"):
        data_sets.fit(facts(ids, state), batched, [])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([spec("z", "float32", 4, 3)], "lacks 'x' and has 'z', which the model does not"),
        ([spec("x", "float64", 4, 3)], "array 'x' is float64, and the input is float32"),
        ([spec("x", "float32", 4, 4)], "a row of array 'x' is 4, and the input is 2×3"),
        ([spec("x", "float32", 1, 3)], "has 1 rows, and one run of the model takes 2"),
        ([spec("x", "float32", 4, 3), spec("labels", "int64", 4, 7)], "labels, int64 4×7, fit no output"),
        ([spec("x", "float32", 4, 3), spec("labels", "float32", 4, 7)], "labels, float32 4×7, fit no output"),
    ],
)
def test_what_does_not_fit_is_named(arrays: list[TensorSpec], message: str) -> None:
    with pytest.raises(errors.DataMismatch, match=message) as caught:
        data_sets.fit(facts(*arrays), [spec("x", "float32", 2, 3)], [SCORES])
    assert caught.value.hint
    assert caught.value.details


@pytest.mark.parametrize(
    ("labels", "output"),
    [
        (CLASSES, SCORES),
        (CLASSES, spec("y", "float32", 1, 10, 1, 1)),
        (spec("labels", "uint8", 200, 8, 8), spec("y", "float32", 1, 8, 8, 5)),
        (spec("labels", "float32", 200, 10), SCORES),
    ],
)
def test_labels_are_classes_or_values_of_an_output(labels: TensorSpec, output: TensorSpec) -> None:
    found = data_sets.fit(facts(PICTURES, labels), [spec("x", "float32", 1, 3, 8, 8)], [output])
    assert found.labels == labels


def test_an_input_may_be_called_labels() -> None:
    inputs = [spec("x", "float32", 1, 3, 8, 8), spec("labels", "int64", 1)]
    assert data_sets.fit(facts(PICTURES, CLASSES), inputs, []).labels is None


def test_runs_that_calibrate_never_judge() -> None:
    known = facts(PICTURES)
    found = data_sets.fit(known, [spec("x", "float32", 1, 3, 8, 8)], [])
    split = data_sets.split(known, found, calibrates=True)
    assert not {*split.calibration} & {*split.judging}
    assert (len(split.calibration), len(split.judging)) == (50, 150)
    assert [run // 4 for run in split.calibration] == list(range(50))
    assert split == data_sets.split(known, found, calibrates=True)
    whole = data_sets.split(known, found, calibrates=False)
    assert (whole.calibration, len(whole.judging)) == ((), 200)


@pytest.mark.parametrize("classes", [2, 4, 6, 10])
def test_classes_that_take_turns_are_all_calibrated_and_judged(classes: int) -> None:
    known = facts(PICTURES)
    found = data_sets.fit(known, [spec("x", "float32", 1, 3, 8, 8)], [])
    split = data_sets.split(known, found, calibrates=True)
    for runs in (split.calibration, split.judging):
        assert {run % classes for run in runs} == set(range(classes))


def test_many_or_large_rows_are_judged_in_part_from_all_over_the_file() -> None:
    many = facts(spec("x", "uint8", 100_000, 4))
    found = data_sets.fit(many, [spec("x", "uint8", 1, 4)], [])
    judging = data_sets.split(many, found, calibrates=False).judging
    assert len(judging) == 256
    assert judging[-1] > 99_000
    large = facts(spec("x", "float32", 100, 3, 2048, 2048))
    found = data_sets.fit(large, [spec("x", "float32", 1, 3, 2048, 2048)], [])
    assert len(data_sets.split(large, found, calibrates=False).judging) == 5


def test_one_row_cannot_calibrate_and_judge() -> None:
    known = facts(spec("x", "float32", 1, 3))
    found = data_sets.fit(known, [spec("x", "float32", 1, 3)], [])
    with pytest.raises(errors.DataMismatch, match="at least 2"):
        data_sets.split(known, found, calibrates=True)
    assert data_sets.split(known, found, calibrates=False).judging == (0,)
