"""What a job would do, before it is one: which engines take the model, what is covered, what tuning would cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from api import placing, schemas
from api.placing import Place
from api.services import Services
from api.surveying import Survey, Surveyor
from domain import errors, targets
from domain.jobs import JobRequest, RunnerKind, Tuner
from domain.models import Model
from domain.targets import Toolchain
from domain.tuning_tasks import ExtractedTask
from storage import rates, records, workers
from tuner import planning
from tuner.planning import Coverage

SECONDS_A_TRIAL = 0.5
"""Taken where a device has no trials yet: AutoTVM's candidates of small networks, built and measured by workers that
live on, took 0.2 to 0.4 s on two cores; larger ones and other tuners take longer."""


def make(services: Services, request: JobRequest, model: Model) -> schemas.Plan:
    """Raises EngineNotInstalled when no engine can be asked here, and as ``Surveyor``."""
    since = datetime.now(UTC) - timedelta(seconds=services.settings.worker_alive_seconds)
    with services.database.reading() as session:
        place = placing.find(request, workers.known(session, seen_since=since))
    considered = tuners(request)
    surveys = Surveyor(services, request, model, place).survey(considered)
    _refuse_when_nothing_is_installed(surveys)
    with services.database.reading() as session:
        engines = [_engine(session, request, place, survey, considered) for survey in surveys]
    return schemas.Plan(
        possible=any(engine.imports for engine in engines),
        model=model.id,
        model_name=model.name,
        tuner=request.tuner,
        considered=list(considered),
        worker=place.worker.id if place else None,
        target=place.target.identity if place else None,
        device_key=place.device.key if place else None,
        device=place.device.name if place else None,
        engines=engines,
        notes=_notes(request, place, surveys),
    )


def tuners(request: JobRequest) -> tuple[Tuner, ...]:
    """Those that the job would consider."""
    if request.tuner is not Tuner.AUTO:
        return (request.tuner,)
    if targets.kind_of(request.target) == "cuda":
        return (Tuner.METASCHEDULE,)
    return (Tuner.AUTOTVM, Tuner.ANSOR, Tuner.METASCHEDULE)


def _refuse_when_nothing_is_installed(surveys: Sequence[Survey]) -> None:
    missing = [survey.failure for survey in surveys if isinstance(survey.failure, errors.EngineNotInstalled)]
    if missing and len(missing) == len(surveys):
        raise missing[0]


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
    identity = {
        "target": place.target.identity,
        "device_key": place.device.key,
        "toolchain": toolchain.identity,
    }
    counts = records.counts_of_many(session, keys, **identity)
    planned = _planned(session, request, extracted, counts, identity)
    trials = 0 if request.runner is RunnerKind.NONE else sum(planned)
    known = rates.seconds_a_trial(session, device_key=place.device.key, toolchain=toolchain.identity, tuner=tuner.value)
    seconds_a_trial = known or SECONDS_A_TRIAL
    return schemas.TunerPlan(
        tuner=tuner,
        tasks=len(extracted),
        tasks_covered=sum(task_trials == 0 for task_trials in planned),
        trials=trials,
        trials_on_record=sum(counts.values()),
        records_passed_over=records.passed_over(session, keys, **identity),
        minutes=min(trials * seconds_a_trial, request.budget.seconds or float("inf")) / 60,
        seconds_a_trial=seconds_a_trial,
        measured_rate=known is not None,
    )


def _planned(
    session: Session,
    request: JobRequest,
    extracted: Sequence[ExtractedTask],
    counts: dict[str, int],
    identity: dict[str, str],
) -> list[int]:
    """Trials for each task, as a job would share them out."""
    best = records.best_of_many(session, list(counts), **identity)
    covered = {
        key: Coverage(trials=count, best_latency=best[key].latency if key in best else None)
        for key, count in counts.items()
    }
    tasks = planning.plan("plan", extracted, request.budget, covered=covered, n_trial=request.tuner_options.n_trial)
    return [task.trials_planned for task in tasks]


def _unsupported(failure: errors.TunesmithError | None) -> dict[str, int]:
    if not isinstance(failure, errors.UnsupportedOperators):
        return {}
    return {str(name): int(count) for name, count in failure.details.get("operators", {}).items()}


def _failure(error: errors.TunesmithError) -> schemas.Failure:
    return schemas.Failure(code=error.code, message=error.message, hint=error.hint, details=error.details)


def _notes(request: JobRequest, place: Place | None, surveys: Sequence[Survey]) -> list[str]:
    if place is None:
        kind = "a GPU" if targets.kind_of(request.target) == "cuda" else "a CPU to tune for"
        return [f"No living worker has {kind}: the job would wait, and what is covered cannot be told."]
    notes = []
    for survey in surveys:
        theirs = place.toolchains.get(survey.engine)
        if theirs is None:
            notes.append(f"Worker {place.worker.id} does not run the {survey.engine} engine.")
        elif survey.toolchain and survey.toolchain != theirs:
            notes.append(
                f"The {survey.engine} engine here is {survey.toolchain.identity}, the worker's is {theirs.identity}: "
                "its tasks may differ."
            )
    if request.runner is RunnerKind.RPC:
        notes.append("Devices behind the tracker are not asked: coverage is told for the worker's own device.")
    return notes
