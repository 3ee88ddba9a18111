"""Operators that TVM's own importer lacks or reads wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("opset", "rank", "modes"),
    [
        (16, 4, ("bilinear", "nearest", "bicubic")),
        (20, 4, ("linear", "cubic")),
        (20, 5, ("linear", "nearest")),
    ],
)
def test_grid_sample_agrees_with_the_reference(
    relay: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    tmp_path: Path,
    opset: int,
    rank: int,
    modes: Sequence[str],
) -> None:
    prepared, specs = asking.prepare(reference, models.grid_samples(opset=opset, rank=rank, modes=modes), tmp_path)
    inputs = asking.make_inputs(reference, specs, tmp_path, seed=3)
    relay.request("compile", {**place, "model": str(prepared), "out_dir": str(tmp_path / "b")}, timeout=200)
    actual = asking.run(relay, tmp_path / "b", inputs, tmp_path / "a.npz")
    outputs = asking.compare_with_model(reference, prepared, inputs, actual)
    assert len(outputs) == len(modes) * 3
    assert [output["output"] for output in outputs if not output["passed"]] == []


def test_clips_with_one_bound_agree_with_the_reference(
    relay: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    prepared, specs = asking.prepare(reference, models.lower_bounds(), tmp_path)
    inputs = asking.make_inputs(reference, specs, tmp_path)
    relay.request("compile", {**place, "model": str(prepared), "out_dir": str(tmp_path / "b")}, timeout=200)
    actual = asking.run(relay, tmp_path / "b", inputs, tmp_path / "a.npz")
    outputs = asking.compare_with_model(reference, prepared, inputs, actual)
    assert [(output["output"], output["passed"]) for output in outputs] == [("low", True), ("high", True)]


def test_products_of_stacks_agree_with_the_reference(
    relay: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    prepared, specs = asking.prepare(reference, models.products_of_stacks(), tmp_path)
    inputs = asking.make_inputs(reference, specs, tmp_path)
    relay.request("compile", {**place, "model": str(prepared), "out_dir": str(tmp_path / "b")}, timeout=200)
    actual = asking.run(relay, tmp_path / "b", inputs, tmp_path / "a.npz")
    outputs = asking.compare_with_model(reference, prepared, inputs, actual)
    assert {output["passed"] for output in outputs} == {True}
    assert len(outputs) == len(models.STACKS)
