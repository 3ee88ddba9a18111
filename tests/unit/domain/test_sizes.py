"""Sizes of a job: their combinations, shares, the size that serves observed shapes, and padding."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain import errors, sizes
from domain.models import TensorSpec
from domain.sizes import Observed, Size

IDS = TensorSpec(name="ids", dtype="int64", shape=("batch", "sequence"))
MASK = TensorSpec(name="mask", dtype="bool", shape=("batch", "sequence"))
IMAGE = TensorSpec(name="x", dtype="float32", shape=(None, 3, None, 8))
TEXT = (IDS, MASK)


def names(found: tuple[Size, ...]) -> list[str]:
    return [size.name for size in found]


def shared(found: tuple[Size, ...]) -> dict[str, Any]:
    return {size.name: pytest.approx(size.share) for size in found}


def test_one_value_everywhere_is_no_size() -> None:
    for one in (4, [4], {4: 2.0}):
        assert sizes.expand([IMAGE], {"x": [one, 3, 6, 8]}) == ()
        assert sizes.shapes_of([IMAGE], {"x": [one, 3, 6, 8]}) == {"x": (4, 3, 6, 8)}


def test_each_combination_is_a_size() -> None:
    found = sizes.expand([IMAGE], {"x": [[1, 4], 3, [5, 6], 8]})
    assert names(found) == ["x.0=1, x.2=5", "x.0=1, x.2=6", "x.0=4, x.2=5", "x.0=4, x.2=6"]
    assert found[2] == Size(
        name="x.0=4, x.2=5", values={"x.0": 4, "x.2": 5}, input_shapes={"x": (4, 3, 5, 8)}, share=0.25
    )


def test_equal_symbols_move_together() -> None:
    """Giving one of the inputs is enough."""
    shapes: dict[str, Any]
    for shapes in ({"ids": [1, [16, 32]]}, {"ids": [1, [16, 32]], "mask": [1, [32, 16]]}):
        found = sizes.expand(TEXT, shapes)
        assert names(found) == ["sequence=16", "sequence=32"]
        assert [size.input_shapes for size in found] == [
            {"ids": (1, length), "mask": (1, length)} for length in (16, 32)
        ]
    assert sizes.shapes_of(TEXT, {"mask": [1, 16]}) == {"ids": (1, 16), "mask": (1, 16)}


@pytest.mark.parametrize("other", [16, [16], [16, 64], {16: 1.0, 48: 1.0}])
def test_contradictory_values_of_a_symbol_are_refused(other: Any) -> None:
    with pytest.raises(errors.ShapeMismatch, match="'sequence' is 16/32 in input 'ids' and") as caught:
        sizes.expand(TEXT, {"ids": [1, [16, 32]], "mask": [1, other]})
    assert caught.value.details["symbol"] == "sequence"


def test_contradictory_frequencies_of_a_symbol_are_refused() -> None:
    shapes: dict[str, Any] = {"ids": [1, {16: 1.0, 32: 2.0}], "mask": [1, {16: 1.0, 32: 3.0}]}
    with pytest.raises(errors.ShapeMismatch, match="different frequencies"):
        sizes.expand(TEXT, shapes)
    found = sizes.expand(TEXT, {"ids": [1, [16, 32]], "mask": [1, {16: 3.0, 32: 1.0}]})
    assert shared(found) == {"sequence=16": 0.75, "sequence=32": 0.25}


def test_frequencies_multiply() -> None:
    found = sizes.expand([IMAGE], {"x": [{1: 2.0, 4: 1.0}, 3, {5: 6.0, 6: 4.0}, 8]})
    assert shared(found) == {
        "x.0=1, x.2=5": 0.4,
        "x.0=1, x.2=6": pytest.approx(8 / 30),
        "x.0=4, x.2=5": 0.2,
        "x.0=4, x.2=6": pytest.approx(4 / 30),
    }


@pytest.mark.parametrize(
    ("dimension", "error", "message"),
    [
        ([4, 4], errors.InvalidSizes, "has 4 more than once"),
        ([], errors.InvalidSizes, "has no value"),
        (list(range(1, 18)), errors.InvalidSizes, "17 sizes, 17 of 'x.0'; the limit is 16"),
        ({1: 1.0, 2: 0.0}, errors.InvalidFrequencies, "not all positive"),
        ({1: 1.0, 2: math.inf}, errors.InvalidFrequencies, "not all positive"),
    ],
)
def test_wrong_values_are_refused(dimension: Any, error: type[errors.TunesmithError], message: str) -> None:
    with pytest.raises(error, match=message):
        sizes.expand([IMAGE], {"x": [dimension, 3, 6, 8]})


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=16))
def test_shares_add_up_and_leave_no_size_out(weights: list[float]) -> None:
    found = sizes.shares(weights)
    assert sum(found) == pytest.approx(1.0)
    # The shares grow by at most one half before they are made to add up to 1.
    assert min(found) >= 0.5 / len(weights) / 1.5 - 1e-12
    order = sorted(range(len(weights)), key=weights.__getitem__)
    assert [found[place] for place in order] == sorted(found)


def of_shares(shares: list[float]) -> list[Size]:
    return [
        Size(name=f"batch={batch}", values={"batch": batch}, input_shapes={"ids": (batch, 16)}, share=share)
        for batch, share in enumerate(shares, 1)
    ]


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=sizes.MOST))
def test_a_copy_has_the_same_shares(weights: list[float]) -> None:
    shares = sizes.shares(weights)
    counts = [observed["count"] for observed in sizes.frequencies_of(of_shares(shares))] or [1] * len(shares)
    assert sizes.shares(counts) == pytest.approx(shares, abs=1e-7)


@pytest.mark.parametrize(
    ("batch", "stated"),
    [
        ([1, 4], [1, 4]),
        ({1: 3.0, 4: 1.0}, {1: 75.0, 4: 25.0}),
        ({1: 99.0, 4: 1.0}, {1: 99.0, 4: 1.0}),
        ({1: 2.0, 4: 1.0}, {1: 66.7, 4: 33.3}),
    ],
)
def test_frequencies_are_stated_in_percent(batch: Any, stated: Any) -> None:
    for shape in ([batch, 3, 6, 8], [6, 3, batch, 8]):
        expected = [stated if choice is batch else choice for choice in shape]
        assert sizes.stated_choices(sizes.expand([IMAGE], {"x": shape})) == {"x": expected}


def test_frequencies_of_several_dimensions_are_stated_for_each() -> None:
    found = sizes.expand([IMAGE], {"x": [{1: 3.0, 4: 2.0}, 3, {5: 3.0, 6: 1.0}, 8]})
    assert sizes.stated_choices(found) == {"x": [{1: 60.0, 4: 40.0}, 3, {5: 75.0, 6: 25.0}, 8]}
    found = sizes.expand([IMAGE], {"x": [[1, 4], 3, {5: 3.0, 6: 1.0}, 8]})
    assert sizes.stated_choices(found) == {"x": [[1, 4], 3, {5: 75.0, 6: 25.0}, 8]}
    assert sizes.stated_choices(()) == {}


VALUES = st.integers(1, 64)


@given(
    st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=16, unique=True),
    st.tuples(VALUES, VALUES),
    st.booleans(),
)
def test_the_smallest_size_that_is_large_enough_serves(
    pairs: list[tuple[int, int]], wanted: tuple[int, int], divides: bool
) -> None:
    entries = [{"batch": batch, "sequence": length} for batch, length in pairs]
    place = sizes.serving(entries, {"batch": wanted[0], "sequence": wanted[1]}, frozenset({"batch"} if divides else ()))
    batch = min(wanted[0], max(batch for batch, _ in pairs)) if divides else wanted[0]
    able = [(a, b) for a, b in pairs if a >= batch and b >= wanted[1]]
    assert (place is None) == (not able)
    if place is not None:
        assert pairs[place] in able
        assert math.prod(pairs[place]) == min(map(math.prod, able))
    if wanted in pairs:
        assert place is not None
        assert pairs[place] == wanted


@given(st.lists(VALUES, min_size=2, max_size=4, unique=True), st.lists(VALUES, min_size=2, max_size=4, unique=True))
def test_sizes_are_the_product_of_the_values(batches: list[int], lengths: list[int]) -> None:
    found = sizes.expand(TEXT, {"ids": [batches, lengths]})
    assert [tuple(size.values.values()) for size in found] == [(a, b) for a in batches for b in lengths]
    assert len({size.name for size in found}) == len(found)
    assert all(size.input_shapes["ids"] == size.input_shapes["mask"] for size in found)


def observed(*counts: tuple[tuple[int, ...], int]) -> list[Observed]:
    return [Observed(input_shapes={"ids": shape}, count=count) for shape, count in counts]


def test_observed_shapes_count_for_the_size_that_serves_them() -> None:
    shapes = {"ids": [[1, 4], [16, 32]]}
    seen = observed(((1, 16), 50), ((1, 20), 20), ((2, 16), 10), ((9, 3), 10), ((4, 32), 10))
    assert shared(sizes.expand(TEXT, shapes, observed=seen)) == {
        "batch=1, sequence=16": pytest.approx(0.5 / 1.025),
        "batch=1, sequence=32": pytest.approx(0.2 / 1.025),
        "batch=4, sequence=16": pytest.approx(0.2 / 1.025),
        "batch=4, sequence=32": pytest.approx(0.125 / 1.025),
    }


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"ids": (1, 33)}, "no size is large enough for entry 0 of frequencies: batch=1, sequence=33"),
        ({"ids": (1,)}, "'ids' has not 1 dimensions"),
        ({"idz": (1, 3)}, "'idz' is no input"),
        ({"ids": (1, 0)}, "cannot run 'ids' as 1×0"),
        ({"ids": (1, 16), "mask": (1, 32)}, "cannot run 'mask' as 1×32"),
        ({}, "lacks dimension 'sequence'"),
    ],
)
def test_observed_shapes_that_no_size_serves_are_refused(entry: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(errors.InvalidFrequencies, match=message):
        sizes.expand(TEXT, {"ids": [1, [16, 32]]}, observed=[Observed(input_shapes=entry, count=1)])


def test_frequencies_are_given_once() -> None:
    with pytest.raises(errors.InvalidFrequencies, match="stated with the sizes"):
        sizes.expand(TEXT, {"ids": [1, {16: 1.0, 32: 2.0}]}, observed=observed(((1, 16), 1)))
    with pytest.raises(errors.InvalidFrequencies, match="no effect"):
        sizes.expand(TEXT, {"ids": [1, 16]}, observed=observed(((1, 16), 1)))


def test_a_batch_is_the_first_dimension_everywhere() -> None:
    assert sizes.batch_dimensions(TEXT) == {"batch"}
    turned = TensorSpec(name="turned", dtype="float32", shape=("sequence", "batch"))
    assert sizes.batch_dimensions([IDS, turned]) == frozenset()
    assert sizes.batch_dimensions([IMAGE]) == {"x.0"}


SEVERAL = sizes.expand(TEXT, {"ids": [1, [16, 32]]})


def test_padding_is_declared_for_all_inputs_that_share_a_dimension() -> None:
    sizes.check_padding(TEXT, SEVERAL, {})
    sizes.check_padding(TEXT, SEVERAL, {"ids": 0, "mask": 0})
    with pytest.raises(errors.InvalidPadding, match="padding not declared for 'mask'") as caught:
        sizes.check_padding(TEXT, SEVERAL, {"ids": 0})
    assert caught.value.details == {"dimension": "sequence", "inputs": ["mask"]}
    # A batch is filled up with whole rows, which need no declaration.
    sizes.check_padding(TEXT, sizes.expand(TEXT, {"ids": [[1, 4], 16]}), {"ids": 0})


@pytest.mark.parametrize(
    ("padding", "message"),
    [
        ({"idz": 0}, "names 'idz'"),
        ({"ids": 0.5, "mask": 0}, "'ids' is int64 and cannot hold the padding 0.5"),
        ({"ids": 2.0**63, "mask": 0}, "cannot hold"),
        ({"ids": 0, "mask": 2}, "'mask' is bool"),
        ({"ids": 0, "mask": 0, "scale": 0}, "'scale' would have no effect"),
    ],
)
def test_wrong_padding_is_refused(padding: dict[str, float], message: str) -> None:
    scale = TensorSpec(name="scale", dtype="float32", shape=())
    with pytest.raises(errors.InvalidPadding, match=message):
        sizes.check_padding((*TEXT, scale), SEVERAL, padding)


def test_padding_needs_several_sizes() -> None:
    with pytest.raises(errors.InvalidPadding, match="no dimension has several values"):
        sizes.check_padding(TEXT, (), {"ids": 0, "mask": 0})


@pytest.mark.parametrize(
    ("dtype", "value", "holds"),
    [
        ("uint8", 255, True),
        ("uint8", 256, False),
        ("uint8", -1, False),
        ("int8", -128, True),
        ("int8", 128, False),
        ("float16", 65504, True),
        ("float16", 1e5, False),
        ("float32", -1e30, True),
        ("float32", 1e39, False),
        ("float64", 1e300, True),
        ("bfloat16", 1e38, True),
        ("bool", 1, True),
        ("object", 0, False),
        ("complex64", 0, False),
    ],
)
def test_padding_is_a_value_of_the_dtype(dtype: str, value: float, holds: bool) -> None:
    spec = TensorSpec(name="x", dtype=dtype, shape=("batch", "length"))
    several = sizes.expand([spec], {"x": [1, [2, 3]]})
    if holds:
        sizes.check_padding([spec], several, {"x": value})
    else:
        with pytest.raises(errors.InvalidPadding, match="cannot hold"):
            sizes.check_padding([spec], several, {"x": value})
