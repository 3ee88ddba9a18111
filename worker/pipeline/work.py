"""What every stage is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from domain import errors
from domain.blobs import BlobStore
from domain.events import EventKind
from domain.jobs import Job, JobRequest, Lease, Placement, Stage
from domain.models import Model
from domain.ports import Engine, OnEvent
from domain.tensors import TensorSpec
from storage import events, jobs
from storage.database import Database
from tuner import failures
from worker import clock
from worker.engines import RELAY, EnginePool
from worker.leases import LeaseKeeper
from worker.settings import WorkerSettings

Outcome = dict[str, Any]
"""What a stage found out, as JSON. ``files`` lists what later stages read, relative to the work folder."""

PREPARED = "prepared.onnx"
INPUTS, EXPECTED = "inputs", "expected"
UNTUNED, TUNED = "untuned", "tuned"
RECORDS = "records.jsonl"
COMPILE_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """One claimed job at work."""

    job: Job
    model: Model
    placement: Placement
    keeper: LeaseKeeper
    database: Database
    blobs: BlobStore
    engines: EnginePool
    settings: WorkerSettings
    folder: Path
    outcomes: dict[Stage, Outcome] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)

    @property
    def request(self) -> JobRequest:
        return self.job.request

    @property
    def lease(self) -> Lease:
        return self.keeper.lease

    @property
    def canceled(self) -> Callable[[], bool]:
        return self.keeper.stop_wanted

    @property
    def threads(self) -> int:
        return self.placement.target.threads

    @property
    def device_lock(self) -> str:
        """The device without its thread count: however many threads a job uses, it spoils another's measurements."""
        return self.placement.device.key.rpartition("/")[0] or self.placement.device.key

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return specs(self.outcomes[Stage.IMPORT]["inputs"])

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return specs(self.outcomes[Stage.IMPORT]["outputs"])

    @property
    def compile_params(self) -> dict[str, Any]:
        """Which model to compile and what for, as the engine's methods take it."""
        return {
            "model": str(self.folder / PREPARED),
            "target": self.placement.target.text,
            "threads": self.threads,
        }

    def arrays(self, folder: str) -> list[Path]:
        """The baseline's ``inputs`` or ``expected`` outputs, one file a seed."""
        return [self.folder / name for name in self.outcomes[Stage.BASELINE][folder]]

    def relay(self) -> Engine:
        return self.engines.get(RELAY)

    def ask(
        self, engine: Engine, method: str, params: dict[str, Any], *, timeout: float, on_event: OnEvent | None = None
    ) -> dict[str, Any]:
        """A request that stops with the job; what is the caller's fault is raised as the caller's error."""
        try:
            return engine.request(method, params, timeout=timeout, on_event=on_event, canceled=self.canceled)
        except errors.EngineRequestFailed as error:
            raise failures.explain(error) from error

    def note(self, message: str) -> None:
        with self.database.transaction() as session:
            self.keeper.require(jobs.holds(session, self.job.id, self.lease))
            events.append(session, self.job.id, EventKind.NOTE, {"message": message}, now=clock.now())

    def note_once(self, message: str) -> None:
        if message not in self.noted:
            self.noted.add(message)
            self.note(message)


def specs(entries: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=entry["name"], dtype=entry["dtype"], shape=tuple(entry["shape"])) for entry in entries)
