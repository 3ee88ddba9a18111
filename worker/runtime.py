"""What a worker process is made of, and what it does: run the job it is told of, or help with it."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from sqlalchemy.orm import Session

from domain import capabilities, dispatch, errors, release
from domain.blobs import BlobStore
from domain.jobs import Job, JobState
from domain.targets import Device, Target
from domain.workers import Worker
from storage import jobs, newer_jobs, workers
from storage.database import Database
from storage.migrations import running
from tuner import devicelock, hostinfo
from tuner.session import sweep
from worker import clock, hellos, identity, observing, paths
from worker.engines import COMPILERS, REFERENCE, EngineSource
from worker.job_logs import LogKeeper
from worker.leases import LeaseKeeper
from worker.pipeline import placing
from worker.pipeline.helping import Helper
from worker.pipeline.running import Pipeline
from worker.pipeline.work import CallHelp
from worker.settings import WorkerSettings
from worker.waiting import Lookout

_log = logging.getLogger(__name__)
_TAKEN_AT_ONCE_SECONDS = 2.0
_REST_SECONDS = 60.0
"""Of a helper from a job that it failed to help: each try starts engines, and takes a round from the job's leader."""


@dataclass(kw_only=True)
class Runtime:
    database: Database
    blobs: BlobStore
    engines: EngineSource
    settings: WorkerSettings
    shutdown: threading.Event = field(default_factory=threading.Event)
    """Set once the process is to end: the job at work is given back then."""
    current_job: str | None = None
    call_help: CallHelp | None = None
    """Asks other workers; None where there is no broker to ask them by."""
    announced: Worker | None = None
    """What the fleet is told of this worker; until it is known, the worker takes whatever it is sent."""
    has_come: bool = False
    """Whether the fleet knows of it, and jobs that waited for it have been called for."""
    revision: str | None = None
    """Of the database when this process first looked."""
    wanted_by: str | None = None
    """The waiting job for which this worker left the one that it helped with."""
    lookout: Lookout = field(default_factory=Lookout)
    rests: dict[str, float] = field(default_factory=dict)
    """By job, the time of ``time.monotonic`` until which this worker does not try to help again."""
    id: str = field(default_factory=identity.own_id)
    started_at: datetime = field(default_factory=clock.now)

    def run_job(self, job_id: str) -> None:
        """Take the job if it is still to be taken, and work on it to its end."""
        if self.shutdown.is_set():
            return
        job = self._claim(job_id)
        if job is None:
            return
        self.current_job = job_id
        try:
            with (
                observing.attempt(self.database, job),
                LeaseKeeper(self.database, job, self.settings, self.shutdown) as keeper,
                LogKeeper(
                    self.database, job_id, keeper.lease.attempt, paths.job_log(self.settings.home, job_id)
                ) as log_keeper,
            ):
                pipeline = Pipeline(
                    database=self.database,
                    blobs=self.blobs,
                    engines=self.engines,
                    settings=self.settings,
                    call_help=self.call_help,
                    keep_log=log_keeper.keep,
                )
                pipeline.run(job, keeper)
        finally:
            self.current_job = None

    def help_job(self, job_id: str) -> int:
        """Run rounds that the job's leader offers, until there are none or a job waits, which ``wanted_by`` names then.

        Returns how many.
        """
        self.wanted_by = None
        if self.rests.get(job_id, 0.0) > time.monotonic():
            return 0
        try:
            with self.database.reading() as session:
                if newer_jobs.unknown(session, job_id):
                    return 0
                job = jobs.get(session, job_id)
        except errors.JobNotFound:
            return 0
        if job.state is not JobState.RUNNING or job.placement is None or self.shutdown.is_set():
            return 0
        return self._help(job)

    def _help(self, job: Job) -> int:
        helper = Helper(
            job=job,
            worker_id=self.id,
            database=self.database,
            blobs=self.blobs,
            engines=self.engines,
            settings=self.settings,
            is_wanted_elsewhere=self._is_wanted_elsewhere,
            stopping=self.shutdown.is_set,
        )
        self.current_job = job.id
        try:
            return helper.run()
        finally:
            self.current_job = None
            if helper.has_given_up:
                self._rest_from(job.id)
            self._remove_old_work()

    def _rest_from(self, job_id: str) -> None:
        now = time.monotonic()
        self.rests = {each: until for each, until in self.rests.items() if until > now}
        self.rests[job_id] = now + _REST_SECONDS

    def _is_wanted_elsewhere(self) -> bool:
        """Whether a job waits that this worker could begin, and that no idle worker has taken at once."""

        def waiting(most: int) -> list[str]:
            return jobs.waiting(
                session,
                now=clock.now(),
                unpublished_for=_TAKEN_AT_ONCE_SECONDS,
                limit=most,
                judging=clock.judging(),
                pause=self.settings.attempt_pause_seconds,
                max_attempts=self.settings.max_attempts,
            )

        with self.database.reading() as session:
            self.wanted_by = self.lookout.first_able(session, waiting, self.announced)
        return self.wanted_by is not None

    @cached_property
    def accelerators(self) -> tuple[Device, ...]:
        """GPUs that this worker measures on; with any, it takes nothing but CUDA jobs."""
        return () if self.settings.takes == "cpu" else hostinfo.accelerators()

    @property
    def queues(self) -> list[str]:
        """What it reads; a worker that does not know itself yet reads what needs nothing special."""
        if self.announced is None:
            return [dispatch.CUDA_QUEUE if self.settings.takes == "cuda" or self.accelerators else dispatch.QUEUE]
        return dispatch.queues_of(self.announced)

    def announce(self) -> Worker:
        """What the fleet is told. Raises ConfigurationError when it is to take CUDA jobs and has no GPU."""
        if self.settings.takes == "cuda" and not self.accelerators:
            raise errors.ConfigurationError(
                "this worker is to take CUDA jobs (TUNESMITH_TAKES=cuda), and its host shows no NVIDIA GPU",
                hint="Check that nvidia-smi lists it, in the container too, or set TUNESMITH_TAKES=cpu.",
            )
        if self.announced is None:
            self.announced = self.describe()
        return self.announced

    def _claim(self, job_id: str) -> Job | None:
        try:
            with self.database.transaction() as session:
                if not self._may_take(session, job_id):
                    return None
                return jobs.claim(
                    session,
                    job_id,
                    worker_id=self.id,
                    now=clock.now(),
                    lease_seconds=self.settings.lease_seconds,
                    max_attempts=self.settings.max_attempts,
                    judging=clock.judging(),
                    pause=self.settings.attempt_pause_seconds,
                )
        except errors.JobNotFound:
            _log.warning("there is no job %s: a message from another database?", job_id)
            return None

    def is_outdated(self, session: Session) -> bool:
        """Whether somebody has migrated the database since this process began: its code may not fit any more."""
        revision = running.current(session.connection())
        if self.revision is None:
            self.revision = revision
        return revision != self.revision

    def _may_take(self, session: Session, job_id: str) -> bool:
        """Whether the job is one for this worker; one that is not is left to others, and counts no attempt."""
        if self.is_outdated(session):
            _log.error("job %s is left to workers of the release that the database is for", job_id)
            return False
        strange = newer_jobs.unknown(session, job_id)
        if strange:
            _log.warning("job %s is left to workers that know its %s", job_id, ", ".join(strange))
            if any(other.release != release.VERSION for other in self._living(session)):
                jobs.mark_unpublished(session, job_id)
            return False
        return self.announced is None or self._serves(session, jobs.get(session, job_id), self.announced)

    def _serves(self, session: Session, job: Job, announced: Worker) -> bool:
        lacked = capabilities.lacking(job.request, announced)
        if lacked is None:
            return True
        _log.info("job %s needs another worker: this one lacks its %s", job.id, lacked)
        if capabilities.serving(job.request, self._living(session)):
            jobs.mark_unpublished(session, job.id)
        return False

    def _living(self, session: Session) -> list[Worker]:
        since = clock.now() - timedelta(seconds=self.settings.worker_alive_seconds)
        return workers.known(session, seen_since=since)

    def describe(self) -> Worker:
        """This worker as the fleet sees it; starts its engines the first time it is asked on a machine."""
        found = self._hellos()
        device = hostinfo.device()
        text = placing.native_text(found[0]) if found else "llvm"
        return Worker(
            id=self.id,
            hostname=identity.hostname(),
            pid=int(self.id.split(":")[-2]),
            device=device,
            native_target=Target(text=text, threads=device.threads),
            accelerators=self.accelerators,
            toolchains=tuple(placing.toolchain(hello) for hello in found),
            foreign_cpus=placing.foreign_cpus(found),
            trackers=capabilities.trackers_of(self.settings.rpc_trackers),
            release=release.VERSION,
            lock_place=devicelock.place(),
            current_job=None,
            started_at=self.started_at,
            last_seen_at=self.started_at,
        )

    def _hellos(self) -> list[dict[str, Any]]:
        """Of the engines that compile; without the reference engine they would serve no job."""
        asked = [hellos.ask(name, self.settings.home, self.engines) for name in (REFERENCE, *COMPILERS)]
        return [hello for hello in asked[1:] if hello is not None and asked[0] is not None]

    def clean_up(self) -> None:
        """End what dead workers of this host left: their engines, their leases, files of jobs that ended."""
        killed = sweep(self.settings.home)
        with self.database.transaction() as session:
            self.is_outdated(session)
            clock.synchronize(session, patience=self.settings.patience)
            dead = [worker.id for worker in workers.known(session) if identity.is_dead(worker)]
            expired = jobs.expire_dead(session, worker_ids=dead, now=clock.now()) if dead else 0
            workers.forget(session, dead)
        if killed or expired:
            _log.warning("ended %d stray engine processes and %d leases of dead workers", len(killed), expired)
        self._remove_old_work()

    def _remove_old_work(self) -> None:
        folder = self.settings.home / "work"
        for path in folder.iterdir() if folder.is_dir() else ():
            paths.clear_work(self.database, self.settings.home, path.name, unknown=True)
