"""Run a claimed job from its current stage to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from domain import errors, progress
from domain.artifacts import Artifact
from domain.blobs import BlobStore
from domain.jobs import EventKind, Failure, Job, JobState, RunnerKind, Stage
from domain.stage_results import (
    RESULTS,
    BaselineResult,
    ImportResult,
    PlanResult,
    PublishResult,
    StageResult,
    TuneResult,
)
from storage import events, jobs, models, records, stages, workers
from storage.database import Database
from worker import clock, metrics, observing, paths, total_limit
from worker.engines import EnginePool, EngineSource
from worker.leases import JobHeartbeat, Stopped
from worker.pipeline import (
    baseline,
    benchmarking,
    compiling,
    emulation,
    importing,
    joining,
    parts,
    placing,
    planning,
    publishing,
    stage_memory,
    tuning,
    verifying,
)
from worker.pipeline.context import CallHelp, JobContext
from worker.pipeline.operator_progress import OperatorProgress
from worker.pipeline.recovery import Ending, Recovery
from worker.settings import WorkerSettings
from worker.total_limit import TotalLimit

_log = logging.getLogger(__name__)
T = TypeVar("T")

STEPS: tuple[tuple[Stage, Callable[[JobContext], StageResult]], ...] = (
    (Stage.IMPORT, importing.run),
    (Stage.BASELINE, baseline.run),
    (Stage.PLAN, planning.run),
    (Stage.TUNE, tuning.run),
    (Stage.COMPILE, compiling.run),
    (Stage.VERIFY, verifying.run),
    (Stage.BENCHMARK, benchmarking.run),
    (Stage.PUBLISH, publishing.run),
)
_VOIDED: Mapping[Stage, tuple[Stage, ...]] = {
    Stage.BASELINE: (Stage.VERIFY, Stage.BENCHMARK),
    Stage.COMPILE: (Stage.VERIFY, Stage.BENCHMARK),
    Stage.VERIFY: (Stage.BENCHMARK,),
}
"""Stages whose results hold only for the builds that a stage made or chose: if it runs again, they do, too."""
_QUARANTINE_SECONDS = 600.0
_MOST_STATES = 1000


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    database: Database
    blobs: BlobStore
    engines: EngineSource
    settings: WorkerSettings
    call_help: CallHelp | None = None
    keep_log: Callable[[], None]
    """Stores the end of the engine log, before clients learn that the job has ended."""
    run_part: parts.RunPart
    """Runs the job of one size, for jobs of several."""
    seconds_left: float | None = None
    """What the job of all sizes leaves this attempt at the job of one; None without a limit."""

    def run(self, job: Job, heartbeat: JobHeartbeat) -> None:
        """Run the job to its end or release it. Raises errors that are neither the job's nor an engine's fault."""
        log = paths.job_log(self.settings.home, job.id)
        log.parent.mkdir(parents=True, exist_ok=True)
        network = job.request.runner is RunnerKind.RPC
        folder = paths.work(self.settings.home, job.id)
        pool = EnginePool(self.engines, log=log, folder=folder, canceled=heartbeat.stop_wanted, network=network)
        recovery = Recovery(heartbeat)
        try:
            run = self._run_parts if job.request.sizes else self._run_stages
            run(job, heartbeat, pool, recovery)
        except Exception as error:
            ending = recovery.ending(error)
            if ending is Ending.RAISE:
                raise
            if ending is not Ending.FAIL:
                pool.close_all()
            try:
                recovery.run(partial(self._conclude, job, heartbeat, ending, error))
            except Stopped as stopped:
                # The database was away for so long that the lease is lost, or this process is to end meanwhile.
                ending = Ending.LEAVE
                self._conclude(job, heartbeat, ending, stopped)
            if ending is Ending.RELEASE_LATER and job.part_of is not None:
                # The whole job waits, too: its worker would claim the part again at once.
                raise
            if ending not in (Ending.FAIL, Ending.CANCEL):
                return
        else:
            metrics.attempt_ended(JobState.SUCCEEDED)
        finally:
            pool.close_all()
        paths.clear_work(self.database, self.settings.home, job.id)

    def _run_stages(self, job: Job, heartbeat: JobHeartbeat, pool: EnginePool, recovery: Recovery) -> None:
        context = recovery.run(lambda: self._begin(job, heartbeat, pool))
        for stage, step in STEPS:
            context = self._run_stage(context, stage, step, recovery)

    def _run_parts(self, job: Job, heartbeat: JobHeartbeat, pool: EnginePool, recovery: Recovery) -> None:
        """Tune each size as a job of its own, and link the results to one library."""
        context = recovery.run(lambda: self._begin(job, heartbeat, pool))

        def step(stage: Stage, work: Callable[[], T]) -> T:
            def run() -> T:
                heartbeat.check()
                parts.enter(context, stage)
                self._start(context, stage)
                with observing.stage(stage.value):
                    return work()

            return recovery.run(run, stage=stage, context=context)

        served = step(Stage.BASELINE, lambda: joining.examine(context))
        ended = step(Stage.TUNE, lambda: parts.run(context, self.run_part))
        linked = step(Stage.COMPILE, lambda: joining.link(context, joining.opened(context, ended), served))
        joined = step(Stage.VERIFY, lambda: joining.verify(context, linked))

        def publish() -> None:
            started = clock.now()
            stored = publishing.put(context, joining.write(context, joined))
            result = replace(stored, placement=_placement(context))
            self._finish(context, result, started, joining.artifact(context, joined, result))

        step(Stage.PUBLISH, publish)

    def _run_stage(
        self, context: JobContext, stage: Stage, step: Callable[[JobContext], StageResult], recovery: Recovery
    ) -> JobContext:
        """Return the context after a stage, from its stored result or by running it."""
        started: datetime | None = None

        def run() -> JobContext:
            nonlocal started
            context.heartbeat.check()
            result = self._known(context, stage)
            if result is None:
                context.limit.enter(stage, context.results)
                imported = context.results.find(ImportResult)
                memory = imported.memory_bytes if imported else None
                context.engines.memory_bytes = stage_memory.limit(stage, memory, context.target)
                started = started or self._start(context, stage)
                with observing.stage(stage.value):
                    found = step(context)
                result = replace(found, placement=_placement(context))
                self._finish(context, result, started)
            return self._settle(context, result)

        return recovery.run(run, stage=stage, context=context)

    def _begin(self, job: Job, heartbeat: JobHeartbeat, pool: EnginePool) -> JobContext:
        heartbeat.check()
        if job.stage is None:
            with self.database.transaction() as session:
                heartbeat.require(jobs.set_stage(session, job.id, heartbeat.lease, Stage.IMPORT))
        folder = paths.work(self.settings.home, job.id)
        folder.mkdir(parents=True, exist_ok=True)
        started = placing.start(job.request, pool)
        with self.database.transaction() as session:
            heartbeat.require(jobs.set_placement(session, job.id, heartbeat.lease, started.placement))
            records.set_aside(session, job.id, *started.placements)
            model = models.get(session, job.request.model_digest)
            states = events.of_kinds(session, job.id, [EventKind.STATE], _MOST_STATES)
            first_size = stages.of_first_size(session, job, BaselineResult)
        before = total_limit.running_seconds(states, clock.now())
        pool.limit = TotalLimit(
            seconds=job.request.budget.total_seconds if self.seconds_left is None else before + self.seconds_left,
            before=before,
            around=total_limit.around_seconds(job.request.budget, is_later_size=first_size is not None),
        )
        context = JobContext(
            job=job,
            model=model,
            target=started.target,
            device=started.device,
            toolchains=started.toolchains,
            candidates=started.candidates,
            tuner=started.candidates[0],
            unavailable=started.unavailable,
            plugins=started.plugins,
            heartbeat=heartbeat,
            database=self.database,
            blobs=self.blobs,
            engines=pool,
            settings=self.settings,
            folder=folder,
            call_help=self.call_help,
            emulation=emulation.find(job.request, started.target.text, pool),
            limit=pool.limit,
            first_size=first_size,
        )
        pool.listener = _listener(context)
        if first_size and first_size.tuner in context.candidates:
            return placing.lead(context, first_size.tuner)
        return context

    def _settle(self, context: JobContext, result: StageResult) -> JobContext:
        """Continue with the tuner that the stage chose, if it chose one."""
        context.results.add(result)
        if isinstance(result, BaselineResult | PlanResult | TuneResult) and result.tuner is not context.tuner:
            return placing.lead(context, result.tuner)
        return context

    def _known(self, context: JobContext, stage: Stage) -> StageResult | None:
        """The result of an earlier attempt, if it is for the same placement and its files still exist."""
        with self.database.reading() as session:
            result = stages.result(session, context.job.id, RESULTS[stage])
        if result is None or result.placement != _placement(context):
            return None
        return result if all((context.folder / name).is_file() for name in result.files) else None

    def _start(self, context: JobContext, stage: Stage) -> datetime:
        started = clock.now()
        with self.database.transaction() as session:
            context.heartbeat.require(jobs.set_stage(session, context.job.id, context.lease, stage))
            share = progress.share(context.request.budget, stage)
            _tell(session, context, {"stage": stage.value, "status": "started", "share": share})
        return started

    def _finish(
        self, context: JobContext, result: StageResult, started: datetime, artifact: Artifact | None = None
    ) -> None:
        """``artifact``: what is published, at the end; by default that of a job of one size."""
        if isinstance(result, PublishResult):
            self.keep_log()
        finished = clock.now()
        seconds = round((finished - started).total_seconds(), 3)
        with self.database.transaction() as session:
            times = {"started_at": started, "finished_at": finished}
            context.heartbeat.require(stages.save(session, context.job.id, context.lease, result, **times))
            if result.stage in _VOIDED:
                stages.forget(session, context.job.id, _VOIDED[result.stage])
            plan = planning.event_data(result) if isinstance(result, PlanResult) else {}
            share = progress.share(context.request.budget, result.stage, 1.0)
            told = {"stage": result.stage.value, "status": "finished", "seconds": seconds, "share": share}
            _tell(session, context, {**told, **plan})
            if isinstance(result, PublishResult):
                publishing.finish(session, context, artifact or publishing.artifact(context, result))

    def _conclude(self, job: Job, heartbeat: JobHeartbeat, ending: Ending, error: Exception) -> None:
        if ending is Ending.LEAVE:
            metrics.attempt_ended(metrics.LOST)
            _log.warning("job %s: lease lost; another worker may continue it", job.id)
        elif ending is Ending.CANCEL:
            self._end(job, heartbeat, JobState.CANCELED, None)
        elif ending is Ending.FAIL:
            self._end(job, heartbeat, JobState.FAILED, _failure(job, error))
        else:
            if ending is Ending.RELEASE_LATER:
                _log.warning("job %s: returned to the queue: %s", job.id, error)
            with self.database.transaction() as session:
                later = ending is Ending.RELEASE_LATER
                jobs.release(session, job.id, heartbeat.lease, later=later, now=clock.now())
            metrics.attempt_ended(metrics.RELEASED)

    def _end(self, job: Job, heartbeat: JobHeartbeat, state: JobState, failure: Failure | None) -> None:
        self.keep_log()
        with self.database.transaction() as session:
            won = jobs.finish(session, job.id, heartbeat.lease, state=state, failure=failure, now=clock.now())
        metrics.attempt_ended(state if won else metrics.LOST, code=failure.code if failure and won else None)


def _tell(session: Any, context: JobContext, data: dict[str, Any]) -> None:
    events.append(session, context.job.id, EventKind.STAGE, data, now=clock.now())


def _placement(context: JobContext) -> tuple[str, ...]:
    """A result holds for one target, device and set of toolchains."""
    toolchains = sorted(toolchain.identity for toolchain in context.toolchains.values())
    return (context.target.identity, context.device.key, *toolchains)


def _failure(job: Job, error: Exception) -> Failure:
    if not isinstance(error, errors.TunesmithError):
        _log.error("job %s: unexpected error", job.id, exc_info=error)
        message = f"unexpected error: {type(error).__name__}"
        hint = "See the worker's log for the cause, and report it as a bug."
        return Failure(code="internal_error", message=message, hint=hint)
    details = dict(error.details)
    if isinstance(error, errors.EngineRequestFailed):
        details["engine_code"] = error.engine_code
    return Failure(code=error.code, message=error.message[:4000], hint=error.hint, details=details)


def _listener(context: JobContext) -> Callable[[str, str, dict[str, Any]], None]:
    operators = OperatorProgress(context)

    def hear(engine: str, kind: str, data: dict[str, Any]) -> None:
        operators.hear(engine, kind, data)
        if kind == "device" and data.get("state") == "lost":
            _device_lost(context, str(data["device"]), str(data.get("message") or "it stopped responding"))

    return hear


def _device_lost(context: JobContext, device: str, reason: str) -> None:
    rpc = context.request.rpc
    if rpc is None:
        return
    name = f"{rpc.tracker}/{rpc.key}/{device}"
    with context.database.transaction() as session:
        workers.quarantine(
            session, name, job_id=context.job.id, reason=reason, now=clock.now(), seconds=_QUARANTINE_SECONDS
        )
    context.note_once(f"device {device} lost: {reason[:500]}; continuing with the other devices of key {rpc.key!r}")
