"""A round's order of things: search, build, measure, spool, tell, learn."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tuner.engines.runtime import rounds
from tuner.engines.runtime.rounds import NotInSpace, Trial, TrialLimit
from tuner.engines.runtime.trials import CandidateBuild, MeasureConditions, Measurement, MeasureOptions


class Search:
    """Proposes the numbers from 0 on, and knows the best that it was told of."""

    exhausted: str | None = None

    def __init__(self) -> None:
        self.best = math.inf
        self.updates: list[int] = []
        self._next = 0

    def propose(self, count: int) -> list[int]:
        self._next += count
        return list(range(self._next - count, self._next))

    def admit(self, line: str, /) -> int | None:
        number = int(line)
        if number < 0:
            raise NotInSpace("negative")
        return None if number < self._next else number

    def learn(self, candidate: int, measurement: Measurement, /) -> Trial:
        self.best = min([self.best, *measurement.latencies])
        return Trial(line=str(candidate), digest="d", measurement=measurement, finished_at=1.0)

    def update(self, trials: Sequence[Trial], /) -> None:
        self.updates.append(len(trials))


class Measurer:
    """Measures recorded latencies, with the best that was known when each was begun."""

    queue_seconds = 0.0

    def __init__(self, latencies: Sequence[float]) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float, build=100.0)
        self.bests: list[float] = []
        self._latencies = iter(latencies)

    def batch(self, conditions: MeasureConditions) -> int:
        return 2

    def measure(
        self, builds: Sequence[CandidateBuild], conditions: MeasureConditions, scratch: Path, best: Callable[[], float]
    ) -> Iterator[tuple[int, Measurement]]:
        assert conditions.options.repeat == 3
        assert scratch.is_dir()
        self.spent["build"] += 2.0
        for position in range(len(builds)):
            self.bests.append(best())
            self.spent["measure"] += 0.5
            yield position, Measurement(latencies=(next(self._latencies),), calibration=9.1e-5)


def _tune(search: Search, measurer: Measurer, folder: Path, trials: int, emit: Any, **more: Any) -> dict[str, Any]:
    params = {"workload_key": "k", "first_trial": 5, "trials": trials, "spool": str(folder / "spool"), **more}
    conditions = MeasureConditions(target="llvm", threads=1, options=MeasureOptions())
    made: Any = measurer
    return rounds.tune(
        params,
        search,
        made,
        conditions,
        build=lambda each: CandidateBuild(function="build", arguments=(each,)),
        emit=emit,
    )


def test_a_candidate_is_measured_against_the_best_before_it(tmp_path: Path) -> None:
    search, measurer = Search(), Measurer([3e-3, 1e-3, 2e-3])
    _tune(search, measurer, tmp_path, 3, lambda kind, data: None)
    assert measurer.bests == [math.inf, 3e-3, 1e-3]
    assert search.updates == [2, 1]


def test_a_trial_is_on_disk_before_it_is_told(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    def emit(kind: str, data: dict[str, Any]) -> None:
        if kind == "trial":
            written = [json.loads(line) for line in (tmp_path / "spool").read_text().splitlines()]
            assert written[-1] == data
            told.append(data)

    _tune(Search(), Measurer([3e-3, 1e-3]), tmp_path, 2, emit)
    assert [trial["trial_number"] for trial in told] == [5, 6]
    assert [trial["calibration"] for trial in told] == [9.1e-5, 9.1e-5]


def test_a_round_tells_its_own_seconds(tmp_path: Path) -> None:
    answer = _tune(Search(), Measurer([1e-3] * 3), tmp_path, 3, lambda kind, data: None)
    assert answer["trials"] == 3
    spent = answer["spent"]
    assert spent["build"] == pytest.approx(4.0)
    assert spent["measure"] == pytest.approx(1.5)
    assert set(spent) == {"search", "build", "measure", "train"}


def test_offered_schedules_follow_the_first_proposal_and_wrong_ones_cost_no_trial(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    offered = [{"id": 10 + place, "schedule": str(each)} for place, each in enumerate((-1, 700, -2, 800, 900))]
    (tmp_path / "candidates").write_text("".join(json.dumps(each) + "\n" for each in offered))
    answer = _tune(
        Search(),
        Measurer([1e-3] * 8),
        tmp_path,
        8,
        lambda kind, data: told.append((kind, data)),
        candidates=str(tmp_path / "candidates"),
        adopted=2,
    )
    assert answer["trials"] == 8
    trials = [(data["schedule"], data.get("candidate")) for kind, data in told if kind == "trial"]
    assert trials[:4] == [("0", None), ("700", 11), ("800", 13), ("1", None)]
    verdicts = [(data["id"], data["status"]) for kind, data in told if kind == "candidate"]
    assert verdicts == [
        (10, "checking"), (10, "rejected"), (11, "checking"), (11, "accepted"),
        (12, "checking"), (12, "rejected"), (13, "checking"), (13, "accepted"),
    ]  # fmt: skip


def test_a_round_of_one_trial_is_the_search_s_own(tmp_path: Path) -> None:
    (tmp_path / "candidates").write_text('{"id": 1, "schedule": "700"}\n')
    told: list[Any] = []
    offered = {"candidates": str(tmp_path / "candidates"), "adopted": 1}
    _tune(Search(), Measurer([1e-3]), tmp_path, 1, lambda kind, data: told.append((kind, data)), **offered)
    assert [data["schedule"] for kind, data in told if kind == "trial"] == ["0"]


@pytest.mark.parametrize(("seconds", "trials"), [(0.0, 0), (None, 2), (60.0, 2)])
def test_a_round_without_time_left_measures_nothing(tmp_path: Path, seconds: float | None, trials: int) -> None:
    answer = _tune(Search(), Measurer([1e-3] * 2), tmp_path, 2, lambda kind, data: None, seconds=seconds)
    assert (answer["trials"], answer["exhausted"]) == (trials, False)
    assert answer["reason"] == ("trials" if trials else "seconds")


def test_a_search_ends_with_its_trials_or_where_nothing_gets_better() -> None:
    progress = TrialLimit(n_trial=6, early_stopping=3)
    for candidate, seconds in enumerate((3.0, None, 2.0, 2.5)):
        progress.count(candidate, seconds)
    # What was measured before counts once.
    progress.count(3, 2.6)
    assert (progress.best, progress.ended, progress.allowed(9)) == (2.0, None, 2)
    progress.count(4, math.inf)
    assert progress.ended is None
    progress.count(5, 2.2)
    assert (progress.ended, progress.allowed(9)) == ("n_trial", 0)
    patient = TrialLimit(n_trial=None, early_stopping=2)
    assert patient.allowed(9) == 9
    for candidate in range(2):
        patient.count(candidate, None)
    assert patient.ended == "early_stopping"
