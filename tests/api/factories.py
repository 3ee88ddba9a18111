"""An application over a real database and real blobs, with the engines and the broker faked."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import SecretStr

from api.app import create_app
from api.settings import ApiSettings
from domain import errors
from domain.models import ModelFacts
from domain.tensors import TensorSpec
from storage.blobs import LocalBlobStore
from storage.database import Database, migrate
from tuner.operators import CheckedOperator

TOKEN = "a-token"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class FakePublisher:
    """Remembers what was published; ``down`` makes the broker unreachable."""

    published: list[tuple[str, int]] = field(default_factory=list)
    down: bool = False

    def publish(self, job_id: str, priority: int) -> None:
        self.check()
        self.published.append((job_id, priority))

    def check(self) -> None:
        if self.down:
            raise errors.BrokerUnavailable("the broker does not answer")


def inspect(path: Path) -> ModelFacts:
    """Bytes that start with ``bad`` are no model; ``static`` has no open dimension; everything else has two."""
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(b"bad"):
        raise errors.InvalidModel("not an ONNX model")
    if start.startswith(b"no engine"):
        raise errors.EngineNotInstalled("the reference engine is not installed")
    if start.startswith(b"crash"):
        raise RuntimeError("a secret of the inside")
    dimensions = (1, 3, 8, 8) if start.startswith(b"static") else ("batch", 3, None, 8)
    return ModelFacts(
        inputs=(TensorSpec(name="x", dtype="float32", shape=dimensions),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=(1, 2)),),
        opset=17,
        ir_version=8,
        operators={"Conv": 2},
        parameters=100,
    )


def make_operator(operator: CheckedOperator, path: Path) -> None:
    """Bytes that ``inspect`` takes for a model without open dimensions."""
    path.write_bytes(f"static {operator}".encode())


@dataclass(frozen=True)
class Service:
    app: FastAPI
    database: Database
    blobs: LocalBlobStore
    publisher: FakePublisher
    logs: Path
    home: Path


def make_service(home: Path, **settings: Any) -> Service:
    file = home / "db.sqlite3"
    if not file.exists():
        file.write_bytes(_empty_database())
    database = Database(f"sqlite:///{file}")
    blobs, publisher = LocalBlobStore(home / "blobs"), FakePublisher()
    logs = home / "logs" / "jobs"
    app = create_app(
        ApiSettings(**{"token": SecretStr(TOKEN), "events_poll_seconds": 0.05} | settings),
        database=database,
        blobs=blobs,
        publisher=publisher,
        inspect=inspect,
        make_operator=make_operator,
        logs=logs,
    )
    return Service(app=app, database=database, blobs=blobs, publisher=publisher, logs=logs, home=home)


@functools.cache
def _empty_database() -> bytes:
    """Migrating takes longer than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "db.sqlite3"
        database = Database(f"sqlite:///{file}")
        migrate(database)
        database.close()
        return file.read_bytes()
