from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.artifacts import Variant
from domain.jobs import AccuracyGate, Precision
from domain.models import TensorSpec
from domain.ports import OnEvent
from tests.support.tuner.fakes import FakeEngine
from tuner.engines.protocol.serving import EngineFailure
from tuner.results import verification

Json = dict[str, Any]
INPUTS = (TensorSpec(name="x", dtype="float32", shape=(1, 3)),)


def compared(errors_by_seed: list[float]) -> FakeEngine:
    """An onnx engine that finds these errors, one a seed; above 1 it does not pass them."""
    left = list(errors_by_seed)

    def compare(params: Json, _: OnEvent) -> Json:
        error = left.pop(0)
        shared = {"dtype": "float32", "atol": 1e-5, "rtol": 5e-4, "elements": 8, "finite": 8, "parts": 1, "within": 1}
        return {
            "outputs": [
                {
                    "output": "y",
                    "max_abs": error,
                    "max_rel": error / 2,
                    "passed": error <= 1,
                    **shared,
                    "within": error <= 1,
                },
                {"output": "z", "max_abs": 0.0, "max_rel": 0.0, "passed": True, **shared},
            ]
        }

    def make(params: Json, _: OnEvent) -> Json:
        return {"paths": [f"{params['out_dir']}/inputs-{seed}.npz" for seed in params["seeds"]]}

    return FakeEngine({"compare": compare, "make_inputs": make, "run": lambda params, _: {"seconds": 1.0}})


def verify(reference: FakeEngine, compiler: FakeEngine, tmp_path: Path) -> verification.Verification:
    inputs = verification.seed_inputs(reference, INPUTS, tmp_path / "inputs").paths
    expected = verification.run_reference(reference, Path("/m.onnx"), inputs, tmp_path / "out", threads=2)
    return verification.verify(
        reference,
        compiler,
        variant=Variant.TUNED,
        bundle=Path("/b"),
        inputs=inputs,
        expected=expected,
        folder=tmp_path / "out",
        place={"threads": 2},
    )


def test_the_worst_over_all_seeds_counts(tmp_path: Path) -> None:
    compiler = FakeEngine({"run": lambda params, _: {"outputs": [], "samples": []}})
    reference = compared([0.1, 0.9, 0.2])
    result = verify(reference, compiler, tmp_path)
    assert result.passed
    assert result.seeds == (0, 1, 2)
    assert [(each.output, each.max_abs, each.max_rel) for each in result.outputs] == [("y", 0.9, 0.45), ("z", 0.0, 0.0)]
    asked = [params for method, params in compiler.requests if method == "run"]
    assert [Path(each["inputs"]).name for each in asked] == ["inputs-0.npz", "inputs-1.npz", "inputs-2.npz"]
    pairs = [(params["expected"], params["actual"]) for method, params in reference.requests if method == "compare"]
    assert pairs == [
        (str(tmp_path / "out" / f"expected-{n}.npz"), str(tmp_path / "out" / f"tuned-{n}.npz")) for n in range(3)
    ]


@pytest.mark.parametrize("found", [[2.0, 0.1, 0.1], [0.1, 0.1, 1e308], [0.1, math.inf, 0.1]])
def test_one_wrong_seed_is_enough_to_fail(tmp_path: Path, found: list[float]) -> None:
    result = verify(compared([min(each, 1e308) for each in found]), FakeEngine({"run": lambda p, _: {}}), tmp_path)
    assert not result.passed
    assert [each.passed for each in result.outputs] == [False, True]
    assert all(math.isfinite(each.max_abs) for each in result.outputs)


@pytest.mark.parametrize(
    ("beyond", "gate", "passes"),
    [
        (1, AccuracyGate(), True),
        (2, AccuracyGate(), False),
        (1, AccuracyGate(max_rel=0.1), False),
    ],
)
def test_of_a_hundred_rows_one_may_be_beyond_the_limit(
    tmp_path: Path, beyond: int, gate: AccuracyGate, passes: bool
) -> None:
    """Unless the user sets the limit."""
    left = [number < beyond for number in range(100)]

    def compare(_: Json, __: OnEvent) -> Json:
        wrong = left.pop()
        error = {"max_abs": float(wrong), "max_rel": float(wrong), "passed": not wrong, "parts": 1, "within": not wrong}
        shared = {"dtype": "float32", "atol": 1e-3, "rtol": 0.1, "elements": 8, "finite": 8}
        return {"outputs": [{"output": "y", **error, **shared}]}

    files = tuple(tmp_path / f"{number}.npz" for number in range(100))
    found = verification.verify(
        FakeEngine({"compare": compare}), FakeEngine({"run": lambda p, _: {}}), variant=Variant.TUNED,
        bundle=Path("/b"), inputs=(), expected=(), folder=tmp_path, place={"threads": 1}, precision="bf16", gate=gate,
        rows=verification.Rows(first=tuple(range(100)), each=1, inputs=files, expected=files),
    )  # fmt: skip
    [output] = found.outputs
    assert (found.passed, output.max_rel) == (passes, 1.0)
    if gate.max_rel is None:
        assert output.within == 1 - beyond / 100
    if beyond == 2:
        assert (output.found, output.allowed) == (
            "off by more than 10 % of its largest magnitude in 2.0% of rows", "at most 1.0%",
        )  # fmt: skip


def test_an_engine_that_cannot_run_the_variant_is_an_error(tmp_path: Path) -> None:
    def fail(params: Json, _: OnEvent) -> Json:
        raise EngineFailure("invalid_bundle", "no mod.so")

    with pytest.raises(errors.EngineRequestFailed, match=r"no mod\.so"):
        verify(compared([0.0] * 3), FakeEngine({"run": fail}), tmp_path)


def test_agreement_is_a_share_of_all_rows(tmp_path: Path) -> None:
    def verified(least: float) -> verification.Verification:
        agreed = iter([2, 2, 1])
        shared = {"output": "y", "dtype": "float32", "max_abs": 0.0, "max_rel": 0.0, "atol": 1e-3, "rtol": 0.1}
        answer = {**shared, "passed": True, "elements": 8, "finite": 8, "rows": 2, "not_finite": 0}
        reference = FakeEngine({"compare": lambda params, _: {"outputs": [{**answer, "agreed": next(agreed)}]}})
        return verification.verify(
            reference,
            FakeEngine({"run": lambda params, _: {}}),
            variant=Variant.TUNED,
            bundle=Path("/b"),
            inputs=[Path(f"/{seed}.npz") for seed in range(3)],
            expected=[Path(f"/{seed}.npz") for seed in range(3)],
            folder=tmp_path,
            place={"threads": 1},
            precision="int8",
            gate=AccuracyGate(max_rel=0.05, top1=least),
            model=Path("/m.onnx"),
            kinds={"x": "image"},
        )

    [loose], [strict] = verified(0.8).outputs, verified(0.99).outputs
    assert (loose.top1, loose.least_top1, loose.passed) == (pytest.approx(5 / 6), 0.8, True)
    assert (strict.passed, verified(0.8).inputs) == (False, {"x": "image"})


def rows(count: int, *, labels: bool = False) -> verification.Rows:
    inputs, expected, given = (tuple(Path(f"/{name}-{run}.npz") for run in range(count)) for name in "iel")
    return verification.Rows(
        first=tuple(range(0, 2 * count, 2)), each=2, inputs=inputs, expected=expected, labels=given if labels else ()
    )


def verified_rows(
    reference: FakeEngine, given: verification.Rows, tmp_path: Path, *, precision: str
) -> tuple[verification.Verification, list[str]]:
    """Also return the inputs that were run."""
    compiler = FakeEngine({"run": lambda params, _: {}})
    found = verification.verify(
        reference, compiler, variant=Variant.TUNED, bundle=Path("/b"), inputs=[Path("/seed.npz")],
        expected=[Path("/seed-expected.npz")], folder=tmp_path, place={"threads": 1}, precision=precision,
        gate=AccuracyGate(top1=0.99), seeds=(0,), rows=given,
    )  # fmt: skip
    return found, [str(params["inputs"]) for method, params in compiler.requests if method == "run"]


def test_narrow_builds_are_judged_by_rows_alone_and_the_worst_are_named(tmp_path: Path) -> None:
    found, ran = verified_rows(compared([0.1, 0.9, 0.2]), rows(3), tmp_path, precision="int8")
    assert (found.seeds, ran) == ((), ["/i-0.npz", "/i-1.npz", "/i-2.npz"])
    assert found.rows is not None
    assert (found.rows.rows, found.rows.elements, found.rows.labelled) == (6, 3 * 16, None)
    assert [(each.row, each.output, each.max_rel) for each in found.rows.worst[:3]] == [
        (2, "y", 0.45),
        (4, "y", 0.1),
        (0, "y", 0.05),
    ]


def test_f32_is_judged_by_seeds_and_some_rows_of_all_over_the_file(tmp_path: Path) -> None:
    found, ran = verified_rows(compared([0.0] * 99), rows(64), tmp_path, precision="f32")
    assert (found.seeds, ran[0], len(ran)) == ((0,), "/seed.npz", 1 + verification.MOST_ROWS_OF_F32)
    assert ran[1:4] == ["/i-0.npz", "/i-2.npz", "/i-4.npz"]


@pytest.mark.parametrize(
    ("hits", "precision", "passed"), [(100, "int8", True), (99, "int8", True), (98, "int8", False), (98, "f32", True)]
)
def test_a_narrow_build_may_lose_a_point_of_the_labels(tmp_path: Path, hits: int, precision: str, passed: bool) -> None:
    reference = compared([0.0] * 3)
    compare = reference.answers["compare"]
    sides = {"reference": {"top1": 50, "top5": None}, "build": {"top1": hits / 2, "top5": None}}
    reference.answers["compare"] = lambda params, event: {
        **compare(params, event), **({"labelled": {"output": "y", "count": 50, **sides}} if "labels" in params else {}),
    }  # fmt: skip
    found, _ = verified_rows(reference, rows(2, labels=True), tmp_path, precision=precision)
    assert found.passed == passed
    assert found.rows is not None
    assert found.rows.labelled is not None
    assert (found.rows.labelled.reference, found.rows.labelled.build) == (1.0, hits / 100)
    assert (found.rows.labelled.count, found.rows.labelled.build_top5) == (100, None)


def test_the_gate_and_the_model_reach_the_comparison(tmp_path: Path) -> None:
    reference = compared([0.0] * 3)
    verify(reference, FakeEngine({"run": lambda params, _: {}}), tmp_path)
    asked = [params for method, params in reference.requests if method == "compare"]
    assert {(each["precision"], each["max_rel"], each["model"]) for each in asked} == {("f32", None, None)}


def test_elements_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    shared = {"output": "y", "dtype": "float32", "max_abs": 1e308, "max_rel": 1e308, "atol": 1e-5, "rtol": 5e-4}
    answer = {"outputs": [{**shared, "passed": False, "elements": 8, "finite": 8, "not_finite": 2, "fault": "NaN"}]}
    reference = compared([0.0] * 3)
    reference.answers["compare"] = lambda params, _: answer
    result = verify(reference, FakeEngine({"run": lambda params, _: {}}), tmp_path)
    assert (result.outputs[0].not_finite, result.outputs[0].top1, result.passed) == (6, None, False)
    assert result.outputs[0].found == "NaN in 6 elements"


@pytest.mark.parametrize(
    ("finite", "not_compared", "passed"),
    [((0, 0, 0), [True, True], False), ((0, 0, 1), [False, True], True), ((8, 8, 8), [False, True], True)],
)
def test_an_output_without_any_finite_number_proves_nothing(
    tmp_path: Path, finite: tuple[int, ...], not_compared: list[bool], passed: bool
) -> None:
    left = iter(finite)
    shared = {"dtype": "float32", "max_abs": 0.0, "max_rel": 0.0, "atol": 1e-3, "rtol": 0.1, "passed": True}
    nothing = {**shared, "output": "z", "elements": 8, "finite": 0, "rows": 4, "agreed": 0}
    reference = compared([0.0] * 3)
    reference.answers["compare"] = lambda params, _: {
        "outputs": [{**shared, "output": "y", "elements": 8, "finite": next(left)}, nothing]
    }
    result = verify(reference, FakeEngine({"run": lambda params, _: {}}), tmp_path)
    assert [each.not_compared for each in result.outputs] == not_compared
    assert (result.passed, result.outputs[1].passed, result.outputs[1].top1) == (passed, True, None)


def test_outputs_without_elements_pass_but_are_not_complete(tmp_path: Path) -> None:
    shared = {"dtype": "float32", "max_abs": 0.0, "max_rel": 0.0, "atol": 1e-3, "rtol": 0.1, "passed": True}
    reference = compared([0.0] * 3)
    reference.answers["compare"] = lambda params, _: {
        "outputs": [{**shared, "output": "y", "elements": 0, "finite": 0}]
    }
    found = verify(reference, FakeEngine({"run": lambda params, _: {}}), tmp_path)
    assert (found.passed, found.is_complete) == (True, False)
    assert [(each.not_compared, each.empty) for each in found.outputs] == [(True, True)]


def test_narrow_precisions_are_judged_by_more_inputs() -> None:
    assert verification.seeds_for(Precision.F32) == verification.SEEDS
    assert len(verification.seeds_for(Precision.AUTO)) >= 16
    assert not set(verification.CALIBRATION_SEEDS) & set(verification.seeds_for(Precision.INT8))


def test_perturbed_runs_lie_beside_the_outputs_they_are_compared_with(tmp_path: Path) -> None:
    reference = compared([0.0] * 3)
    reference.answers["run_perturbed"] = lambda params, _: {"paths": [f"{each}/00-1.npz" for each in params["folders"]]}
    inputs = [tmp_path / f"inputs-{seed}.npz" for seed in range(3)]
    expected = [tmp_path / "out" / f"expected-{seed}.npz" for seed in range(3)]
    stale = tmp_path / "out" / "expected-1.runs" / "07-16.npz"
    stale.parent.mkdir(parents=True)
    stale.touch()
    written = verification.run_perturbed(reference, Path("/m.onnx"), inputs, expected, threads=2)
    assert written == [tmp_path / "out" / f"expected-{seed}.runs" / "00-1.npz" for seed in range(3)]
    assert not stale.exists()
    verify(reference, FakeEngine({"run": lambda params, _: {}}), tmp_path)
    runs = [params["runs"] for method, params in reference.requests if method == "compare"]
    assert runs == [str(path.parent) for path in written]


def test_perturbed_runs_that_fail_leave_no_files(tmp_path: Path) -> None:
    expected = tmp_path / "expected-0.npz"
    partial = tmp_path / "expected-0.runs" / "00-1.npz"

    def fail(_: Json, __: OnEvent) -> Json:
        partial.parent.mkdir()
        partial.touch()
        raise EngineFailure("run_failed", "no memory")

    with pytest.raises(errors.EngineRequestFailed, match="no memory"):
        verification.run_perturbed(
            FakeEngine({"run_perturbed": fail}), Path("/m.onnx"), [tmp_path / "i.npz"], [expected], threads=1
        )
    assert not partial.parent.exists()


def test_the_errors_closest_to_their_limits_are_kept(tmp_path: Path) -> None:
    shared = {"output": "y", "dtype": "float32", "atol": 1e-5, "elements": 8, "finite": 8, "passed": True}
    seeds = iter(
        [
            {"max_abs": 0.1, "max_rel": 1e-4, "rtol": 5e-4, "rounding": 1e-6, "rms": 2e-5, "rms_limit": 1e-4},
            {"max_abs": 0.2, "max_rel": 9e-4, "rtol": 1e-3, "rounding": 3e-6, "ties": 2, "rms": 0, "rms_limit": 1},
            {"max_abs": 0.1, "max_rel": 2e-4, "rtol": 5e-4, "rounding": 2e-6, "ties": 1, "rms": 0.0, "rms_limit": 1e-4},
        ]
    )  # fmt: skip
    reference = compared([0.0] * 3)
    reference.answers["compare"] = lambda params, _: {
        "outputs": [{**shared, **next(seeds), "part": "index 1 of axis 0"}]
    }
    [found] = verify(reference, FakeEngine({"run": lambda params, _: {}}), tmp_path).outputs
    assert (found.max_rel, found.rtol, found.rounding, found.ties) == (9e-4, 1e-3, 3e-6, 3)
    assert (found.rms, found.rms_limit, found.part) == (2e-5, 1e-4, "index 1 of axis 0")


def test_errors_without_an_estimate_have_no_limit_of_parts(tmp_path: Path) -> None:
    [found, _] = verify(compared([0.1] * 3), FakeEngine({"run": lambda params, _: {}}), tmp_path).outputs
    assert (found.rtol, found.rounding, found.ties, found.rms, found.part) == (5e-4, None, 0, None, None)
