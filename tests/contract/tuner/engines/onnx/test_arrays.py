from __future__ import annotations

import math
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession

pytestmark = [pytest.mark.engine, pytest.mark.smoke]


def _npz(path: Path, dtype: str = "<f4", **arrays: list[Any]) -> Path:
    """One-dimensional arrays in numpy's format 1.0, written without numpy."""
    code = {"<f4": "f", "<i8": "q", "|b1": "?"}[dtype]
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in arrays.items():
            header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({len(values)},), }}".ljust(117) + "\n"
            content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
            archive.writestr(f"{name}.npy", content + struct.pack(f"<{len(values)}{code}", *values))
    return path


def test_equal_outputs_agree(reference: EngineSession, tmp_path: Path) -> None:
    expected = _npz(tmp_path / "e.npz", a=[1.0, math.nan, math.inf], b=[0.0, 0.0])
    outputs = asking.compare(reference, expected, expected)
    assert [(output["output"], output["passed"], output["max_abs"]) for output in outputs] == [
        ("a", True, 0.0),
        ("b", True, 0.0),
    ]


@pytest.mark.parametrize(
    ("actual", "fault"),
    [
        ([1.0, 2.0, 4.1], None),  # off by more than the tolerance
        ([1.0, 2.0, math.nan], "NaN"),
        ([1.0, 2.0, -math.inf], "infinite"),
        ([1.0, 2.0], "wrong shape: 2 instead of 3"),
    ],
)
def test_different_outputs_fail(
    reference: EngineSession, tmp_path: Path, actual: list[float], fault: str | None
) -> None:
    expected = _npz(tmp_path / "e.npz", a=[1.0, 2.0, 4.0])
    [output] = asking.compare(reference, expected, _npz(tmp_path / "a.npz", a=actual))
    assert not output["passed"]
    assert output["max_abs"] >= 0.09
    assert output["fault"] == fault


def test_a_missing_infinity_fails(reference: EngineSession, tmp_path: Path) -> None:
    expected = _npz(tmp_path / "e.npz", a=[1.0, math.inf])
    [output] = asking.compare(reference, expected, _npz(tmp_path / "a.npz", a=[1.0, 3.0]))
    assert (output["passed"], output["fault"]) == (False, "NaN or infinity missing")
    [other] = asking.compare(reference, expected, _npz(tmp_path / "b.npz", dtype="<i8", a=[1, 3]))
    assert (other["passed"], other["fault"]) == (False, "wrong type: int64 instead of float32")
    [missing] = asking.compare(reference, expected, _npz(tmp_path / "c.npz", b=[1.0]))
    assert (missing["passed"], missing["fault"]) == (False, "no such output")


def test_rounding_is_within_tolerance(reference: EngineSession, tmp_path: Path) -> None:
    expected = _npz(tmp_path / "e.npz", a=[1.0, 100.0])
    [output] = asking.compare(reference, expected, _npz(tmp_path / "a.npz", a=[1.0, 100.001]))
    assert output["passed"]
    assert 0 < output["max_rel"] < output["rtol"]


@pytest.mark.parametrize(("actual", "f32", "fp16"), [(101.0, False, True), (103.0, False, False)])
def test_half_precision_has_tolerances_of_its_own(
    reference: EngineSession, tmp_path: Path, actual: float, f32: bool, fp16: bool
) -> None:
    expected = _npz(tmp_path / "e.npz", a=[1.0, 100.0])
    given = _npz(tmp_path / "a.npz", a=[1.0, actual])
    found = [asking.compare(reference, expected, given, precision=precision)[0] for precision in ("f32", "fp16")]
    assert [each["passed"] for each in found] == [f32, fp16]


def test_a_gate_replaces_the_relative_tolerance(reference: EngineSession, tmp_path: Path) -> None:
    expected = _npz(tmp_path / "e.npz", a=[1.0, 100.0])
    given = _npz(tmp_path / "a.npz", a=[1.0, 101.0])
    shares = (None, 0.02, 0.001)
    found = [asking.compare(reference, expected, given, precision="int8", max_rel=share)[0] for share in shares]
    assert [(each["passed"], each["rtol"]) for each in found] == [(True, 0.1), (True, 0.02), (False, 0.001)]


def test_what_is_not_finite_is_counted(reference: EngineSession, tmp_path: Path) -> None:
    expected = _npz(tmp_path / "e.npz", a=[1.0, 2.0, math.inf])
    [output] = asking.compare(reference, expected, _npz(tmp_path / "a.npz", a=[math.nan, math.inf, math.inf]))
    assert (output["not_finite"], output["passed"]) == (2, False)
    [same] = asking.compare(reference, expected, expected)
    assert (same["not_finite"], same["passed"]) == (0, True)


def test_finite_numbers_are_counted(reference: EngineSession, tmp_path: Path) -> None:
    values = _npz(tmp_path / "e.npz", a=[math.nan, math.inf, -math.inf], b=[1.0, math.nan, 0.0], c=[])
    counts = [(output["elements"], output["finite"]) for output in asking.compare(reference, values, values)]
    assert counts == [(3, 0), (3, 2), (0, 0)]
    whole = _npz(tmp_path / "i.npz", "<i8", a=[1, 2**62])
    assert [(output["elements"], output["finite"]) for output in asking.compare(reference, whole, whole)] == [(2, 2)]


def test_a_classifiers_rows_are_counted(
    reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    output, params = tmp_path / "o.npz", {"path": str(prepared), "inputs": str(inputs[0]), "threads": 1}
    reference.request("run", {**params, "outputs": str(output)}, timeout=60)
    told = [
        asking.compare(reference, output, output, precision="int8", model=model)[0]
        for model in (str(prepared), None, str(tmp_path / "module.json"))
    ]
    assert [(each["rows"], each["agreed"]) for each in told] == [(1, 1), (0, 0), (0, 0)]


def test_a_model_tells_kinds(reference: EngineSession, prepared: Path, tmp_path: Path) -> None:
    spec = {"name": "image", "dtype": "float32", "shape": [1, 3, 16, 16]}
    params = {"inputs": [spec], "seeds": [0], "out_dir": str(tmp_path), "model": str(prepared)}
    assert reference.request("make_inputs", params, timeout=60)["kinds"] == {"image": "image"}


def test_a_missing_output_fails(reference: EngineSession, tmp_path: Path) -> None:
    expected = _npz(tmp_path / "e.npz", a=[1.0], b=[2.0])
    outputs = asking.compare(reference, expected, _npz(tmp_path / "a.npz", a=[1.0]))
    assert [output["passed"] for output in outputs] == [True, False]


def test_integers_and_booleans_must_be_equal(reference: EngineSession, tmp_path: Path) -> None:
    whole = _npz(tmp_path / "e.npz", "<i8", a=[2**62, 1])
    [output] = asking.compare(reference, whole, _npz(tmp_path / "a.npz", "<i8", a=[2**62, 2]))
    assert (output["passed"], output["max_abs"]) == (False, 1.0)
    flags = _npz(tmp_path / "f.npz", "|b1", a=[True, False])
    [output] = asking.compare(reference, flags, _npz(tmp_path / "g.npz", "|b1", a=[True, True]))
    assert not output["passed"]


def test_seeds_decide_the_inputs(reference: EngineSession, tmp_path: Path, inputs: list[Path]) -> None:
    spec = {"name": "image", "dtype": "float32", "shape": [1, 3, 16, 16]}
    again = asking.make_inputs(reference, [spec], tmp_path)
    [same] = asking.compare(reference, inputs[0], again)
    [other] = asking.compare(reference, inputs[1], again)
    assert same["max_abs"] == 0
    assert not other["passed"]


def test_the_reference_runs_and_is_timed(
    reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    place = {"path": str(prepared), "inputs": str(inputs[0]), "threads": 1}
    assert reference.request("run", {**place, "outputs": str(tmp_path / "o.npz")}, timeout=60)["seconds"] > 0
    samples = reference.request("time", {**place, "number": 2, "repeat": 4}, timeout=60)["samples"]
    assert len(samples) == 4
    assert all(0 < sample < 1 for sample in samples)


def test_inputs_that_do_not_fit_are_refused(reference: EngineSession, prepared: Path, tmp_path: Path) -> None:
    wrong = _npz(tmp_path / "wrong.npz", picture=[1.0])
    params = {"path": str(prepared), "inputs": str(wrong), "outputs": str(tmp_path / "o.npz"), "threads": 1}
    refused = asking.refusal(reference, "run", params)
    assert (refused.engine_code, "inputs are image" in refused.message) == ("invalid_inputs", True)
