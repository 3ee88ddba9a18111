"""Stage ``baseline``: the reference's outputs on seeded inputs, untuned builds that are right, and a quick timing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from domain import data_sets, errors
from domain.artifacts import Variant, Verification
from domain.jobs import Precision
from domain.stage_results import BaselineResult, Build, RowRuns
from tuner.results import benchmark, bundle, timing, verification
from tuner.results.timing import Timed
from tuner.search import precisions
from worker.engines import ONNX
from worker.pipeline import ahead, beside, builds, data, emulation, placing, recovery, references, verifying
from worker.pipeline.builds import REWRITTEN
from worker.pipeline.context import COMPILE_SECONDS, EXPECTED_OF_ROWS, INPUTS, JobContext

_TIME_SECONDS = 600.0
_REPEAT = 5
_NUMBER = 3
"""Runs of a sample, unless a run of the reference is long enough by itself."""
_PASSES = 2
_ROWS_SECONDS = 10.0
_LEAST_ROW_RUNS = 8
"""Seconds that the reference may take for the rows of a data set, and runs that it makes in any case."""
_QUICK = ("relax",)
"""Engines that build in a fraction of the others' time, and so come first where the time is short."""
_PATIENCE = 120.0
"""Seconds that the build of another engine may take, if the search has to begin before."""
_CLEARLY = 0.8
"""Another engine is preferred if it takes less than this share of the preferred one's time: the timing is noisy."""


def run(context: JobContext) -> BaselineResult:
    """Raises EngineError, VerificationFailed, and UnsupportedTarget if this CPU cannot run code for the target."""
    plain = references.make(context) if context.verifies else []
    made = _references(context) if context.verifies else _ReferenceRun()
    untuned = _Builds(context, made)
    with ahead.extracted(context) as unneeded:
        right = untuned.make()
        if context.engine not in right:
            unneeded.set()
    rewritten = _Rewritten(context, untuned).make(right)
    samples = _time(context, right, rewritten.processes, made)
    seconds = {name: min(map(statistics.median, passes)) for name, passes in samples.items()}
    started = {name: _faster(name, seconds) for name in right if name in seconds}
    # The search of one size among several is too short to make up for a slower start.
    clearly = 1.0 if context.job.part_of else _CLEARLY
    fastest = _fastest(right, {name: seconds[build] for name, build in started.items()}, clearly)
    for name in right:
        if name != fastest:
            builds.untuned_process(context, name).close()
    for process in rewritten.processes.values():
        process.close()
    leading = placing.of_engine(context, fastest)
    variants = {Variant.UNTUNED: fastest, Variant.REFERENCE: str(Variant.REFERENCE)}
    return BaselineResult(
        files=(*untuned.files, *rewritten.files, *plain, *made.files),
        inputs=tuple(made.inputs),
        expected=tuple(made.expected),
        rows=made.rows,
        kinds=made.kinds,
        seconds={variant: seconds[name] for variant, name in variants.items() if name in seconds},
        build_seconds=untuned.build_seconds,
        start_seconds=untuned.start_seconds,
        verify_seconds=untuned.verify_seconds,
        engine=fastest,
        engines={name: seconds.get(name) for name in right},
        ranges={name: _range(samples[build]) for name, build in started.items()},
        rewritten={name: seconds[_of_rewritten(name)] for name in right if _of_rewritten(name) in seconds},
        verifications=untuned.verifications,
        tuner=leading,
        choice=(*untuned.choice, *_compared(right, seconds, fastest)),
    )


@dataclass(frozen=True, kw_only=True)
class _ReferenceRun:
    """Seeded inputs and the reference's outputs, as files relative to the work folder."""

    inputs: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    perturbed: list[str] = field(default_factory=list)
    """Outputs of runs with rounded operands."""
    rows: RowRuns | None = None

    @property
    def files(self) -> list[str]:
        rows = self.rows
        of_rows = [*rows.inputs, *rows.expected, *rows.labels] if rows else []
        return [*self.inputs, *self.expected, *self.perturbed, *of_rows]

    def rows_in(self, context: JobContext) -> verification.Rows | None:
        return context.rows_of(self.rows) if self.rows else None

    kinds: dict[str, str] = field(default_factory=dict)
    """Kind of values, by input."""


def _references(context: JobContext) -> _ReferenceRun:
    given = data.of(context, context.inputs, context.outputs)
    seeded = verification.seed_inputs(
        context.engines.get(ONNX),
        context.inputs,
        context.folder / INPUTS,
        model=context.prepared,
        seeds=context.seeds,
    )
    expected = references.run(context, seeded.paths)
    rows = _rows(context, given) if given else None
    of_f32 = context.rows_of(rows).some(verification.MOST_ROWS_OF_F32) if rows else None
    perturbed = references.run_perturbed(
        context,
        [*seeded.paths, *(of_f32.inputs if of_f32 else ())],
        [*expected, *(of_f32.expected if of_f32 else ())],
    )
    return _ReferenceRun(
        inputs=_relative(context, seeded.paths),
        expected=_relative(context, expected),
        perturbed=_relative(context, perturbed),
        kinds=seeded.kinds,
        rows=rows,
    )


def _rows(context: JobContext, given: data.Data) -> RowRuns:
    """Run the reference on the rows that judge: as many as take it a few seconds."""
    judging, folder = given.split.judging, context.folder / INPUTS
    paths, _ = data.write(context, given, judging[:1], folder)
    started = time.monotonic()
    references.run(context, paths, to=EXPECTED_OF_ROWS)
    took = time.monotonic() - started
    runs = data_sets.some(judging, max(_LEAST_ROW_RUNS, int(_ROWS_SECONDS / max(took, 1e-6))))
    paths, labels = data.write(context, given, runs, folder)
    return RowRuns(
        first=given.first_rows(runs),
        each=given.fit.rows,
        inputs=tuple(_relative(context, paths)),
        expected=tuple(_relative(context, references.run(context, paths, to=EXPECTED_OF_ROWS))),
        labels=tuple(_relative(context, labels)),
        use=replace(given.use, judging_rows=len(runs) * given.fit.rows),
    )


class _Builds:
    """Untuned builds of every engine that imports the model, side by side; wrong ones are noted and left out."""

    def __init__(self, context: JobContext, made: _ReferenceRun) -> None:
        self._context = context
        self.made = made
        self.files: list[str] = []
        self.verifications: dict[str, Verification] = {}
        self.choice: list[str] = []
        self.build_seconds = self.start_seconds = self.verify_seconds = 0.0
        """The longest time of each of these."""
        self._engines = context.results.imported.engines
        self.took: dict[str, float] = {}
        """Seconds to build and verify, by engine."""
        self.is_alone = len(self._engines) == 1
        self._errors: dict[str, errors.TunesmithError] = {}
        """Of engines that cannot build or run the model."""

    def make(self) -> list[str]:
        """Names of the engines whose builds are correct, the preferred one first.

        If an emulator can say of none whether it is correct, those of all that were built.
        """
        made: list[str] = []
        first, *others = sorted(self._engines, key=lambda name: (not self._led(name), name not in _QUICK))
        also = others if not self._context.first_size and self.has_time() else []
        timeout = max(_PATIENCE, self._context.limit.around)
        together = {first: partial(self._build, first)}
        together |= {name: partial(self._build, name, timeout=timeout) for name in also}
        with self._context.limit.alternative(last=not others), beside.started(together) as started:
            made += [name for name, build in started.items() if self._make(name, build.result)]
        for name in others:
            if made and name not in also:
                self.choice.append(f"{name} was not tried: {self._why_not()}.")
            elif name not in also and self._make(name, partial(self._build, name)):
                made.append(name)
        right = [name for name in self._engines if name in made]
        if right:
            return [name for name in right if name in self.verifications] or right
        wrong = next(iter(self.verifications.values()), None)
        if wrong is None and self._errors:
            raise self._worst()
        precision = precisions.first(self._context.request)
        if wrong and precision is not Precision.F32:
            raise precisions.not_met({precision: (wrong, precisions.gate_of(self._context.request, precision))})
        raise benchmark.nothing_right({f"untuned {name}": found for name, found in self.verifications.items()})

    def _worst(self) -> errors.TunesmithError:
        """The error of the preferred engine; that time is over explains more."""
        found = [self._errors[name] for name in self._engines if name in self._errors]
        return next((error for error in found if isinstance(error, errors.TimeLimit)), found[0])

    def _why_not(self) -> str:
        if self._context.first_size and self._context.first_size.engine in self.took:
            return "the engine that led the first size builds all, as they share weights in its order"
        return "the budget is too small for another engine"

    def has_time(self) -> bool:
        """Whether a build that takes as long as the longest ends before the search has to begin."""
        return self._context.limit.spent + max(self.took.values(), default=0.0) <= self._context.limit.around

    def _led(self, engine: str) -> bool:
        """Whether the engine was the fastest for the first size."""
        return self._context.first_size is not None and self._context.first_size.engine == engine

    def _build(self, name: str, *, timeout: float = COMPILE_SECONDS) -> tuple[builds.Compiled, float]:
        """Return the engine's build, and the seconds that it took."""
        started = self._context.limit.spent
        built = builds.untuned(self._context, name, builds.untuned_folder(name), timeout=timeout)
        return built, self._context.limit.spent - started

    def _make(self, name: str, build: Callable[[], tuple[builds.Compiled, float]]) -> bool:
        context = self._context
        try:
            built, seconds = build()
            built_at = context.limit.spent
            found = self._checked(name)
        except errors.TunesmithError as error:
            recovery.tolerate(context, error)
            if self.is_alone:
                raise
            self._errors[name] = error
            self._drop(f"{name} cannot build or run the model: {error.message[:500].rstrip('.')}")
            return False
        if found is not None and not self._is_right(name, found):
            return False
        self.files += built.files
        verify_seconds = context.limit.spent - built_at
        self.build_seconds = max(self.build_seconds, seconds)
        self.verify_seconds = max(self.verify_seconds, verify_seconds)
        self.took[name] = seconds + verify_seconds
        return True

    def _checked(self, name: str) -> Verification | None:
        """Verify a build; None if nothing runs it, or if an emulator cannot say whether it is correct."""
        context = self._context
        if context.measures:
            return self._verify(name)
        if not context.verifies:
            return None
        found, hindrance = self._emulated(name)
        if hindrance:
            self.choice.append(
                f"{name} is not verified under {context.emulation.emulator}: {hindrance.strip().rstrip('.')}."
            )
            context.note(self.choice[-1])
        return found

    def _emulated(self, name: str) -> tuple[Verification | None, str]:
        """Verify a build under an emulator; if that says nothing about the build, return why. Raises EngineError."""
        if not builds.untuned_process(self._context, name).is_library:
            needed = self._context.folder / builds.untuned_folder(name) / bundle.NEEDS_TVM
            return None, f"it needs TVM for {needed.read_text()}" if needed.exists() else "it needs TVM"
        try:
            found = self._verify(name)
        except errors.EngineError as error:
            recovery.tolerate(self._context, error)
            excuse = emulation.excuse(error)
            if excuse is None:
                raise
            return None, excuse
        if found.outputs and not found.proves:
            return None, benchmark.nothing_compared(found, references.name(self._context)).message
        return found, ""

    def _is_right(self, name: str, found: Verification) -> bool:
        """Raises VerificationFailed if the reference has nothing to compare with."""
        reference = references.name(self._context)
        self.verifications[name] = found
        if found.outputs and not found.proves:
            raise benchmark.nothing_compared(found, reference)
        if not found.passed:
            self._drop(f"the results of {name} differ from {reference}{_worst(found)}")
        return found.passed

    def _verify(self, name: str) -> Verification:
        context, started = self._context, self._context.limit.spent
        engine = builds.untuned_process(context, name).get()
        self.start_seconds = max(self.start_seconds, context.limit.spent - started)
        made = self.made
        inputs, expected = ([context.folder / path for path in paths] for paths in (made.inputs, made.expected))
        folder = context.folder / builds.untuned_folder(name)
        try:
            return verifying.compare(
                context, engine, Variant.UNTUNED, folder, inputs, expected, kinds=made.kinds, rows=made.rows_in(context)
            )
        except errors.EngineCrashed as error:
            raise _cannot_run(context, error) from error

    def _drop(self, reason: str) -> None:
        self.choice.append(f"{reason}.")
        if not self.is_alone:
            self._context.note(f"{reason}; continuing without it")


class _Rewritten:
    """Builds of the rewritten network by each engine, without records: a search starts from these.

    Only where several engines import the model, for whose choice untuned builds tell too little. A wrong build is left
    out: it will not be published, so its time must not decide which engine leads.
    """

    def __init__(self, context: JobContext, untuned: _Builds) -> None:
        self._context = context
        self._untuned = untuned
        self.files: list[str] = []
        self.processes: dict[str, builds.Process] = {}

    def make(self, right: Sequence[str]) -> _Rewritten:
        context = self._context
        if not self._untuned.is_alone and context.rewrites and context.measures:
            usual = precisions.first(context.request)
            # A quick engine takes a few seconds, and its build often gains more than the search of a small budget.
            able = [name for name in right if name in _QUICK or self._untuned.has_time()]
            made = {name: builds.rewritten(context, name, usual) for name in able}
            calls = {name: partial(builds.tuned, context, build, []) for name, build in made.items()}
            with context.limit.alternative(last=False), beside.started(calls) as started:
                for name, build in made.items():
                    self._take(name, build, started[name].result)
        return self

    def _take(self, name: str, build: Build, compiled: Callable[[], builds.Compiled]) -> None:
        context = self._context
        process = builds.process(context, build)
        try:
            files = compiled().files
            found = self._checked(build, process)
        except errors.TunesmithError as error:
            recovery.tolerate(context, error, f"the rewritten network was not built with {name}")
            process.close()
            return
        self.files += [build.records_file, *files]
        if found.passed:
            self.processes[name] = process
        else:
            context.note(f"the rewritten network gives wrong results as {name} builds it{_worst(found)}")
            process.close()

    def _checked(self, build: Build, process: builds.Process) -> Verification:
        """Verify a build on one input, or on all in a narrower precision, whose gate is a share of them."""
        made, context = self._untuned.made, self._context
        is_narrow = build.precision is not Precision.F32
        count = len(made.inputs) if is_narrow else 1
        inputs, expected = ([context.folder / path for path in paths[:count]] for paths in (made.inputs, made.expected))
        return verifying.compare(
            context, process.get(), Variant.TUNED, builds.path(context, build), inputs, expected, kinds=made.kinds,
            rows=made.rows_in(context) if is_narrow else None, precision=build.precision,
        )  # fmt: skip


def _of_rewritten(engine: str) -> str:
    return f"{REWRITTEN} {engine}"


def _faster(engine: str, seconds: dict[str, float]) -> str:
    """The name of the engine's faster build."""
    known = [name for name in (engine, _of_rewritten(engine)) if name in seconds]
    return min(known, key=lambda name: seconds[name])


def _cannot_run(context: JobContext, error: errors.EngineCrashed) -> errors.TunesmithError:
    if error.details.get("signal") != "SIGILL":
        return error
    return errors.UnsupportedTarget(
        f"this worker's CPU, {context.device.name}, cannot run code for {context.target.text!r}",
        hint="Measure on a matching device with runner 'rpc', or build without measuring with runner 'none'.",
    )


def _time(
    context: JobContext, names: Sequence[str], rewritten: Mapping[str, builds.Process], made: _ReferenceRun
) -> dict[str, list[list[float]]]:
    """Seconds per run of each engine's builds and of the reference, by pass: a rough estimate, not evidence."""
    if not context.measures:
        return {}
    inputs = context.folder / (made.rows.inputs if made.rows else made.inputs)[0]
    timed: dict[str, Timed[Any]] = {}
    if context.reference_shares_device:
        timed[Variant.REFERENCE] = references.timed(context, inputs)
    for name in names:
        timed[name] = builds.untuned_process(context, name).timed(Variant.UNTUNED, inputs)
    for name, process in rewritten.items():
        timed[_of_rewritten(name)] = process.timed(_of_rewritten(name), inputs)
    taken: dict[str, list[list[float]]] = {name: [] for name in timed}
    try:
        with context.exclusive_device():
            for name, each in [*timed.items()] * _PASSES:
                if name in taken:
                    _take(context, taken, name, each)
    except errors.TimeLimit as error:
        recovery.tolerate(context, error, "the untuned builds were not timed")
        return {}
    return taken


def _take(context: JobContext, taken: dict[str, list[list[float]]], name: str, timed: Timed[Any]) -> None:
    """Time a build once more; one of the rewritten network that fails is left out."""
    try:
        taken[name].append(_samples(context, timed, _number(taken)))
    except errors.EngineError as error:
        if not name.startswith(REWRITTEN):
            raise
        recovery.tolerate(context, error, f"the build {name} cannot be timed")
        del taken[name]


def _range(passes: Sequence[Sequence[float]]) -> tuple[float, float]:
    return min(map(min, passes)), max(map(max, passes))


def _fastest(names: Sequence[str], seconds: dict[str, float], clearly: float) -> str:
    """The preferred engine, unless another one takes less than the share ``clearly`` of its time."""
    best = min(names, key=lambda name: seconds.get(name, 0.0))
    preferred = names[0]
    return best if seconds.get(best, 0.0) < seconds.get(preferred, 0.0) * clearly else preferred


def _number(taken: Mapping[str, Sequence[Sequence[float]]]) -> int:
    known = taken.get(Variant.REFERENCE)
    return 1 if known and min(known[0]) > timing.SAMPLE_SECONDS else _NUMBER


def _samples(context: JobContext, timed: Timed[Any], number: int) -> list[float]:
    params = {**timed.params, "number": number, "repeat": _REPEAT}
    answer = context.ask(timed.engine, "time", params, timeout=_TIME_SECONDS)
    return [float(sample) for sample in answer["samples"]]


def _compared(right: Sequence[str], seconds: dict[str, float], fastest: str) -> list[str]:
    """One sentence for each engine with a correct build, if there are several."""
    if len(right) < 2:
        return []
    return [
        f"{name} gives correct results and runs untuned in {seconds[name] * 1e3:.3g} ms"
        + _rewritten_too(name, seconds)
        + (": it leads." if name == fastest else ".")
        if name in seconds
        else f"{name} built the model; nothing was run."
        for name in right
    ]


def _rewritten_too(name: str, seconds: dict[str, float]) -> str:
    found = seconds.get(_of_rewritten(name))
    return "" if found is None else f", rewritten in {found * 1e3:.3g} ms"


def _worst(found: Verification) -> str:
    wrong = [each for each in found.outputs if not each.passed]
    if not wrong:
        return ""
    worst = max(wrong, key=lambda each: each.max_abs)
    return f" (output {worst.output}: {worst.found}; {worst.allowed} allowed)"


def _relative(context: JobContext, paths: Sequence[Path]) -> list[str]:
    return [str(path.relative_to(context.folder)) for path in paths]
