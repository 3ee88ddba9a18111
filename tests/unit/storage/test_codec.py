"""Whatever the vocabulary can say survives the way into a JSON column and back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.artifacts import OutputError, Report, Timing, Variant, Verification
from domain.jobs import Budget, Failure, JobRequest, MeasureOptions, Placement, TunerOptions
from domain.models import ModelFacts, TensorSpec
from domain.targets import Device, Target, Toolchain
from storage import codec

finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(max_size=20)
count = st.integers(min_value=0, max_value=2**53)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
details = st.dictionaries(text, json_values, max_size=3)

tensors = st.builds(TensorSpec, name=text, dtype=text, shape=st.lists(st.none() | count | text, max_size=5).map(tuple))
facts = st.builds(
    ModelFacts,
    inputs=st.lists(tensors, max_size=3).map(tuple),
    outputs=st.lists(tensors, max_size=3).map(tuple),
    opset=count,
    ir_version=count,
    operators=st.dictionaries(text, count, max_size=3),
    parameters=count,
)
budgets = st.builds(
    Budget, trials=st.integers(min_value=1), seconds=st.none() | st.floats(min_value=1e-3, max_value=1e9)
)
requests = st.builds(
    JobRequest,
    model_digest=text,
    budget=budgets,
    target=text,
    threads=st.none() | count,
    input_shapes=st.dictionaries(text, st.lists(count, max_size=4).map(tuple), max_size=3),
    measure=st.builds(MeasureOptions),
    tuner_options=st.builds(TunerOptions),
    labels=st.dictionaries(text, text, max_size=3),
)
placements = st.builds(
    Placement,
    target=st.builds(Target, text=text, threads=count),
    device=st.builds(Device, key=text, name=text, threads=count),
    toolchain=st.builds(Toolchain, engine=text, tvm=text, llvm=text),
)
failures = st.builds(Failure, code=text, message=text, hint=st.none() | text, details=details)
timings = st.builds(
    Timing,
    samples=st.lists(finite, max_size=4).map(tuple),
    **dict.fromkeys(("mean", "median", "p90", "p99", "min", "max", "std"), finite),
)
outputs = st.builds(
    OutputError, output=text, dtype=text, max_abs=finite, max_rel=finite, atol=finite, rtol=finite, passed=st.booleans()
)
verifications = st.builds(
    Verification,
    variant=st.sampled_from(Variant),
    seeds=st.lists(count, max_size=3).map(tuple),
    outputs=st.lists(outputs, max_size=3).map(tuple),
)
reports = st.builds(
    Report,
    timings=st.dictionaries(st.sampled_from(Variant), timings),
    verifications=st.dictionaries(st.sampled_from(Variant), verifications),
    published=st.sampled_from(Variant),
    speedup_over_untuned=finite,
    speedup_over_reference=finite,
    summary=text,
)


@given(st.one_of(tensors, facts, requests, placements, failures, reports))
def test_values_survive_json(value: Any) -> None:
    stored = json.loads(codec.to_json(codec.dump(value)))
    assert codec.load(type(value), stored) == value


def test_fields_of_a_newer_release_are_left_out() -> None:
    assert codec.load(Device, {"key": "k", "name": "n", "threads": 2, "sockets": 1}) == Device(
        key="k", name="n", threads=2
    )


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        codec.to_json({"latency": number})
