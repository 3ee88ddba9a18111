from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from domain import errors
from domain.artifacts import PLAIN_BUILD, Conditions, OutputError, Runtime, Timing, Variant, Verification
from tuner.results.benchmark import judge, wins
from tuner.results.timing import of_samples

Json = dict[str, Any]


def verification(variant: Variant, *, passed: bool = True) -> Verification:
    error = OutputError(output="y", dtype="float32", max_abs=1e-7, max_rel=1e-7, atol=1e-5, rtol=5e-4, passed=passed)
    return Verification(variant=variant, seeds=(0, 1, 2), outputs=(error,))


BOTH_RIGHT = {variant: verification(variant) for variant in (Variant.UNTUNED, Variant.TUNED)}


def noisy(median: float, seed: int, noise: float = 0.002) -> Timing:
    generator = random.Random(seed)  # noqa: S311 - noise
    return of_samples([median * (1 + abs(generator.gauss(0, noise))) for _ in range(60)])


def constant(**seconds: float) -> dict[Variant, Timing]:
    return {Variant(name): of_samples([value] * 60) for name, value in seconds.items()}


def test_an_output_that_was_not_compared_is_told() -> None:
    one = verification(Variant.UNTUNED).outputs[0]
    nothing = replace(one, output="z", not_compared=True)
    found = replace(verification(Variant.UNTUNED), outputs=(one, nothing))
    assert found.passed
    told = judge(constant(untuned=1e-3), {Variant.UNTUNED: found}).summary
    assert "Output z was not compared: ONNX Runtime computes no finite number there. The artifact is" in told
    empty = replace(found, outputs=(one, replace(nothing, empty=True), replace(nothing, output="w", empty=True)))
    told = judge(constant(untuned=1e-3), {Variant.UNTUNED: empty}).summary
    assert "Outputs z, w were not compared: ONNX Runtime returns no element there. The artifact is" in told
    assert (found.is_complete, replace(found, outputs=(one,)).is_complete) == (False, True)
    assert "not compared" not in judge(constant(untuned=1e-3), BOTH_RIGHT).summary
    assert not replace(found, outputs=(nothing, nothing)).passed


# choosing


def test_a_clear_gain_is_published() -> None:
    timings = {
        Variant.REFERENCE: noisy(1.2e-3, 1),
        Variant.UNTUNED: noisy(2e-3, 2),
        Variant.TUNED: noisy(1e-3, 3),
    }
    report = judge(timings, BOTH_RIGHT)
    assert report.published is Variant.TUNED
    assert report.speedup_over_untuned == pytest.approx(2.0, rel=0.01)
    assert report.speedup_over_reference == pytest.approx(1.2, rel=0.01)
    assert report.summary.startswith("Tuning made it 2.00× as fast: 1 ms against 2 ms untuned; tuned is 1.20× as fast")


def test_a_gain_without_records_is_not_called_tuning() -> None:
    report = judge(constant(untuned=2e-3, tuned=1e-3), BOTH_RIGHT, has_records=False)
    assert report.summary.startswith("Rewriting the model alone made it 2.00× as fast: 1 ms against 2 ms untuned")


def test_onnx_runtime_being_faster_is_said_first() -> None:
    report = judge(constant(reference=1e-3, untuned=4e-3, tuned=2e-3), BOTH_RIGHT)
    assert report.summary.startswith("ONNX Runtime is still 2.00× as fast as tuned; tuning made it 2.00× as fast: 2 ms")
    assert report.speedup_over_reference == 0.5


REFERENCE = {Variant.REFERENCE: Runtime.ONNXRUNTIME}
RUNTIMES = {**REFERENCE, Variant.ONNXRUNTIME: Runtime.ONNXRUNTIME, Variant.OPENVINO: Runtime.OPENVINO}


@pytest.mark.parametrize(
    ("seconds", "wrong", "fastest", "told"),
    [
        ((3e-3, 3e-3, 1e-3), (), "openvino", "OpenVINO is 2.00× as fast as tuned, so the bundle runs with it"),
        ((1.5e-3, 1e-3, 1e-3), (), "onnxruntime", "ONNX Runtime with chosen options is 2.00× as fast as tuned, so"),
        ((1.5e-3, 1.49e-3, 1.48e-3), (), "reference", "ONNX Runtime is 1.33× as fast as tuned, so"),
        ((1.5e-3, 1e-3, 1e-4), ("openvino",), "onnxruntime", "ONNX Runtime with chosen options is 2.00× as fast"),
        ((3e-3, 3e-3, 1.97e-3), (), "tuned", "Tuning made it 2.00× as fast: 2 ms against 4 ms untuned; tuned is"),
    ],
)
def test_the_runtime_is_the_fastest_right_one_and_the_usual_one_of_equals(
    seconds: tuple[float, float, float], wrong: tuple[str, ...], fastest: str, told: str
) -> None:
    reference, onnxruntime, openvino = seconds
    timings = constant(reference=reference, untuned=4e-3, tuned=2e-3, onnxruntime=onnxruntime, openvino=openvino)
    checked = {**BOTH_RIGHT, **{each: verification(each, passed=each not in wrong) for each in list(RUNTIMES)[1:]}}
    report = judge(timings, checked, runtimes=RUNTIMES)
    assert (report.published, report.fastest) == (Variant.TUNED, fastest)
    assert report.runtime is RUNTIMES.get(Variant(fastest), Runtime.TVM)
    assert report.summary.startswith(told)


@pytest.mark.parametrize("passed", [True, False])
def test_a_runtime_in_a_narrower_precision_is_named_with_it_and_runs_only_what_passes(passed: bool) -> None:
    narrow = replace(verification(Variant.OPENVINO, passed=passed), precision="bf16")
    timings = constant(reference=4e-3, untuned=4e-3, tuned=2e-3, openvino=1e-3)
    report = judge(timings, {**BOTH_RIGHT, Variant.OPENVINO: narrow}, runtimes=RUNTIMES)
    assert report.summary.startswith(
        "OpenVINO in bf16 is 2.00× as fast as tuned, so the bundle" if passed else "Tuning made it 2.00× as fast"
    )
    assert report.runtime is (Runtime.OPENVINO if passed else Runtime.TVM)


@pytest.mark.parametrize(
    ("library", "runtime", "narrowest"),
    [
        ("f32", "f32", "f32"),
        ("f32", "bf16", "bf16"),
        ("int8", "f32", "int8"),
        ("bf16", "int8", "int8"),
        ("fp16", "bf16", "bf16"),
    ],
)
def test_a_bundle_is_as_precise_as_the_narrower_of_its_library_and_its_runtime(
    library: str, runtime: str, narrowest: str
) -> None:
    report = judge(constant(untuned=2e-3), BOTH_RIGHT)
    assert replace(report, precision=library, runtime_precision=runtime).narrowest == narrowest


def test_a_faster_onnx_runtime_becomes_the_runtime_and_the_best_build_stays_published() -> None:
    report = judge(constant(reference=1e-3, untuned=4e-3, tuned=2e-3), BOTH_RIGHT, runtimes=REFERENCE)
    assert (report.runtime, report.published, report.fastest) == (
        Runtime.ONNXRUNTIME, Variant.TUNED, Variant.REFERENCE,
    )  # fmt: skip
    assert (report.speedup_over_reference, report.speedup_over_untuned) == (0.5, 2.0)
    assert report.runtime_speedup_over_untuned == 4.0
    assert report.summary.startswith(
        "ONNX Runtime is 2.00× as fast as tuned, so the bundle runs with it where it is installed; tuning made it 2.00×"
    )


@pytest.mark.parametrize(
    ("reference", "options"),
    [
        (noisy(1e-3, 1), {}),
        (noisy(1e-3, 1), {"reference": PLAIN_BUILD}),
        # Worth no second file and no other package.
        (of_samples([1.98e-3] * 60), {"runtimes": REFERENCE}),
        # The median is smaller by 5 %, but as many rounds were lost as won.
        (of_samples([1.9e-3] * 31 + [2.1e-3] * 29), {"runtimes": REFERENCE}),
    ],
)
def test_otherwise_the_bundle_runs_what_was_compiled(reference: Timing, options: Json) -> None:
    timings = {Variant.REFERENCE: reference, **constant(untuned=4e-3, tuned=2e-3)}
    report = judge(timings, BOTH_RIGHT, **options)
    assert (report.runtime, report.runtime_variant, report.fastest) == (Runtime.TVM, None, Variant.TUNED)
    assert report.runtime_speedup_over_untuned == report.speedup_over_untuned == 2.0


@pytest.mark.parametrize("tuned", [2e-3, 2.1e-3, 1.995e-3])
def test_without_a_clear_gain_untuned_is_published_and_said(tuned: float) -> None:
    report = judge(constant(reference=2e-3, untuned=2e-3, tuned=tuned), BOTH_RIGHT)
    assert report.published is Variant.UNTUNED
    assert report.speedup_over_untuned == 1.0
    assert report.summary.startswith("Tuning gave no significant gain")
    assert "untuned is as fast as ONNX Runtime" in report.summary


def test_a_busy_machine_is_said() -> None:
    busy = Conditions(device="Some CPU", threads=1, noisy=True, reasons=("the calibration loop varied by 9%",))
    report = judge(constant(untuned=2e-3, tuned=1e-3), BOTH_RIGHT, conditions=busy)
    assert report.summary.endswith(
        "The machine was busy (the calibration loop varied by 9%): times are approximate. Timed in turns, tuned is "
        "2.00 to 2.00× as fast as untuned (95 % confidence)."
    )
    assert report.speedup_over_untuned_interval == (2.0, 2.0)
    few = {variant: of_samples([1e-3] * 3) for variant in (Variant.UNTUNED, Variant.TUNED)}
    assert judge(few, BOTH_RIGHT, conditions=busy).summary.endswith("times and ratios are approximate.")
    assert report.conditions == busy
    assert "busy" not in judge(constant(untuned=2e-3, tuned=1e-3), BOTH_RIGHT).summary


def test_equal_variants_seldom_win_by_chance() -> None:
    lucky = sum(wins(noisy(1e-3, seed, 0.05), noisy(1e-3, seed + 10_000, 0.05)) for seed in range(300))
    assert lucky <= 6


def test_two_percent_show_through_noise_that_hits_both() -> None:
    generator = random.Random(5)  # noqa: S311 - noise
    disturbance = [1 + abs(generator.gauss(0, 0.3)) for _ in range(20) for _ in range(3)]
    slow = of_samples([1.00e-3 * each for each in disturbance])
    quick = of_samples([0.98e-3 * each for each in disturbance])
    assert wins(quick, slow)
    assert not wins(slow, quick)


def test_few_rounds_must_all_be_won() -> None:
    assert wins(of_samples([1.0] * 9), of_samples([1.1] * 9))
    assert not wins(of_samples([1.0] * 6 + [1.2] * 3), of_samples([1.1] * 9))


def test_a_wrong_variant_is_never_published() -> None:
    timings = constant(reference=1e-3, untuned=2e-3, tuned=0.5e-3)
    report = judge(timings, {**BOTH_RIGHT, Variant.TUNED: verification(Variant.TUNED, passed=False)})
    assert report.published is Variant.UNTUNED
    assert "the tuned variant gives wrong results" in report.summary
    report = judge(timings, {**BOTH_RIGHT, Variant.UNTUNED: verification(Variant.UNTUNED, passed=False)})
    assert report.published is Variant.TUNED
    assert "untuned gives wrong results" in report.summary


def test_an_unverified_variant_is_never_published() -> None:
    timings = constant(untuned=2e-3, tuned=0.5e-3)
    assert judge(timings, {Variant.UNTUNED: BOTH_RIGHT[Variant.UNTUNED]}).published is Variant.UNTUNED


def test_without_a_tuned_variant_nothing_is_claimed() -> None:
    report = judge(constant(reference=1e-3, untuned=2e-3), {Variant.UNTUNED: BOTH_RIGHT[Variant.UNTUNED]})
    assert report.published is Variant.UNTUNED
    assert report.summary.endswith("nothing was tuned: untuned runs in 2 ms.")


def test_nothing_right_is_a_failure_with_the_errors() -> None:
    wrong = {variant: verification(variant, passed=False) for variant in BOTH_RIGHT}
    with pytest.raises(errors.VerificationFailed) as caught:
        judge(constant(untuned=2e-3, tuned=1e-3), wrong)
    [told] = caught.value.details["verifications"]["tuned"]
    assert (told["output"], told["rtol"], told["passed"]) == ("y", wrong[Variant.TUNED].outputs[0].rtol, False)
    with pytest.raises(errors.VerificationFailed):
        judge(constant(reference=1e-3), {})
