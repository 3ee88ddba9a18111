"""Choice of records inside the network: the fastest one of an operator by itself may not be the fastest there.

The chosen build is made again with the next best records of its costly operators, and without a record where the
untuned schedule may do better. All these builds are profiled in turns, each operator keeps the schedule with which it
was fastest, and the build that results competes with the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from domain import errors, progress
from domain.jobs import Tuner
from domain.records import Record
from domain.search_parts import SearchPart
from domain.stage_results import Build
from tuner.native import autotvm
from tuner.results import in_network
from tuner.search import racing
from worker.pipeline import builds, compiling, in_place, profiling, recovery, reuse
from worker.pipeline.context import JobContext
from worker.pipeline.search import mixing

_Choice = Record | None
"""A workload's record in a build; None for the schedule of an untuned build."""
_MOST_ALTERNATIVES = 3
_TIME_SHARE = 0.5
"""Share of the time left to repeat timings that the builds may take."""
_NEAR = 1.5
"""Records that are slower by themselves than this multiple of the best are not tried, nor are untuned schedules that
were slower in the untuned build than this multiple of what the operator takes now."""
_TURNS = 3
_SIDE_SECONDS = 0.5
"""Wanted duration of one profile."""
_LEAST_GAIN = 0.01
"""Relative gain of the whole network that is worth another build."""


@dataclass(frozen=True, kw_only=True)
class Improved:
    """A build whose costly operators have the schedules that were fastest in the network."""

    build: Build
    operators: int
    """Number of workloads whose schedule differs from that of the build before."""


def improved(context: JobContext, build: Build) -> Improved | None:
    """Return a build that is expected to be faster than ``build``, which is correct; None if there is none.

    Raises Canceled, and the heartbeat's errors; errors of engines are noted.
    """
    if not context.settings.searches_with(SearchPart.IN_NETWORK):
        return None
    if build.tuner is None or not build.records or not context.reference_shares_device:
        return None
    if not builds.process(context, build).is_library:
        return None
    count = _affordable(context)
    if not count:
        return None
    try:
        return _Search(context, build).run(count)
    except (errors.EngineError, errors.TimeLimit) as error:
        recovery.tolerate(context, error, "records were not compared in the network")
        return None


def _affordable(context: JobContext) -> int:
    """Return how many alternatives the time left allows, with the build that results.

    Small budgets allow one tuned build, as in stage ``compile``.
    """
    baseline = context.results.baseline
    # Without times of the untuned build, nobody knows how long a profile takes.
    if progress.tuning_seconds(context.request.budget) <= racing.SAVED_SECONDS or not baseline.seconds:
        return 0
    left = _TIME_SHARE * context.limit.left_to_repeat
    profile = profiling.duration(max(baseline.seconds.values()), 0.0)
    seconds = max(baseline.build_seconds, 1.0) + _TURNS * profile
    return max(0, min(_MOST_ALTERNATIVES, int(left / seconds) - 1))


class _Search:
    def __init__(self, context: JobContext, build: Build) -> None:
        self._context = context
        # Given one record for each workload, an engine has no layouts to decide.
        fixed = "none" if build.tuner is Tuner.AUTOTVM else build.graph_layout
        self._build = replace(build, graph_layout=fixed)
        self._original = build

    def run(self, count: int) -> Improved | None:
        chosen, others = self._records()
        if not chosen:
            return None
        first = self._profile(self._original)
        described = {task.workload_key: task.description for task in self._tasks() if task.workload_key in chosen}
        places = in_network.places(first, described)
        untuned = self._as_good_untuned(first, places, chosen, described)
        others = {key: [None, *found] if key in untuned else found for key, found in others.items()}
        costly = [key for key in in_network.costly(in_network.times([first], places)) if others.get(key)]
        alternatives = [
            self._make(number, {key: others[key][number] for key in costly if number < len(others[key])}, chosen)
            for number in range(min(count, max((len(others[key]) for key in costly), default=0)))
        ]
        compared = self._compare(alternatives, {key: places[key] for key in costly})
        if compared is None:
            return None
        base, times = compared
        # In the later alternatives an operator with few records has its own, and differs by noise alone.
        times = [
            {key: seconds for key, seconds in found.items() if place < len(others[key])}
            for place, found in enumerate(times)
        ]
        found = in_network.better(base, times)
        gain = sum(base[key] - times[place][key] for key, place in found.items())
        if gain < _LEAST_GAIN * sum(layer["seconds"] for layer in first):
            return None
        records = {key: others[key][place] for key, place in found.items()}
        made = self._make(None, records, chosen)
        return Improved(build=made, operators=len(found))

    def _tasks(self) -> Sequence[Any]:
        own = reuse.known(builds.view(self._context, self._build)) or ()
        return [*own, *mixing.tasks(self._context, self._build)]

    def _as_good_untuned(
        self,
        first: Sequence[Any],
        places: Mapping[str, Sequence[int]],
        chosen: Mapping[str, Record],
        described: Mapping[str, str],
    ) -> set[str]:
        """Return the workloads that may need no record, as the untuned build is about as fast there.

        Without its record, a workload of AutoTVM has the channel blocks of the untuned build, which must be those of
        its record.
        """
        untuned = in_place.layers(builds.view(self._context, self._build))
        before = in_network.places(untuned, described)
        times, now = in_network.times([untuned], before), in_network.times([first], places)
        found = set()
        for key in places.keys() & before.keys():
            same = in_network.are_alike([first[at] for at in places[key]], [untuned[at] for at in before[key]])
            if times[key] / len(before[key]) <= _NEAR * now[key] / len(places[key]) and (
                same or not _blocks(chosen[key])
            ):
                found.add(key)
        return found

    def _records(self) -> tuple[dict[str, Record], dict[str, list[_Choice]]]:
        """Return the build's own record of each workload, and the next best ones that may take its place."""
        lines = set((self._context.folder / self._original.records_file).read_text().splitlines())
        known: dict[str, list[Record]] = {}
        for record in compiling.candidate_records(self._context, self._original):
            known.setdefault(record.key.workload_key, []).append(record)
        chosen = {key: record for key, found in known.items() for record in found if record.schedule.strip() in lines}
        return chosen, {key: _alternatives(chosen[key], known[key]) for key in chosen}

    def _make(self, number: int | None, records: Mapping[str, _Choice], chosen: Mapping[str, Record]) -> Build:
        name = f"{self._build.name}, in the network" + ("" if number is None else f", alternative {number + 1}")
        used = [record for record in {**chosen, **records}.values() if record is not None]
        build = replace(self._build, name=name, records=len(used))
        compiled = builds.tuned(self._context, build, [record.schedule for record in used])
        return replace(build, records=len(compiled.records))

    def _compare(
        self, alternatives: Sequence[Build], places: Mapping[str, Sequence[int]]
    ) -> tuple[dict[str, float], list[dict[str, float]]] | None:
        """Return each workload's seconds in the original build and in each alternative, all profiled in turns."""
        if not alternatives:
            return None
        sides = [self._original, *alternatives]
        runs: list[list[Any]] = [[] for _ in sides]
        with self._context.exclusive_device():
            for _ in range(_TURNS):
                for side, build in zip(runs, sides, strict=True):
                    side.append(self._profile(build))
        for build in alternatives:
            builds.process(self._context, build).close()
        original, *others = runs
        return in_network.times(original, places), [
            in_network.times(run, places) if in_network.are_alike(original[0], run[0]) else {} for run in others
        ]

    def _profile(self, build: Build) -> list[dict[str, Any]]:
        seconds = min(self._context.results.baseline.seconds.values())
        process = builds.process(self._context, build)
        return profiling.of_build(self._context, process, run_seconds=seconds, wanted=_SIDE_SECONDS)


def _alternatives(chosen: Record, known: Sequence[Record]) -> list[_Choice]:
    """Return other records of a workload that leave the network's layouts as they are, the fastest first."""
    best = chosen.latency or 0.0
    return [
        record
        for record in known
        if record.schedule_digest != chosen.schedule_digest
        and (record.latency or 0.0) <= _NEAR * best
        and _blocks(record) == _blocks(chosen)
    ]


def _blocks(record: Record) -> tuple[int, ...]:
    return autotvm.blocks(record.schedule) if record.tuner == Tuner.AUTOTVM else ()
