"""Plans: which engines can import a model, which tasks are covered, and what tuning would cost."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.orm import Session

from api import schemas as shared
from api.jobs import placing, schemas
from api.jobs.placing import Place
from api.services import Services
from domain import errors, targets
from domain.digests import FileDigest
from domain.jobs import JobRequest, Precision, RunnerKind, Tuner
from domain.models import Model, ModelFormat
from domain.ports import Canceled as PlanCanceled
from domain.records import RecordPlace
from domain.targets import Toolchain
from domain.tuning_tasks import Coverage, ExtractedTask, TuningTask, key_of
from storage import records, tuning_tasks, workloads
from tuner.host.extraction import Canceled, Planner, Questions, questions
from tuner.search import planning, precisions


def make(services: Services, request: JobRequest, model: Model, unwanted: Canceled) -> schemas.Plan:
    """Make a plan; it ends when it is ``unwanted``, as its caller has left.

    Raises EngineNotInstalled if no engine is available here, UnknownTarget, and the errors of ``Surveyor``.
    """
    living = services.living_workers()
    place = placing.find(request, living)
    considered = tuners(request)
    surveys = Surveyor(services, request, model, place, unwanted).survey(considered)
    _refuse_when_all_failed(surveys, errors.EngineNotInstalled)
    _refuse_when_all_failed(surveys, errors.PlanTimeLimit)
    _refuse_unknown_target(surveys)
    with services.database.reading() as session:
        engines = [_engine(session, request, place, survey, considered) for survey in surveys]
    return schemas.Plan(
        possible=any(engine.imports and (engine.tuners or not engine.refusals) for engine in engines),
        model=model.id,
        model_name=model.name,
        tuner=request.tuner,
        considered=list(considered),
        worker=place.worker.id if place else None,
        target=place.target.identity if place else None,
        device_key=place.device.key if place else None,
        device=place.device.name if place else None,
        engines=engines,
        notes=_notes(placing.lacked(request, living), place, surveys),
    )


def tuners(request: JobRequest) -> tuple[Tuner, ...]:
    """Return the tuners that the job would consider."""
    if request.tuner is Tuner.AUTO and targets.kind_of(request.target) == "cuda":
        return (Tuner.METASCHEDULE,)
    return request.tuners


def _refuse_when_all_failed(surveys: Sequence[Survey], kind: type[errors.TunesmithError]) -> None:
    failures = [survey.failure for survey in surveys if isinstance(survey.failure, kind)]
    if failures and len(failures) == len(surveys):
        raise failures[0]


def _refuse_unknown_target(surveys: Sequence[Survey]) -> None:
    """Raise UnknownTarget for a CPU or feature that the engines do not know."""
    refusals = [error for survey in surveys for error in survey.failures.values()]
    found = any(survey.found for survey in surveys)
    unknown = next((error for error in refusals if isinstance(error, errors.UnknownTarget)), None)
    if unknown is not None and not found:
        raise unknown


def _engine(
    session: Session, request: JobRequest, place: Place | None, survey: Survey, considered: Sequence[Tuner]
) -> schemas.EnginePlan:
    failure = survey.failure
    toolchain = place.toolchains.get(survey.engine) if place else None
    plans = [
        _tuner(session, request, place, toolchain, tuner, survey.found[tuner])
        for tuner in considered
        if place and toolchain and tuner in survey.found
    ]
    return schemas.EnginePlan(
        name=survey.engine,
        toolchain=survey.toolchain.identity if survey.toolchain else None,
        imports=survey.imports,
        unsupported_operators=_unsupported(failure),
        failure=_failure(failure) if failure else None,
        tuners=plans,
        refusals={tuner: _failure(error) for tuner, error in survey.failures.items()},
    )


def _tuner(
    session: Session,
    request: JobRequest,
    place: Place,
    toolchain: Toolchain,
    tuner: Tuner,
    extracted: Sequence[ExtractedTask],
) -> schemas.TunerPlan:
    keys = [task.workload_key for task in extracted]
    identity = RecordPlace(target=place.target.identity, device_key=place.device.key, toolchain=toolchain.identity)
    budget, cap = request.budget, request.tuner_options.n_trial
    covered = tuning_tasks.coverage(session, keys, **identity)
    planned = planning.plan("plan", extracted, budget, covered=covered, n_trial=cap)
    measures = request.runner is not RunnerKind.NONE
    if not measures:
        planned = planning.without_trials(planned)
    without = [task for task in planned if not task.trials_planned]
    trials = {task.extracted.workload_key: task.trials_planned for task in planned}
    limit = planning.seconds(extracted, budget, trials, covered=covered, n_trial=cap)
    rate = records.seconds_a_trial(
        session, device_key=place.device.key, toolchain=toolchain.identity, tuner=tuner.value
    )
    seconds_a_trial = rate or records.SECONDS_A_TRIAL
    needed = sum(trials.values()) * seconds_a_trial
    return schemas.TunerPlan(
        tuner=tuner,
        tasks=len(planned),
        tasks_covered=sum(_is_covered(task, covered) for task in without),
        tasks_left_out=sum(not _is_covered(task, covered) for task in without) if measures else 0,
        trials=sum(task.trials_planned for task in planned),
        trials_on_record=sum(known.trials for known in covered.values()),
        records_passed_over=records.passed_over(session, keys, **identity),
        minutes=(needed if limit is None else min(needed, limit)) / 60,
        seconds_a_trial=seconds_a_trial,
        measured_rate=rate is not None,
    )


def _is_covered(task: TuningTask, covered: Mapping[str, Coverage]) -> bool:
    extracted = task.extracted
    return extracted.space_size <= 1 or covered[extracted.workload_key].trials > 0


def _unsupported(failure: errors.TunesmithError | None) -> dict[str, int]:
    if not isinstance(failure, errors.UnsupportedOperators):
        return {}
    return {str(name): int(count) for name, count in failure.details.get("operators", {}).items()}


def _failure(error: errors.TunesmithError) -> shared.Failure:
    return shared.Failure.model_validate(error, from_attributes=True)


def _notes(missing: str | None, place: Place | None, surveys: Sequence[Survey]) -> list[str]:
    if place is None:
        return [f"The job would wait for {missing}. Which tasks are covered is unknown."]
    notes = []
    for survey in surveys:
        theirs = place.toolchains.get(survey.engine)
        if theirs is None:
            notes.append(f"Worker {place.worker.id} does not run the {survey.engine} engine.")
        elif survey.toolchain and survey.toolchain != theirs:
            notes.append(
                f"The server's {survey.engine} engine is {survey.toolchain.identity}, the worker's {theirs.identity}: "
                "their tasks may differ."
            )
    return notes


_CALLERS = (errors.InvalidRequest, errors.EngineError, errors.Unavailable)
"""Errors of one engine that do not prevent a plan."""


@dataclass(kw_only=True)
class Survey:
    """The results of one engine."""

    engine: str
    toolchain: Toolchain | None = None
    imports: bool | None = None
    """None if the engine was not tried."""
    failure: errors.TunesmithError | None = None
    """Why the engine cannot import the model or was not tried."""
    found: dict[Tuner, list[ExtractedTask]] = field(default_factory=dict)
    failures: dict[Tuner, errors.TunesmithError] = field(default_factory=dict)


class Surveyor:
    """Runs engines for one request, all within one time limit.

    Raises errors of preparing the model, PlannerBusy, PlanTimeLimit, and Unavailable when the server stops or the plan
    is not wanted any more.
    """

    def __init__(
        self, services: Services, request: JobRequest, model: Model, place: Place | None, unwanted: Canceled
    ) -> None:
        self._services = services
        self._unwanted = unwanted
        self._ends = time.monotonic() + services.planner.seconds
        self._request = request
        self._model = model
        self._place = place
        given = request.input_shapes
        # As in the prepared model: all inputs, with all dimensions known.
        self._shapes = {
            spec.name: given.get(spec.name) or [int(size or 0) for size in spec.shape] for spec in model.facts.inputs
        }

    def survey(self, tuners: Sequence[Tuner]) -> list[Survey]:
        """Return a survey for each engine of these tuners, in their order."""
        engines = list(dict.fromkeys(tuner.engine for tuner in tuners))
        of = {engine: [tuner for tuner in tuners if tuner.engine == engine] for engine in engines}
        known = {engine: self._known(engine, of[engine]) for engine in engines}
        if all(survey is not None for survey in known.values()):
            return [survey for survey in known.values() if survey is not None]
        with self._slot(), tempfile.TemporaryDirectory(prefix="tunesmith-plan-") as folder:
            prepared = Path(folder) / f"prepared{self._model.facts.format.suffix}"
            try:
                with self._services.blobs.local(self._model.digest) as path:
                    self._services.planner.prepare(path, self._request.input_shapes, prepared, self._canceled)
            except PlanCanceled:
                raise self._ended() from None
            files = _Files(self._services.planner, prepared, self._canceled, rewrite=self._rewrites)
            return [
                known[engine] or self._asked(engine, of[engine], files, last=engine == engines[-1])
                for engine in engines
            ]

    def _canceled(self) -> bool:
        return self._services.stopping.is_set() or self._unwanted() or time.monotonic() > self._ends

    def _ended(self) -> errors.TunesmithError:
        """Why engines were canceled."""
        if self._services.stopping.is_set():
            return errors.Unavailable("the server is shutting down")
        if self._unwanted():
            return errors.Unavailable("the caller left before the plan was made")
        return self._late()

    def _late(self) -> errors.PlanTimeLimit:
        limit = self._services.planner.seconds
        return errors.PlanTimeLimit(
            f"the model takes longer to plan than the limit of {limit:g} s", details={"limit_seconds": limit}
        )

    def _known(self, engine: str, tuners: Sequence[Tuner]) -> Survey | None:
        """Return the stored result if it is complete; the engine must have reported its plugins once."""
        toolchain = self._place.toolchains.get(engine) if self._place else None
        plugins = self._services.plugins.get(engine)
        if toolchain is None or plugins is None:
            return None
        survey = Survey(engine=engine, toolchain=toolchain, imports=True)
        with self._services.database.reading() as session:
            for tuner in tuners:
                tasks = workloads.extracted(session, self._key(self._model.digest, toolchain, tuner, plugins))
                if tasks is None:
                    return None
                survey.found[tuner] = tasks
        return survey

    def _asked(self, engine: str, tuners: Sequence[Tuner], files: _Files, *, last: bool) -> Survey:
        survey = Survey(engine=engine)
        # Half of the time that is left, so that the next engine gets its turn.
        seconds = (self._ends - time.monotonic()) * (1.0 if last else 0.5)
        try:
            with questions(self._services.planner, engine, self._canceled, seconds=seconds) as asking:
                survey.toolchain = Toolchain.of(asking.hello)
                self._services.plugins[engine] = [str(plugin) for plugin in asking.hello.get("plugins", [])]
                lanes = asking.check(files.prepared, self._place.target if self._place else None)
                survey.imports = True
                tuned = files.for_tuning(asking, lanes)
                for tuner in tuners:
                    self._extract(asking, survey, tuner, tuned)
        except PlanCanceled:
            reason = self._ended()
            if not isinstance(reason, errors.PlanTimeLimit):
                raise reason from None
            survey.failure = reason
        except errors.EngineTimeout:
            survey.failure = self._late()
        except _CALLERS as error:
            survey.failure = error
            survey.imports = False if isinstance(error, errors.InvalidRequest) else survey.imports
        return survey

    def _extract(self, asking: Questions, survey: Survey, tuner: Tuner, model: Path) -> None:
        if self._place is None or survey.toolchain is None:
            return
        plugins = self._services.plugins[survey.engine]
        with model.open("rb") as file:
            digest = FileDigest(hashlib.file_digest(file, "sha256").hexdigest())
        keys = [self._key(each, survey.toolchain, tuner, plugins) for each in (digest, self._model.digest)]
        with self._services.database.reading() as session:
            tasks = workloads.extracted(session, keys[0])
        definitions: Mapping[str, str] = {}
        if tasks is None:
            try:
                tasks, definitions = asking.extract(
                    model,
                    self._place.target,
                    tuner,
                    precision=self._precision,
                    rewrite=self._rewrites,
                    options=self._request.tuner_options,
                )
            except errors.InvalidRequest as error:
                survey.failures[tuner] = error
                return
        with self._services.database.transaction() as session:
            for key in keys:
                workloads.put_extracted(session, key, tasks, now=datetime.now(UTC))
            workloads.put_many(session, definitions, tuner=tuner.value)
        survey.found[tuner] = tasks

    @property
    def _precision(self) -> Precision:
        """Return the precision to plan with: f32 for ``auto``, and for int8, as only a job quantizes the model."""
        first = precisions.first(self._request)
        return Precision.F32 if first is Precision.INT8 else first

    @property
    def _rewrites(self) -> bool:
        return self._request.tuner_options.rewrite and self._model.facts.format is ModelFormat.ONNX

    def _key(self, digest: FileDigest, toolchain: Toolchain, tuner: Tuner, plugins: Sequence[str]) -> str:
        """Key by the digest of the file that the engine reads, or of the upload; see ``tuning_tasks.key_of``."""
        assert self._place is not None  # noqa: S101 - both callers looked
        return key_of(
            model_digest=digest,
            input_shapes=self._shapes,
            target=self._place.target,
            toolchain=toolchain,
            tuner=tuner,
            precision=self._precision,
            rewrite=self._rewrites,
            options=self._request.tuner_options,
            plugins=plugins,
        )

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._services.plan_slots.acquire(blocking=False):
            raise errors.PlannerBusy("this server has no free slot for another plan")
        try:
            yield
        finally:
            self._services.plan_slots.release()


class _Files:
    """The prepared model and its rewritten forms, made once for each vector width."""

    def __init__(self, planner: Planner, prepared: Path, canceled: Canceled, *, rewrite: bool) -> None:
        self.prepared = prepared
        self._planner = planner
        self._canceled = canceled
        self._rewrite = rewrite
        self._rewritten: dict[int, Path] = {}

    def for_tuning(self, asking: Questions, lanes: int | None) -> Path:
        """Return the model for tuning, as a job does: the original if it cannot be rewritten, or not imported when
        rewritten."""
        if not self._rewrite or lanes is None:
            return self.prepared
        if lanes not in self._rewritten:
            self._rewritten[lanes] = self._written(lanes)
        rewritten = self._rewritten[lanes]
        try:
            if rewritten != self.prepared:
                asking.check(rewritten)
        except errors.TunesmithError:
            return self.prepared
        return rewritten

    def _written(self, lanes: int) -> Path:
        out = self.prepared.with_name(f"rewritten-{lanes}.onnx")
        try:
            return self._planner.rewrite(self.prepared, lanes, out, self._canceled).path or self.prepared
        except _CALLERS:
            return self.prepared
