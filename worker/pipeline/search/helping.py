"""The helper's side of a search over many workers: it claims rounds that the job's leader offers, and runs them.

A helper neither reports on the job nor changes it. It stores trials, each in a transaction that names its claim, and
the result of each round. The leader does the rest (``leading``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean
from typing import Any

from domain import errors
from domain.blobs import BlobStore
from domain.jobs import Failure, Job, RunnerKind, Stage, Tuner
from domain.ports import Canceled, Engine
from domain.shared_rounds import SharedRound
from domain.stage_results import ImportResult
from domain.targets import Toolchain
from storage import models, records, shared_rounds, stages, tuning_tasks
from storage.database import Database
from tuner.host import devicelock, hardware
from worker import clock, observing, paths
from worker.engines import EnginePool, EngineSource
from worker.leases import LeaseLost, RoundHeartbeat, Stopped
from worker.pipeline import reuse, stage_memory
from worker.pipeline.context import JobContext
from worker.pipeline.recovery import Recovery
from worker.pipeline.search import spool
from worker.pipeline.search.rounds import round_timeout
from worker.settings import WorkerSettings

_log = logging.getLogger(__name__)

_IDLE_SECONDS = 5.0
"""Idle time after which a helper leaves."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 0.4
_LOOK_SECONDS = 1.0
"""Pause between two looks for waiting jobs."""
_FAILURES = 2
"""Failed rounds after which a helper leaves the job."""
_DEVICE_SECONDS = 5.0
"""Longest wait for the device with a claimed round, as the leader waits for that round."""


@dataclass(kw_only=True)
class Helper:
    """One worker's help with one job."""

    job: Job
    worker_id: str
    database: Database
    blobs: BlobStore
    engines: EngineSource
    settings: WorkerSettings
    is_wanted_elsewhere: Callable[[], bool]
    """Whether a job waits that this worker can run, or the process is to end; asked about once a second."""
    stopping: Callable[[], bool]
    """Whether the process is to end now."""
    failures: int = 0
    _engine: Engine | None = None
    _warm: set[str] = field(default_factory=set)
    _settled: set[str] = field(default_factory=set)
    """Workloads whose trials in this host's spool are all stored."""
    _heartbeat: RoundHeartbeat | None = None
    _next_look: float = 0.0
    _queued: list[tuple[datetime, float]] = field(default_factory=list)
    """End of each round run here, and its seconds in a tracker's queue."""

    @property
    def has_given_up(self) -> bool:
        """Whether it left the job because it cannot help with it."""
        return self.failures >= _FAILURES

    def run(self) -> int:
        """Run rounds until none are left; return how many were finished."""
        log = paths.help_log(self.settings.home, self.job.id)
        log.parent.mkdir(parents=True, exist_ok=True)
        pool = EnginePool(
            self.engines,
            log=log,
            folder=paths.work(self.settings.home, self.job.id),
            canceled=self._stop_wanted,
            network=self.job.request.runner is RunnerKind.RPC,
        )
        try:
            with observing.helping(self.database, self.job):
                return self._help(pool) if self._measures_alike() else 0
        finally:
            pool.close_all()
            # Removed only if the job has ended: the job may return to this host.
            paths.clear_work(self.database, self.settings.home, self.job.id)

    def _stop_wanted(self) -> bool:
        return self._heartbeat.stop_wanted() if self._heartbeat else self.stopping()

    def _help(self, pool: EnginePool) -> int:
        ended, idle_since, pause = 0, time.monotonic(), _SHORTEST_PAUSE
        while not self._may_leave() and not self.has_given_up:
            claimed = self._claim(pool)
            if claimed is not None:
                ended += self._run(claimed, pool)
                idle_since, pause = time.monotonic(), _SHORTEST_PAUSE
                continue
            with self.database.reading() as session:
                led = shared_rounds.is_led(session, self.job.id)
            if not led or time.monotonic() - idle_since > _IDLE_SECONDS:
                break
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return ended

    def _may_leave(self) -> bool:
        now = time.monotonic()
        if self.stopping() or now < self._next_look:
            return self.stopping()
        self._next_look = now + _LOOK_SECONDS
        return self.is_wanted_elsewhere()

    def _measures_alike(self) -> bool:
        """Whether measurements of this host are comparable with those of the job's device."""
        if self.job.request.runner is RunnerKind.RPC:
            return True
        if self.job.placement is None or self.job.request.runner is not RunnerKind.LOCAL:
            return False
        device = self.job.placement.device
        here = [hardware.device(device.threads), *hardware.accelerators(device.threads)]
        return device.key in [each.key for each in here]

    def _claim(self, pool: EnginePool) -> SharedRound | None:
        assert self.job.placement is not None  # noqa: S101 - a job that offers rounds has one
        with self.database.reading() as session:
            tuners = shared_rounds.tuners(
                session, self.job.id, lock_place=devicelock.place(), device_key=self.job.placement.device.key
            )
        if not tuners:
            return None
        # Engines start before the claim, so that other helpers can claim the round meanwhile.
        found = {name: self._toolchain(name, pool) for name in {Tuner(each).engine for each in tuners}}
        with self.database.transaction() as session:
            return shared_rounds.claim(
                session,
                self.job.id,
                worker_id=self.worker_id,
                lock_place=devicelock.place(),
                device_key=self.job.placement.device.key,
                toolchains=[each.identity for each in found.values() if each is not None],
                now=clock.now(),
                lease_seconds=self.settings.lease_seconds,
            )

    def _toolchain(self, name: str, pool: EnginePool) -> Toolchain | None:
        try:
            return Toolchain.of(pool.get(name).hello)
        except Canceled:
            return None
        except (errors.EngineError, OSError) as error:
            # OSError: a full disk has no room for the engine's folder.
            _log.warning("cannot help job %s: %s", self.job.id, error)
            self.failures = _FAILURES
            return None

    def _run(self, claimed: SharedRound, pool: EnginePool) -> int:
        """Return 1 if the round was finished while this worker held its claim, else 0."""
        heartbeat = RoundHeartbeat(self.database, claimed, self.settings, self.stopping)
        self._heartbeat = heartbeat
        try:
            with observing.helped_round(claimed), heartbeat:
                recovery = Recovery(heartbeat)
                context = recovery.run(lambda: self._job_context(claimed, heartbeat, pool))
                with self._device(context, heartbeat):
                    return int(self._spend(context, claimed, recovery))
        except (Stopped, Canceled, errors.TunesmithError, OSError) as error:
            # OSError: another worker of this home folder has ended the job and removed its files.
            if isinstance(error, errors.TunesmithError | OSError):
                self.failures += 1
                _log.warning("cannot run a round of job %s: %s", self.job.id, error)
            if isinstance(error, errors.DiskFull):
                # The next round would fail as well.
                self.failures = _FAILURES
            self._settled.clear()
            with self.database.transaction() as session:
                shared_rounds.give_back(session, claimed, seconds=heartbeat.seconds)
            return 0
        finally:
            self._heartbeat = None

    @contextmanager
    def _device(self, context: JobContext, heartbeat: RoundHeartbeat) -> Iterator[None]:
        """Hold the device. Raises Canceled, and gives the job up, if another measurement holds it for long."""
        until = time.monotonic() + _DEVICE_SECONDS

        def gives_up() -> bool:
            return heartbeat.stop_wanted() or self._may_leave() or time.monotonic() > until

        with ExitStack() as stack:
            try:
                stack.enter_context(context.exclusive_device(canceled=gives_up, say=False))
            except Canceled:
                self.failures = _FAILURES
                raise
            yield

    def _spend(self, context: JobContext, claimed: SharedRound, recovery: Recovery) -> bool:
        started = time.monotonic()
        defaults: list[float] = []
        exhausted, failure, queued = False, None, 0.0
        try:
            result = recovery.run(lambda: self._measure(context, claimed, defaults))
            if result:
                exhausted = bool(result["exhausted"])
                queued = float(result.get("queue_seconds") or 0.0)
                self._queued.append((clock.now(), queued))
        except (Stopped, Canceled, errors.DiskFull):
            # The engine has ended; store its finished trials before another worker can claim the round.
            self._settled.clear()
            self._recover(context, claimed)
            raise
        except errors.DeviceLost:
            self.failures = _FAILURES
            raise LeaseLost from None
        except errors.TunesmithError as error:
            context.heartbeat.check()
            self.failures += 1
            self._settled.clear()
            self._recover(context, claimed)
            failure = Failure(code=error.code, message=error.message[:4000], hint=error.hint)
        with self.database.transaction() as session:
            return shared_rounds.finish(
                session,
                claimed,
                seconds=max(0.0, time.monotonic() - started - queued),
                exhausted=exhausted,
                default_latency=fmean(defaults) if defaults else None,
                failure=failure,
            )

    def _measure(self, context: JobContext, claimed: SharedRound, defaults: list[float]) -> dict[str, Any] | None:
        """Measure the remaining trials of the round; None if none remain."""
        left = self._recover(context, claimed)
        # Settled again only after a round that was not interrupted.
        self._settled.discard(claimed.offer.workload_key)
        result = self._request(context, claimed, left, defaults) if left else None
        self._settled.add(claimed.offer.workload_key)
        return result

    def _request(self, context: JobContext, claimed: SharedRound, trials: int, defaults: list[float]) -> dict[str, Any]:
        offer, key = claimed.offer, claimed.offer.workload_key
        engine = context.compiler()
        if engine is not self._engine:
            self._engine, self._warm = engine, set()
        known = key in self._warm and offer.known_to == self.worker_id
        params = {
            **offer.request,
            "workload_key": key,
            "task": reuse.definition(context, key),
            "trials": trials,
            "first_trial": offer.first_trial + offer.trials - trials,
            "history": None if known else self._history(context, key),
            "fresh": not known,
            "spool": str(spool.new_file(context, suffix=f"-{claimed.id}")),
            "seconds": claimed.seconds_left(clock.now(), waited=self._waited_since(claimed.opened_at)),
            "runner": context.runner,
        }
        self._warm.add(key)

        def on_event(kind: str, data: dict[str, Any]) -> None:
            if kind == "trial":
                if data.get("default") and data["latencies"]:
                    defaults[:] = data["latencies"]
                self._store(context, claimed, [data])

        return context.ask(engine, "tune", params, timeout=round_timeout(context, trials), on_event=on_event)

    def _waited_since(self, opened: datetime) -> float:
        """Seconds that earlier rounds waited in a tracker's queue while this one, offered ahead, was open."""
        return sum(min(queued, max(0.0, (ended - opened).total_seconds())) for ended, queued in self._queued)

    def _store(self, context: JobContext, claimed: SharedRound, found: list[dict[str, Any]]) -> int:
        with self.database.transaction() as session:
            context.heartbeat.require(shared_rounds.holds(session, claimed))
            return records.add(session, [spool.record_of(context, each) for each in found])

    def _recover(self, context: JobContext, claimed: SharedRound) -> int:
        """Store the workload's trials that only this host's spool has, up to the round's; return how many remain."""
        key = claimed.offer.workload_key
        if key in self._settled:
            return claimed.offer.trials
        with self.database.reading() as session:
            stored = {record.schedule_digest for record in records.of_job(session, self.job.id, key)}
        found = {
            entry["schedule_digest"]: entry
            for entry in spool.trials(context)
            if entry["workload_key"] == key and entry["schedule_digest"] not in stored
        }
        left = claimed.offer.trials - (len(stored) - claimed.offer.first_trial)
        if found and left > 0:
            left -= self._store(context, claimed, list(found.values())[:left])
        self._settled.add(key)
        return max(0, left)

    def _history(self, context: JobContext, key: str) -> str | None:
        with self.database.reading() as session:
            found = tuning_tasks.of_job(session, self.job.id)
        task = next((each.extracted for each in found if each.extracted.workload_key == key), None)
        return reuse.write(context, task) if task else None

    def _job_context(self, claimed: SharedRound, heartbeat: RoundHeartbeat, pool: EnginePool) -> JobContext:
        """A context that suffices for a round: without results of stages and without the model's file."""
        placement = self.job.placement
        assert placement is not None  # noqa: S101 - as above
        tuner = Tuner(claimed.offer.tuner)
        with self.database.reading() as session:
            model = models.get(session, self.job.request.model_digest)
            imported = stages.result(session, self.job.id, ImportResult)
        memory = imported.memory_bytes if imported else None
        pool.memory_bytes = stage_memory.limit(Stage.TUNE, memory, placement.target)
        folder = paths.work(self.settings.home, self.job.id)
        folder.mkdir(parents=True, exist_ok=True)
        return JobContext(
            job=self.job,
            model=model,
            target=placement.target,
            device=placement.device,
            toolchains={tuner.engine: Toolchain.of(pool.get(tuner.engine).hello)},
            candidates=(tuner,),
            tuner=tuner,
            unavailable=(),
            plugins={},
            heartbeat=heartbeat,
            database=self.database,
            blobs=self.blobs,
            engines=pool,
            settings=self.settings,
            folder=folder,
        )
