"""What a job would do, before it is one: which engines take the model, what is covered, what tuning would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from api import schemas
from api.jobs import placing
from api.jobs.placing import Place
from api.jobs.surveying import Survey, Surveyor
from api.services import Services
from domain import errors, targets
from domain.jobs import JobRequest, RunnerKind, Tuner
from domain.models import Model
from domain.targets import Toolchain
from domain.tuning_tasks import Coverage, ExtractedTask, TuningTask
from storage import records, tuning_tasks, workers
from tuner import planning


def make(services: Services, request: JobRequest, model: Model) -> schemas.Plan:
    """Raises EngineNotInstalled when no engine can be asked here, UnknownTarget, and as ``Surveyor``."""
    with services.database.reading() as session:
        living = workers.living(session, within_seconds=services.settings.worker_alive_seconds)
    place = placing.find(request, living)
    considered = tuners(request)
    surveys = Surveyor(services, request, model, place).survey(considered)
    _refuse_when_nothing_is_installed(surveys)
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
    """Those that the job would consider."""
    if request.tuner is Tuner.AUTO and targets.kind_of(request.target) == "cuda":
        return (Tuner.METASCHEDULE,)
    return request.tuner.considered


def _refuse_when_nothing_is_installed(surveys: Sequence[Survey]) -> None:
    missing = [survey.failure for survey in surveys if isinstance(survey.failure, errors.EngineNotInstalled)]
    if missing and len(missing) == len(surveys):
        raise missing[0]


def _refuse_unknown_target(surveys: Sequence[Survey]) -> None:
    """Which CPUs and features there are, engines say; no job would get further."""
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
    identity = {
        "target": place.target.identity,
        "device_key": place.device.key,
        "toolchain": toolchain.identity,
    }
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


def _failure(error: errors.TunesmithError) -> schemas.Failure:
    return schemas.Failure(code=error.code, message=error.message, hint=error.hint, details=error.details)


def _notes(missing: str | None, place: Place | None, surveys: Sequence[Survey]) -> list[str]:
    if place is None:
        return [f"The job would wait for {missing}. What is covered cannot be told."]
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
    return notes
