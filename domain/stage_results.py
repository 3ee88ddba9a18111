"""Results of the stages of a job, for later stages, the next attempt and the API.

A result is stored when its stage finishes (``storage.stages``), as JSON with the names of the fields below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from domain.artifacts import Contender, DataUse, FailedTask, Report, Variant, Verification
from domain.digests import ArtifactDigest
from domain.jobs import Precision, Stage, Tuner
from domain.models import TensorSpec
from domain.profiles import Profile


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One way to tune the whole model; strategies share a job's budget."""

    tuner: Tuner
    layout: str | None = None
    """Layout of convolutions; None leaves the layout that the request asks for."""
    precision: Precision | None = None
    """None for the precision that the job builds in by default."""
    free_layout: bool = False
    """Whether AutoTVM searches any memory layout, after those that neighbouring operators can share."""
    beside: Tuner | None = None
    """The tuner whose builds use this one's records, too: the tuning tasks are the operators of such a build for which
    that tuner has no templates."""

    @property
    def name(self) -> str:
        if self.beside is not None:
            return f"{self.beside}, mixed with {self.tuner}"
        parts = (str(self.tuner), self.layout, self.precision, "free layout" if self.free_layout else None)
        return " ".join(str(part) for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class SearchedStrategy(Strategy):
    """A strategy after its search."""

    trials: int
    """Trials of this job that belong to it; a workload that two strategies share counts for both."""
    seconds: float
    """Tuning time spent on it."""
    estimate: float | None
    """Estimated seconds of one run of the model; None without a valid trial."""
    verdict: str
    """Why its search ended early; empty otherwise."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """One tuned build: what it is made with, and what its search cost."""

    name: str
    engine: str
    precision: Precision
    tuner: Tuner | None = None
    """None for a build without records."""
    mixed: Tuner | None = None
    """A second tuner whose records it uses, for operators that the first one has no templates for."""
    layout: str | None = None
    graph_layout: str | None = None
    """How the engine chooses among records of blocked convolutions; None leaves the choice to the engine."""
    rewritten: bool = False
    """Whether it is a build of the rewritten model."""
    estimate: float | None = None
    """Estimated seconds of one run, the sum over the model's operators."""
    trials: int = 0
    seconds_tuned: float = 0.0
    records: int = 0
    """Number of records that the engine chose."""

    @property
    def folder(self) -> str:
        """Within the work folder; also the role of the process that runs the build."""
        return f"tuned-{re.sub('[^a-z0-9]+', '-', self.name.lower())}"

    @property
    def records_file(self) -> str:
        """Within the work folder."""
        return f"{self.folder}.jsonl"


@dataclass(frozen=True, kw_only=True)
class SkippedBuild:
    build: Build
    verdict: str
    """Why it was not made."""


@dataclass(frozen=True, kw_only=True)
class ImportFailure:
    """Why an engine cannot import the model."""

    code: str
    message: str
    operators: dict[str, int] = field(default_factory=dict)
    """Unsupported operators and how often the model has each."""


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """Base of all results."""

    stage: ClassVar[Stage]
    placement: tuple[str, ...] = ()
    """Target, device key and toolchains: the result holds for no others."""
    files: tuple[str, ...] = ()
    """Files that later stages read, relative to the work folder; the stage runs again if one is missing."""
    choice: tuple[str, ...] = ()
    """Sentences for the report: why this engine, this tuner, this model."""


@dataclass(frozen=True, kw_only=True)
class ImportResult(StageResult):
    stage: ClassVar[Stage] = Stage.IMPORT
    inputs: tuple[TensorSpec, ...]
    """Of the prepared model, with static shapes."""
    outputs: tuple[TensorSpec, ...]
    operators: dict[str, int]
    """Number of operators of each kind in the prepared model."""
    folded: bool
    """Whether constants were folded."""
    memory_bytes: int | None = None
    """Memory that engines may use for the model, in addition to what each stage needs; None without a limit."""
    engines: tuple[str, ...]
    """Engines that import the model, the preferred one first."""
    refused: dict[str, ImportFailure] = field(default_factory=dict)
    """By engine."""
    precisions: tuple[Precision, ...]
    """Precisions to build in, the default one first."""
    able: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Engines that build each of the narrower precisions, the preferred one first."""
    rewritings: dict[str, int] = field(default_factory=dict)
    """Number of places that each rewriting changed."""
    rewritten: tuple[str, ...] = ()
    """Engines that import the rewritten model."""


@dataclass(frozen=True, kw_only=True)
class RowRuns:
    """Runs of the job's data set that judge builds; files are relative to the work folder."""

    first: tuple[int, ...]
    """Index of the first row of each run."""
    each: int
    """Rows of a run."""
    inputs: tuple[str, ...]
    expected: tuple[str, ...]
    """Outputs of the reference."""
    labels: tuple[str, ...] = ()
    """None without labels."""
    use: DataUse


@dataclass(frozen=True, kw_only=True)
class BaselineResult(StageResult):
    stage: ClassVar[Stage] = Stage.BASELINE
    inputs: tuple[str, ...] = ()
    """Files with the seeded inputs, one a seed, relative to the work folder; none if nothing is measured."""
    expected: tuple[str, ...] = ()
    """Files with the reference's outputs, in the same order."""
    rows: RowRuns | None = None
    """None without a data set."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Kind of values that each input was given."""
    seconds: dict[Variant, float] = field(default_factory=dict)
    """Seconds per run of the untuned build and of the reference, roughly."""
    build_seconds: float = 0.0
    """Seconds that the slowest correct untuned build took to make."""
    start_seconds: float = 0.0
    """Seconds that the process of a build took to start, at most."""
    verify_seconds: float = 0.0
    """Seconds that the verification of a build took at most, with the start of its process."""
    engine: str
    """Engine of the fastest correct untuned build."""
    engines: dict[str, float | None]
    """Engines whose untuned builds are correct, with seconds per run where they were measured."""
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Least and most seconds per run that were measured of each engine's faster build."""
    rewritten: dict[str, float] = field(default_factory=dict)
    """Seconds per run of builds of the rewritten network without records, by engine; none if one imports the model."""
    verifications: dict[str, Verification] = field(default_factory=dict)
    """Of the untuned builds, by engine."""
    tuner: Tuner
    """The tuner that leads from here on."""

    def start(self, engine: str) -> float | None:
        """Return the seconds per run from which a search with the engine starts, without records; None if unknown."""
        known = [self.engines.get(engine), self.rewritten.get(engine)]
        return min((seconds for seconds in known if seconds is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class PlanResult(StageResult):
    stage: ClassVar[Stage] = Stage.PLAN
    tuner: Tuner
    """The tuner of the first strategy."""
    strategies: tuple[Strategy, ...]
    """Strategies that share the budget, the leading one first."""
    reserves: tuple[Strategy, ...] = ()
    """Strategies that get what is left when none of these expects to gain more, in their order."""
    tasks: int
    """Number of tuning tasks."""
    covered: int
    """Tuning tasks that get no trials."""
    trials_planned: int
    trials_on_record: int
    """Trials that the record store has for these tasks."""
    passed_over: dict[str, int]
    """Records that do not match, counted by what sets them apart: ``toolchain``, ``device`` or ``target``."""
    elsewhere: dict[str, str]
    """Workloads that other jobs are searching, with the id of each job."""
    budget_seconds: float | None
    """Seconds left for the search; None without a limit."""
    estimated_seconds: float
    """Estimated seconds of tuning."""


@dataclass(frozen=True, kw_only=True)
class TuneResult(StageResult):
    stage: ClassVar[Stage] = Stage.TUNE
    tuner: Tuner
    """The tuner whose records promise the fastest build."""
    strategies: tuple[SearchedStrategy, ...]
    helpers: dict[str, int] = field(default_factory=dict)
    """Rounds that other workers ran, by worker id."""
    trials: int
    seconds: float
    ended_by: str
    """``trials``, ``seconds`` or ``total_seconds``: which limit ended the search; ``settled`` if it expects nothing
    more."""
    unused_seconds: float = 0.0
    """Seconds of the budget that the search left."""
    failed_tasks: tuple[FailedTask, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CompileResult(StageResult):
    stage: ClassVar[Stage] = Stage.COMPILE
    builds: tuple[Build, ...] = ()
    """The tuned builds, the most promising first."""
    skipped: tuple[SkippedBuild, ...] = ()


@dataclass(frozen=True, kw_only=True)
class VerifyResult(StageResult):
    stage: ClassVar[Stage] = Stage.VERIFY
    verifications: dict[Variant, Verification]
    """Of the untuned build and of the chosen tuned one; empty if nothing is measured."""
    tuned: Build | None
    """The fastest correct build, or the most promising one if none is correct; None without any tuned build."""
    untuned: str | None = None
    """Engine of the fastest untuned build in this comparison; None if there was none, so that the baseline's holds."""
    portfolio: tuple[Contender, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult(StageResult):
    stage: ClassVar[Stage] = Stage.BENCHMARK
    report: Report
    profile: Profile | None = None
    """Of the published build."""
    unprofiled: str = ""
    """Why there is no profile."""


@dataclass(frozen=True, kw_only=True)
class PublishResult(StageResult):
    stage: ClassVar[Stage] = Stage.PUBLISH
    digest: ArtifactDigest
    size_bytes: int


RESULTS: Mapping[Stage, type[StageResult]] = {
    kind.stage: kind
    for kind in (
        ImportResult,
        BaselineResult,
        PlanResult,
        TuneResult,
        CompileResult,
        VerifyResult,
        BenchmarkResult,
        PublishResult,
    )
}

R = TypeVar("R", bound=StageResult)


class StageResults:
    """The results of a job's finished stages. The properties raise KeyError before their stage has finished."""

    def __init__(self, results: Iterable[StageResult] = ()) -> None:
        self._results = {result.stage: result for result in results}

    def add(self, result: StageResult) -> None:
        self._results[result.stage] = result

    def find(self, kind: type[R]) -> R | None:
        """None if the stage has not finished."""
        found = self._results.get(kind.stage)
        return found if isinstance(found, kind) else None

    @property
    def choice(self) -> tuple[str, ...]:
        """Sentences for the report, of the stages that have finished."""
        found = (self._results.get(stage) for stage in Stage)
        return tuple(sentence for result in found if result is not None for sentence in result.choice)

    @property
    def imported(self) -> ImportResult:
        return self._get(ImportResult)

    @property
    def baseline(self) -> BaselineResult:
        return self._get(BaselineResult)

    @property
    def plan(self) -> PlanResult:
        return self._get(PlanResult)

    @property
    def tune(self) -> TuneResult:
        return self._get(TuneResult)

    @property
    def compile(self) -> CompileResult:
        return self._get(CompileResult)

    @property
    def verify(self) -> VerifyResult:
        return self._get(VerifyResult)

    @property
    def benchmark(self) -> BenchmarkResult:
        return self._get(BenchmarkResult)

    def _get(self, kind: type[R]) -> R:
        found = self.find(kind)
        if found is None:
            raise KeyError(kind.stage)
        return found
