"""Stage ``compile``: make the builds that may be published, each with the best measured records in the store."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from domain import errors
from domain.jobs import Tuner
from domain.records import Record
from domain.stage_results import Build, CompileResult, SearchedStrategy, SkippedBuild, Strategy
from tuner.search import precisions, racing
from worker.pipeline import builds, fallback, in_place, recovery, reuse
from worker.pipeline.context import COMPILE_SECONDS, JobContext
from worker.pipeline.fallback import AnyRecord
from worker.pipeline.search import mixing, strategies

_NO_RECORD = "no tuning task has a valid record; only the untuned build exists"


def run(context: JobContext) -> CompileResult:
    planned = _plan(context)
    made = _Builder(context).make(planned)
    if not made.builds and not any(each.tuner for each in planned):
        context.note(_NO_RECORD)
    return made


def rebuild(context: JobContext, build: Build, kept: Sequence[Record]) -> Build:
    """Build again with the best of ``kept``. Raises EngineError and the caller's errors."""
    compiled = builds.tuned(context, build, [record.schedule for record in kept])
    return replace(build, records=len(compiled.records))


def candidate_records(context: JobContext, build: Build) -> list[Record]:
    """The store's best records of the build's tuners for its tuning tasks, fastest first for each."""
    if build.tuner is None:
        return []
    return [*reuse.best_records(builds.view(context, build)), *mixing.useful_records(context, build)]


def _candidates(context: JobContext, build: Build) -> list[AnyRecord]:
    """Records to build with. A job that measures nothing uses its owner's imports where nothing is measured."""
    measured = candidate_records(context, build)
    if context.measures or build.tuner is None:
        return [*measured]
    view, known = builds.view(context, build), {record.key.workload_key for record in measured}
    keys = [task.workload_key for task in reuse.known(view) or () if task.workload_key not in known]
    with context.database.reading() as session:
        found = reuse.imported(session, view, keys, tuner=build.tuner, most=reuse.CANDIDATES)
    return [*measured, *(record for key in keys for record in found.get(key, ()))]


def _plan(context: JobContext) -> list[Build]:
    """Builds of every strategy with records, and of the rewritten network, the most promising first."""
    searched = {strategy.name: strategy for strategy in context.results.tune.strategies}
    known: list[Strategy] = [*searched.values()]
    if context.measures:
        every = [*strategies.of_job(context), *([mixing.MIXED] if mixing.is_possible(context) else [])]
        known += [strategy for strategy in every if strategy.name not in searched]
    found: dict[tuple[str, ...], Build] = {}
    for strategy in known:
        build, lines = _build_of(context, strategy, searched.get(strategy.name))
        if lines:
            # Without convolutions, all layouts give the same build.
            found.setdefault((build.engine, build.precision, *lines), build)
    planned = [*found.values(), *_without_records(context)]
    # The most promising build of each precision first: narrow precisions may fail their accuracy gate.
    places: Counter[str] = Counter()
    ranked = []
    for build in sorted(planned, key=_promise):
        ranked.append((places[build.precision], build))
        places[build.precision] += 1
    return [build for _, build in sorted(ranked, key=lambda entry: entry[0])]


def _promise(build: Build) -> tuple[bool, float]:
    """Sort key: builds without an estimate come last."""
    return build.estimate is None, build.estimate or 0.0


def _build_of(context: JobContext, strategy: Strategy, searched: SearchedStrategy | None) -> tuple[Build, list[str]]:
    """The build with the strategy's best records, and these; ``searched`` is None for one that was not searched."""
    view = strategies.view(context, strategy)
    build = Build(
        name=strategy.name,
        engine=strategy.tuner.engine,
        tuner=strategy.beside or strategy.tuner,
        mixed=strategy.tuner if strategy.beside else None,
        layout=strategy.layout,
        precision=precisions.first(view.request),
        rewritten=context.rewrites,
        estimate=searched.estimate if searched else _estimate(context, strategy),
        trials=searched.trials if searched else 0,
        seconds_tuned=searched.seconds if searched else 0.0,
    )
    return build, [record.schedule for record in _candidates(context, build)]


def _estimate(context: JobContext, strategy: Strategy) -> float | None:
    """From the store's records, for a strategy that was not searched."""
    view = strategies.view(context, strategy)
    extracted = reuse.known(view) or []
    if strategy.beside is None:
        return strategies.estimate(view, extracted, {})
    base = _estimate(context, Strategy(tuner=strategy.beside))
    return mixing.estimate(view, extracted, in_place.seconds(view, extracted), base) if extracted else None


def _without_records(context: JobContext) -> list[Build]:
    """The rewritten network, by each engine, and in every other precision that the job considers."""
    baseline, usual = context.results.baseline, precisions.first(context.request)
    if not context.measures:
        return []
    found = [builds.rewritten(context, engine, usual) for engine in baseline.engines if context.rewrites]
    quickest = sorted(baseline.engines, key=lambda engine: baseline.start(engine) or math.inf)
    for precision in strategies.considered(context)[1:]:
        able = context.results.imported.able.get(str(precision), ())
        found += [builds.rewritten(context, engine, precision) for engine in quickest if engine in able]
    return found


def _is_made(context: JobContext, build: Build) -> bool:
    """Whether the baseline made this build."""
    usual = build.precision is precisions.first(context.request)
    return build.tuner is None and usual and build.engine in context.results.baseline.rewritten


class _Builder:
    """Makes builds while the budget allows; a build that fails is left out."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._builds: list[Build] = []
        self._skipped: list[SkippedBuild] = []
        self._files: list[str] = []
        self._spent = 0.0
        self._longest = 0.0

    def make(self, planned: Sequence[Build]) -> CompileResult:
        near: dict[str, bool] = {}
        for precision in {build.precision for build in planned}:
            alike = [build for build in planned if build.precision == precision]
            near |= racing.near({build.name: build.estimate for build in alike if build.estimate is not None})
        for build in planned:
            if not near.get(build.name, True):
                self._skip(build, f"not built: the estimate from its operators, {_ms(build.estimate)}, is too slow")
            elif not self._has_time():
                self._skip(build, "not built: the job's total limit leaves no time")
            elif not self._affords(build):
                self._skip(build, "not built: the budget is too small for another build")
            else:
                self._make_both(build)
        return CompileResult(files=tuple(self._files), builds=tuple(self._builds), skipped=tuple(self._skipped))

    def _has_time(self) -> bool:
        """Whether a build that takes as long as the longest so far ends in time."""
        left = self._context.limit.left
        return left is None or left > max(self._longest, self._context.results.baseline.build_seconds)

    def _affords(self, build: Build) -> bool:
        """Always true for the first build in each precision, if there is time."""
        if not self._has_time():
            return False
        context, built = self._context, len(self._builds)
        if _is_made(context, build):
            return True
        if build.precision not in {made.precision for made in self._builds}:
            return True
        seconds = context.request.budget.seconds or context.results.tune.seconds
        return racing.affords(seconds, built=built, spent=self._spent, next_seconds=self._longest)

    def _make_both(self, build: Build) -> None:
        """Build with records chosen for the whole graph, and for each operator alone if that differs."""
        kept = self._make(build, _candidates(self._context, build))
        if kept is None or build.mixed or build.tuner is not Tuner.AUTOTVM or not self._affords(build):
            return
        alone = replace(build, name=f"{build.name}, operators alone", graph_layout="none")
        if self._differ(build, alone):
            self._make(alone, kept)

    def _make(self, build: Build, candidates: Sequence[AnyRecord]) -> Sequence[AnyRecord] | None:
        """Return the records that the build was made from; None if it failed."""
        context, first, started = self._context, not self._builds, time.monotonic()
        try:
            compiled, kept = fallback.tuned(context, build, candidates, has_time=self._has_time)
        except errors.TunesmithError as error:
            recovery.tolerate(context, error, f"the tuned build failed ({build.name})")
            self._skip(build, f"failed to build: {error.message[:300].rstrip('.')}")
            return None
        took = time.monotonic() - started
        self._longest = max(self._longest, took)
        self._spent += 0.0 if first else took
        self._builds.append(replace(build, records=len(compiled.records)))
        self._files += [build.records_file, *compiled.files]
        return kept

    def _differ(self, one: Build, other: Build) -> bool:
        """Whether the engine would choose different records for the two builds."""
        context = self._context
        compiler = context.compiler(one.engine)
        if "choose" not in compiler.hello.get("methods", ()):
            return False
        path = str(context.folder / f"{one.folder}-candidates.jsonl")
        try:
            chosen = [
                context.ask(
                    compiler, "choose", {**builds.params(context, build), "records": path}, timeout=COMPILE_SECONDS
                )["lines"]
                for build in (one, other)
            ]
        except errors.TunesmithError as error:
            recovery.tolerate(context, error, f"cannot determine the records of {other.name}")
            return False
        return sorted(chosen[0]) != sorted(chosen[1])

    def _skip(self, build: Build, verdict: str) -> None:
        self._skipped.append(SkippedBuild(build=build, verdict=verdict))


def _ms(seconds: float | None) -> str:
    return f"{(seconds or 0.0) * 1e3:.3g} ms"
