from __future__ import annotations

import itertools
import platform
import random
import statistics
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from domain.artifacts import Timing
from domain.targets import Device
from tuner.results import conditions
from tuner.results.conditions import Watch, until_quiet
from tuner.results.timing import of_samples

DEVICE = Device(key="x86_64/some/avx2/t1", name="Some CPU", threads=1)


def measured(spread: float) -> Timing:
    generator = random.Random(0)  # noqa: S311 - noise
    return of_samples([1e-3 * (1 + abs(generator.gauss(0, spread))) for _ in range(60)])


def slower(timing: Timing, factor: float) -> Timing:
    return of_samples([sample * factor for sample in timing.samples])


def watch(*loops: float) -> Watch:
    seconds = itertools.cycle(loops)
    watching = Watch(calibrate=lambda: next(seconds))
    for _ in range(20):
        watching.look()
    return watching


def test_a_quiet_measurement_says_what_it_was_made_under() -> None:
    found = watch(*[1e-3] * 10, *[1.01e-3] * 10).conditions(DEVICE, [measured(0.001)])
    assert (found.device, found.threads, found.noisy, found.reasons) == ("Some CPU", 1, False, ())
    assert found.drift is not None
    assert 0.009 < found.drift < 0.011


def test_a_wide_interval_is_noise() -> None:
    found = watch(1e-3).conditions(DEVICE, [measured(0.001), measured(0.5)])
    assert found.noisy
    assert "interval" in found.reasons[0]


def test_a_clock_that_changes_is_noise_and_one_hiccup_is_not() -> None:
    assert watch(*[1e-3] * 10, *[1.2e-3] * 10).conditions(DEVICE, [measured(0.001)]).noisy
    assert not watch(*[1e-3] * 4, 5e-3).conditions(DEVICE, [measured(0.001)]).noisy


def test_a_noisy_measurement_is_repeated_until_one_is_quiet() -> None:
    spreads: Iterator[float] = iter([0.5, 0.001, 0.3])
    timings, found = until_quiet(lambda _: {"untuned": measured(next(spreads))}, DEVICE)
    assert (found.noisy, found.attempts) == (False, 2)
    assert timings["untuned"] == measured(0.001)


def test_noisy_measurements_are_kept_together_as_the_most_precise_one_may_be_wrong() -> None:
    attempts = [measured(0.5), slower(measured(0.2), 1.5), measured(0.9)]
    left = iter(attempts)
    timings, found = until_quiet(lambda _: {"untuned": next(left)}, DEVICE)
    assert (found.noisy, found.attempts) == (True, 3)
    kept = timings["untuned"]
    assert kept.samples == tuple(sample for each in attempts for sample in each.samples)
    assert kept.median == statistics.median(kept.samples)
    assert kept.processes == 3
    assert kept.ci_low == min(each.ci_low or 0 for each in attempts)
    assert kept.ci_high == max(each.ci_high or 0 for each in attempts)


def test_a_noisy_measurement_with_precise_ratios_is_not_repeated() -> None:
    noisy = measured(0.5)
    for factor, attempts in ((1.2, 1), (None, 3)):
        other = slower(noisy, factor) if factor else of_samples(noisy.samples[::-1])
        timings, found = until_quiet(lambda _, other=other: {"untuned": other, "tuned": noisy}, DEVICE)
        assert (found.noisy, found.attempts) == (True, attempts)
        assert len(timings["tuned"].samples) == attempts * len(noisy.samples)


def test_a_clock_that_varied_in_every_attempt_stays_noise() -> None:
    def measure(watching: Watch) -> dict[str, Timing]:
        loops = iter((1e-3, 1.2e-3, 1e-3))
        watching.calibrate = lambda: next(loops)
        for _ in range(3):
            watching.look()
        return {"untuned": measured(0.001)}

    _, found = until_quiet(measure, DEVICE)
    assert found.noisy
    assert "calibration" in found.reasons[0]


@pytest.mark.parametrize(("seconds", "attempts"), [(0.0, 1), (1.9, 1), (2.0, 2), (3.0, 3)])
def test_a_noisy_measurement_is_repeated_while_there_is_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, attempts: int
) -> None:
    now = [0.0]
    monkeypatch.setattr(conditions, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def measure(_: Watch) -> dict[str, Timing]:
        now[0] += 1.0
        return {"untuned": measured(0.5)}

    _, found = until_quiet(measure, DEVICE, seconds=seconds)
    assert (found.noisy, found.attempts) == (True, attempts)


def test_this_machine_can_be_looked_at() -> None:
    watching = Watch()
    for _ in range(3):
        watching.look()
    found = watching.conditions(DEVICE, [])
    assert found.drift is not None
    assert found.drift >= 0
    assert found.load is None or found.load >= 0
    assert (found.megahertz is None) == (platform.machine() != "x86_64")
    assert found.megahertz is None or 500 < found.megahertz[0] <= found.megahertz[1] < 8000
    assert conditions.calibration() > 0


def test_a_clock_that_cannot_be_measured_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise PermissionError("memory may not be made executable")

    monkeypatch.setattr(conditions, "_chain", refused)
    assert conditions.clock() is None
