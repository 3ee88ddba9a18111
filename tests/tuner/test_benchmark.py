from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain import errors
from domain.artifacts import OutputError, Timing, Variant, Verification
from domain.ports import Canceled, OnEvent
from tests.tuner.fakes import FakeEngine
from tuner import benchmark
from tuner.benchmark import Contender, interleave, judge, timing, wins

Json = dict[str, Any]


def engine(seconds: Callable[[], float], log: list[str], name: str) -> FakeEngine:
    def take_time(params: Json, _: OnEvent) -> Json:
        log.append(name)
        return {"samples": [seconds() for _ in range(params["repeat"])]}

    return FakeEngine({"time": take_time})


def contenders(log: list[str], **seconds: float) -> list[Contender]:
    return [
        Contender(variant=Variant(name), engine=engine(lambda value=value: value, log, name), params={"bundle": "/b"})
        for name, value in seconds.items()
    ]


def run(parties: list[Contender], **options: Any) -> dict[Variant, Timing]:
    return interleave(parties, pause=lambda _: None, **options)


def verification(variant: Variant, *, passed: bool = True) -> Verification:
    error = OutputError(output="y", dtype="float32", max_abs=1e-7, max_rel=1e-7, atol=1e-5, rtol=5e-4, passed=passed)
    return Verification(variant=variant, seeds=(0, 1, 2), outputs=(error,))


BOTH_RIGHT = {variant: verification(variant) for variant in (Variant.UNTUNED, Variant.TUNED)}


def noisy(median: float, seed: int, noise: float = 0.002) -> Timing:
    generator = random.Random(seed)  # noqa: S311 - noise
    return timing([median * (1 + abs(generator.gauss(0, noise))) for _ in range(60)])


def constant(**seconds: float) -> dict[Variant, Timing]:
    return {Variant(name): timing([value] * 60) for name, value in seconds.items()}


# taking turns


def test_every_variant_is_timed_in_every_round_in_changing_order() -> None:
    log: list[str] = []
    timings = run(contenders(log, reference=1e-3, untuned=2e-3, tuned=1.5e-3), rounds=10, samples=3, seed=1)
    assert [len(timings[variant].samples) for variant in Variant] == [30, 30, 30]
    turns = [tuple(log[start : start + 3]) for start in range(6, len(log), 3)]
    assert len(turns) == 10
    assert all(sorted(turn) == ["reference", "tuned", "untuned"] for turn in turns)
    assert len(set(turns)) > 2
    again: list[str] = []
    run(contenders(again, reference=1e-3, untuned=2e-3, tuned=1.5e-3), rounds=10, samples=3, seed=1)
    assert again == log


@pytest.mark.parametrize(("seconds", "number"), [(5.0, 1), (1e-2, 2), (1e-3, 20), (1e-5, 2000), (0.0, 10_000)])
def test_a_sample_lasts_long_enough(seconds: float, number: int) -> None:
    party = contenders([], untuned=seconds)[0]
    run([party], rounds=1)
    assert isinstance(party.engine, FakeEngine)
    asked = [params for _, params in party.engine.requests]
    assert asked[0]["number"] == 1
    assert asked[-1] == {"bundle": "/b", "number": number, "repeat": benchmark.SAMPLES_PER_ROUND + 1}


def test_a_benchmark_can_be_canceled() -> None:
    with pytest.raises(Canceled):
        run(contenders([], untuned=1e-3), canceled=lambda: True)


def test_time_can_cut_a_benchmark_short_but_not_below_three_rounds() -> None:
    timings = run(contenders([], untuned=1e-3), rounds=50, samples=2, seconds=0.0)
    assert len(timings[Variant.UNTUNED].samples) == 6


# statistics


@given(st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=50))
def test_statistics_agree_with_each_other(samples: list[float]) -> None:
    result = timing(samples)
    assert result.samples == tuple(samples)
    assert result.min <= result.median <= result.p90 <= result.p99 <= result.max
    assert result.min * (1 - 1e-9) <= result.mean <= result.max * (1 + 1e-9)
    assert result.median == statistics.median(samples)


def test_percentiles_are_numpys() -> None:
    ordered = [1.0, 2.0, 3.0, 4.0, 10.0]
    assert benchmark.percentile(ordered, 0.9) == pytest.approx(7.6)
    assert benchmark.percentile(ordered, 0.99) == pytest.approx(9.76)
    assert benchmark.percentile([7.0], 0.99) == 7.0
    assert timing([1.0, 3.0]).std == 1.0


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


def test_onnx_runtime_being_faster_is_said() -> None:
    report = judge(constant(reference=1e-3, untuned=4e-3, tuned=2e-3), BOTH_RIGHT)
    assert report.summary.endswith("ONNX Runtime is still 2.00× as fast as tuned.")
    assert report.speedup_over_reference == 0.5


@pytest.mark.parametrize("tuned", [2e-3, 2.1e-3, 1.995e-3])
def test_without_a_clear_gain_untuned_is_published_and_said(tuned: float) -> None:
    report = judge(constant(reference=2e-3, untuned=2e-3, tuned=tuned), BOTH_RIGHT)
    assert report.published is Variant.UNTUNED
    assert report.speedup_over_untuned == 1.0
    assert report.summary.startswith("Tuning gained nothing that is sure")
    assert "untuned is level with ONNX Runtime" in report.summary


def test_equal_variants_seldom_win_by_chance() -> None:
    lucky = sum(wins(noisy(1e-3, seed, 0.05), noisy(1e-3, seed + 10_000, 0.05)) for seed in range(300))
    assert lucky <= 6


def test_two_percent_show_through_noise_that_hits_both() -> None:
    generator = random.Random(5)  # noqa: S311 - noise
    disturbance = [1 + abs(generator.gauss(0, 0.3)) for _ in range(20) for _ in range(3)]
    slow = timing([1.00e-3 * each for each in disturbance])
    quick = timing([0.98e-3 * each for each in disturbance])
    assert wins(quick, slow)
    assert not wins(slow, quick)


def test_few_rounds_must_all_be_won() -> None:
    assert wins(timing([1.0] * 9), timing([1.1] * 9))
    assert not wins(timing([1.0] * 6 + [1.2] * 3), timing([1.1] * 9))


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
    report = judge(constant(reference=1e-3, untuned=2e-3), BOTH_RIGHT)
    assert report.published is Variant.UNTUNED
    assert report.summary.startswith("Nothing was tuned: untuned runs in 2 ms")


def test_nothing_right_is_a_failure_with_the_errors() -> None:
    wrong = {variant: verification(variant, passed=False) for variant in BOTH_RIGHT}
    with pytest.raises(errors.VerificationFailed) as caught:
        judge(constant(untuned=2e-3, tuned=1e-3), wrong)
    assert caught.value.details["verifications"]["tuned"][0]["output"] == "y"
    with pytest.raises(errors.VerificationFailed):
        judge(constant(reference=1e-3), {})
