"""The worker process: it claims and runs the next job, or helps another worker with one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from domain import capabilities, errors, release
from domain.blobs import BlobStore
from domain.jobs import Job, JobRequest, JobState
from domain.targets import Device, Target, Toolchain
from domain.workers import Worker
from storage import job_queries, jobs, queue, shared_rounds, workers
from storage.database import Database
from storage.migrations import running
from tuner.host import devicelock, hardware
from tuner.host.session import sweep
from worker import clock, engines, identity, observing, paths
from worker.engines import COMPILERS, ONNX, EngineSource
from worker.job_logs import LogShipper
from worker.leases import JobHeartbeat
from worker.pipeline import placing
from worker.pipeline.context import CallHelp
from worker.pipeline.running import Pipeline
from worker.pipeline.search.helping import Helper
from worker.settings import WorkerSettings

_log = logging.getLogger(__name__)
_TAKEN_AT_ONCE_SECONDS = 2.0
_REST_SECONDS = 60.0
"""Pause after failing to help a job: each try starts engines and holds up one of the leader's rounds."""
_FIRST, _MOST = 2, 200
"""Requests read per query: usually the worker can run the first."""


@dataclass
class QueueScanner:
    """Search the queue for jobs that this worker can run, and remember those that it cannot."""

    _for_others: set[str] = field(default_factory=set)
    """Waiting jobs that this worker cannot run. Neither requests nor a worker's capabilities change."""

    def first_able(self, session: Session, waiting: Iterator[str], announced: Worker | None) -> str | None:
        """Return the first job that the worker can run, or None.

        ``waiting``: ids in claim order. ``announced``: the worker's capabilities; None accepts any job.
        """
        seen: set[str] = set()
        size = _FIRST
        while some := list(islice(waiting, size)):
            size = min(4 * size, _MOST)
            requests = job_queries.requests_of(session, [job_id for job_id in some if job_id not in self._for_others])
            for job_id in some:
                if job_id in requests:
                    if _serves(announced, requests[job_id]):
                        return job_id
                    self._for_others.add(job_id)
            seen.update(some)
        self._for_others &= seen
        return None


def _serves(announced: Worker | None, request: JobRequest | None) -> bool:
    """Jobs of a newer release are left to workers of that release."""
    return request is not None and (announced is None or capabilities.lacking(request, announced) is None)


@dataclass(kw_only=True)
class Runtime:
    database: Database
    blobs: BlobStore
    engines: EngineSource
    settings: WorkerSettings
    shutdown: threading.Event = field(default_factory=threading.Event)
    """Set when the process is to end; the running job is then released."""
    current_job: str | None = None
    call_help: CallHelp | None = None
    """Asks other workers for help; None without a broker."""
    announced: Worker | None = None
    """This worker as the fleet sees it; until it is known, the worker accepts any job."""
    revision: str | None = None
    """The database's revision when this process first read it."""
    scanner: QueueScanner = field(default_factory=QueueScanner)
    rests: dict[str, float] = field(default_factory=dict)
    """By job, the monotonic time before which this worker does not try to help again."""
    id: str = field(default_factory=identity.own_id)
    started_at: datetime = field(default_factory=clock.now)
    _working: threading.Lock = field(default_factory=threading.Lock)
    """Held while the worker is busy: a message and the periodic look may come at the same time."""

    def look(self) -> None:
        """Run all waiting jobs that this worker can run, then rounds that other jobs offer.

        Blocks while the worker is busy, and returns when it is idle.
        """
        with self._working:
            while not self.shutdown.is_set():
                job = self._claim()
                if job is not None:
                    self._run(job)
                elif not self._help_others():
                    return

    def wait_until_idle(self) -> None:
        """Wait until the running job has ended or, after ``shutdown``, was released."""
        with self._working:
            pass

    def _claim(self) -> Job | None:
        """Claim the first job that this worker can run, in the order of ``storage.queue``; None without any."""
        while True:
            # A read comes first: usually there is nothing to claim.
            with self.database.reading() as session:
                if self._first_waiting(session, self._rules()) is None:
                    return None
            with self.database.transaction() as session:
                queue.lock(session)
                rules = self._rules()
                job_id = self._first_waiting(session, rules)
                if job_id is None:
                    return None
                job = self._claimed(session, job_id, rules)
            # None: the job had used up its attempts, and has failed.
            if job is not None:
                return job

    def _claimed(self, session: Session, job_id: str, rules: queue.Rules) -> Job | None:
        return jobs.claim(
            session,
            job_id,
            worker_id=self.id,
            now=rules.now,
            lease_seconds=self.settings.lease_seconds,
            max_attempts=rules.max_attempts,
            judging=rules.judging,
            pause=rules.pause,
        )

    def _first_waiting(self, session: Session, rules: queue.Rules) -> str | None:
        if self.is_outdated(session):
            _log.error("no jobs claimed: the database was migrated to another release")
            return None
        return self.scanner.first_able(session, queue.in_order(session, rules), self.announced)

    def _rules(self, created_before: datetime | None = None) -> queue.Rules:
        return queue.Rules(
            now=clock.now(),
            judging=clock.judging(),
            pause=self.settings.attempt_pause_seconds,
            max_attempts=self.settings.max_attempts,
            created_before=created_before,
        )

    def _run(self, job: Job) -> None:
        self.current_job = job.id
        try:
            self._attempt(job)
        finally:
            self.current_job = None

    def _attempt(self, job: Job, seconds_left: float | None = None) -> None:
        log = paths.job_log(self.settings.home, job.id)
        with (
            observing.attempt(self.database, job),
            JobHeartbeat(self.database, job, self.settings, self.shutdown) as heartbeat,
            LogShipper(self.database, job.id, heartbeat.lease.attempt, log) as log_shipper,
        ):
            pipeline = Pipeline(
                database=self.database,
                blobs=self.blobs,
                engines=self.engines,
                settings=self.settings,
                call_help=self.call_help,
                keep_log=log_shipper.ship,
                run_part=self._run_part,
                seconds_left=seconds_left,
            )
            pipeline.run(job, heartbeat)

    def _run_part(self, job_id: str, seconds_left: float | None) -> bool:
        """Run the job of one size within these seconds; False if it cannot be claimed yet."""
        with self.database.transaction() as session:
            part = self._claimed(session, job_id, self._rules())
        if part is not None:
            self._attempt(part, seconds_left)
        return part is not None

    def _help_others(self) -> bool:
        """Help with a job that offers rounds; return whether any round was finished."""
        with self.database.reading() as session:
            offering = shared_rounds.offering(session, lock_place=devicelock.place())
        return any(self.help_job(job_id) for job_id in offering)

    def help_job(self, job_id: str) -> int:
        """Run the rounds that the job's leader offers, until there are none or a job waits that this worker can run.

        Returns how many.
        """
        if self.rests.get(job_id, 0.0) > time.monotonic() or self.shutdown.is_set():
            return 0
        with self.database.reading() as session:
            if job_queries.requests_of(session, [job_id]).get(job_id) is None:
                return 0
            job = jobs.get(session, job_id)
            leader = workers.release_of(session, job.lease.worker_id) if job.lease else None
        if job.state is not JobState.RUNNING or job.placement is None or not self._could_help(job, leader):
            return 0
        return self._help(job)

    def _could_help(self, job: Job, leader: str | None) -> bool:
        """``leader``: its release, as releases may run rounds differently; None if the fleet does not know it."""
        if leader not in (None, release.VERSION):
            return False
        return self.announced is None or capabilities.lacking(job.request, self.announced) is None

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
        """Whether a job waits that this worker can run and that no idle worker claims at once."""
        rules = self._rules(created_before=clock.now() - timedelta(seconds=_TAKEN_AT_ONCE_SECONDS))
        with self.database.reading() as session:
            return self._first_waiting(session, rules) is not None

    @cached_property
    def accelerators(self) -> tuple[Device, ...]:
        """GPUs that this worker measures on; a worker with GPUs accepts only CUDA jobs."""
        return () if self.settings.takes == "cpu" else hardware.accelerators()

    def announce(self) -> Worker:
        """Describe this worker to the fleet. Raises ConfigurationError if it is set up for CUDA jobs and has no GPU."""
        if self.settings.takes == "cuda" and not self.accelerators:
            raise errors.ConfigurationError(
                "TUNESMITH_TAKES=cuda is set, but this host has no visible NVIDIA GPU",
                hint="Check that nvidia-smi lists the GPU, also inside the container, or set TUNESMITH_TAKES=cpu.",
            )
        if self.announced is None:
            self.announced = self.describe()
        return self.announced

    def is_outdated(self, session: Session) -> bool:
        """Whether the database was migrated after this process started, so that its code may not match."""
        revision = running.current(session.connection())
        if self.revision is None:
            self.revision = revision
        return revision != self.revision

    def describe(self) -> Worker:
        """This worker as the fleet sees it; the first call on a machine starts its engines."""
        found = self._hellos()
        device = hardware.device()
        text = placing.native_text(found[0]) if found else "llvm"
        return Worker(
            id=self.id,
            hostname=identity.hostname(),
            pid=int(self.id.split(":")[-2]),
            device=device,
            native_target=Target(text=text, threads=device.threads),
            accelerators=self.accelerators,
            toolchains=tuple(Toolchain.of(hello) for hello in found),
            foreign_cpus=placing.foreign_cpus(found),
            trackers=capabilities.trackers_of(self.settings.rpc_trackers),
            release=release.VERSION,
            lock_place=devicelock.place(),
            current_job=None,
            started_at=self.started_at,
            last_seen_at=self.started_at,
        )

    def _hellos(self) -> list[dict[str, Any]]:
        """Hellos of the engines that compile; none without the onnx engine, which every job needs."""
        asked = [engines.ask_hello(name, self.settings.home, self.engines) for name in (ONNX, *COMPILERS)]
        return [hello for hello in asked[1:] if hello is not None and asked[0] is not None]

    def clean_up(self) -> None:
        """Clean up after dead workers of this host: engines, leases, and files of ended jobs."""
        killed = sweep(self.settings.home)
        with self.database.transaction() as session:
            self.is_outdated(session)
            clock.synchronize(session, settle_seconds=self.settings.settle_seconds)
            dead = [worker.id for worker in workers.known(session) if identity.is_dead(worker)]
            expired = jobs.expire_dead(session, worker_ids=dead, now=clock.now()) if dead else 0
            workers.forget(session, dead)
        if killed or expired:
            _log.warning("ended %d orphan engine processes and %d leases of dead workers", len(killed), expired)
        self._remove_old_work()

    def _remove_old_work(self) -> None:
        folder = self.settings.home / "work"
        for path in folder.iterdir() if folder.is_dir() else ():
            paths.clear_work(self.database, self.settings.home, path.name, unknown=True)
