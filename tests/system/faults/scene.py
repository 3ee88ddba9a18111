"""One job at work in the topology, to which a fault is done."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy.exc import SQLAlchemyError

from domain.jobs import Job, Stage
from storage import jobs, records
from tests.support import models
from tests.support.topology.engines import Engines
from tests.support.topology.parts import Part
from tests.support.topology.running import Topology
from tests.system.faults.ledger import Ledger, Trial

TRIALS = {Engines.REAL: 32, Engines.SCRIPTED: 48}
_SIZES = itertools.count(24, 12)
"""Of inputs: each has tuning tasks of its own, which no earlier job has covered. Multiples of twelve have large search
spaces."""
_PATIENCE = 240.0
_LOOK_SECONDS = 0.05
_MODULES = {Engines.REAL: "tuner.engines.relay", Engines.SCRIPTED: "tests.support.topology.scripted_engine\0relay"}


@dataclass(kw_only=True)
class Scene:
    topology: Topology
    ledger: Ledger
    number: int
    """Of the try, from 0."""
    job_id: str = ""
    others: list[str] = field(default_factory=list)
    """Jobs that the fault itself submitted; they, too, must succeed."""
    notes: list[str] = field(default_factory=list)
    home: Path | None = None
    """Where the job was worked on last."""

    def submit(self, *, trials: int | None = None, size: int | None = None) -> str:
        """A job of its own tuning tasks. Raises AssertionError unless the API takes it."""
        client, real = self.topology.client, self.topology.kind is Engines.REAL
        model = client.put("/v1/models", params={"name": "small"}, content=models.small_network())
        assert model.status_code in (200, 201), model.text
        side = size or next(_SIZES)
        body = {
            "model": model.json()["id"],
            "input_shapes": {"image" if real else "x": [1, 3, side, side]},
            "tuner": "autotvm",
            "budget": {"trials": trials or TRIALS[self.topology.kind]},
        }
        answer = client.post("/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def job(self, job_id: str | None = None) -> Job:
        """As the database has it, asked past the proxy."""
        with self.topology.database.reading() as session:
            return jobs.get(session, job_id or self.job_id)

    def stored(self) -> set[Trial]:
        with self.topology.database.reading() as session:
            found = records.of_job(session, self.job_id)
        return {(record.key.workload_key, record.schedule_digest) for record in found}

    def wait(self, condition: Callable[[], bool], what: str, *, seconds: float = _PATIENCE) -> float:
        """As ``Topology.wait``; while the database is away, nothing is so."""

        def asked() -> bool:
            with contextlib.suppress(SQLAlchemyError, httpx.HTTPError):
                return condition()
            return False

        return self.topology.wait(asked, seconds=seconds, what=what)

    def pass_time(self, seconds: float) -> None:
        """Meanwhile the orchestrator does its work."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.topology.tend()
            time.sleep(_LOOK_SECONDS)

    def wait_until_tuning(self) -> None:
        """Until a quarter of the job's trials are done."""

        def tunes() -> bool:
            job = self.job()
            assert not job.state.is_final, f"job {self.job_id} ended before the fault: {job.state}, {job.failure}"
            return job.stage is Stage.TUNE and job.trials_done * 4 >= job.trials_planned > 0

        self.wait(tunes, f"job {self.job_id} is tuning")

    def wait_until_done(self, job_id: str | None = None) -> Job:
        watched_id = job_id or self.job_id

        def ended() -> bool:
            job = self.job(watched_id)
            held = self._working(job)
            if held and watched_id == self.job_id:
                self.home = held.home
            return job.state.is_final

        self.wait(ended, f"job {watched_id} comes to an end")
        return self.job(watched_id)

    def holder(self) -> Part:
        """The worker that works on the job."""
        self.wait(lambda: self._working(self.job()) is not None, f"a worker has job {self.job_id}", seconds=60)
        found = self._working(self.job())
        assert found, "the job changed hands just now"
        return found

    def _working(self, job: Job) -> Part | None:
        pid = int(job.lease.worker_id.split(":")[-2]) if job.lease else 0
        return next((part for part in self.topology.workers.values() if part.runs and part.pid == pid), None)

    def engines(self) -> list[int]:
        """Processes that the holder started to tune, not those that these forked."""
        parent, wanted = self.holder().pid, _MODULES[self.topology.kind].encode()
        found = []
        for pid in self.topology.engines_alive():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if wanted in command and b"--event-fd" in command and _is_below(pid, parent):
                    found.append(pid)
        return [pid for pid in found if not any(pid != each and _is_below(pid, each) for each in found)]

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = self.topology.client.get(f"/v1/jobs/{self.job_id}/report").json()
        return found


def _is_below(pid: int, parent: int) -> bool:
    """Whether ``parent`` is among the ancestors of ``pid``."""
    while pid > 1 and pid != parent:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pid = int(fields[1])
    return pid == parent
