"""What a worker process is made of, and the one thing it does: run the job it is told of."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from domain import dispatch, errors
from domain.blobs import BlobStore
from domain.jobs import Job
from domain.targets import Device, Target
from domain.workers import Worker
from storage import jobs, workers
from storage.database import Database
from tuner import hostinfo
from tuner.session import sweep
from worker import clock, hellos, identity
from worker.engines import COMPILERS, EngineSource
from worker.leases import LeaseKeeper
from worker.pipeline import placing
from worker.pipeline.running import Pipeline
from worker.settings import WorkerSettings

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Runtime:
    database: Database
    blobs: BlobStore
    engines: EngineSource
    settings: WorkerSettings
    shutdown: threading.Event = field(default_factory=threading.Event)
    """Set once the process is to end: the job at work is given back then."""
    current_job: str | None = None
    id: str = field(default_factory=identity.own_id)
    started_at: datetime = field(default_factory=clock.now)

    def run_job(self, job_id: str) -> None:
        """Take the job if it is still to be taken, and work on it to its end."""
        if self.shutdown.is_set():
            return
        job = self._claim(job_id)
        if job is None:
            return
        pipeline = Pipeline(database=self.database, blobs=self.blobs, engines=self.engines, settings=self.settings)
        self.current_job = job_id
        try:
            with LeaseKeeper(self.database, job, self.settings, self.shutdown) as keeper:
                pipeline.run(job, keeper)
        finally:
            self.current_job = None

    @cached_property
    def accelerators(self) -> tuple[Device, ...]:
        """GPUs that this worker measures on; with any, it takes nothing but CUDA jobs."""
        return () if self.settings.takes == "cpu" else hostinfo.accelerators()

    @property
    def queue(self) -> str:
        takes_cuda = self.settings.takes == "cuda" or bool(self.accelerators)
        return dispatch.CUDA_QUEUE if takes_cuda else dispatch.QUEUE

    def _claim(self, job_id: str) -> Job | None:
        try:
            with self.database.transaction() as session:
                return jobs.claim(
                    session,
                    job_id,
                    worker_id=self.id,
                    now=clock.now(),
                    lease_seconds=self.settings.lease_seconds,
                    max_attempts=self.settings.max_attempts,
                )
        except errors.JobNotFound:
            _log.warning("there is no job %s: a message from another database?", job_id)
            return None

    def describe(self) -> Worker:
        """This worker as the fleet sees it; starts an engine the first time it is asked on a machine."""
        asked = [hellos.ask(name, self.settings.home, self.engines) for name in COMPILERS]
        found = [hello for hello in asked if hello is not None]
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
            current_job=None,
            started_at=self.started_at,
            last_seen_at=self.started_at,
        )

    def clean_up(self) -> None:
        """End what dead workers of this host left: their engines, their leases, files of jobs that ended."""
        killed = sweep(self.settings.home)
        with self.database.transaction() as session:
            dead = [worker.id for worker in workers.known(session) if identity.is_dead(worker)]
            expired = jobs.expire_dead(session, worker_ids=dead, now=clock.now()) if dead else 0
            workers.forget(session, dead)
        if killed or expired:
            _log.warning("ended %d stray engine processes and %d leases of dead workers", len(killed), expired)
        self._remove_old_work()

    def _remove_old_work(self) -> None:
        folder = self.settings.home / "work"
        for path in folder.iterdir() if folder.is_dir() else ():
            with self.database.reading() as session, contextlib.suppress(errors.JobNotFound):
                if not jobs.get(session, path.name).state.is_final:
                    continue
            shutil.rmtree(path, ignore_errors=True)
