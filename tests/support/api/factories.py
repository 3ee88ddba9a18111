"""An application over a real database and real blobs, with the engines and the broker faked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import SecretStr
from starlette.routing import BaseRoute

from api.app import create_app
from api.services import ReadRecords
from api.settings import ApiSettings
from domain import errors
from domain.data_sets import DataFacts
from domain.jobs import Tuner
from domain.models import ModelFacts, ModelFormat, TensorSpec
from domain.ports import Canceled
from domain.targets import Toolchain
from domain.tuning_tasks import ExtractedTask
from storage.blobs.local import LocalBlobStore
from storage.database import Database
from tests.support.storage.empty import put_empty_database
from tests.support.storage.sessions import WatchedBlobStore, WatchedDatabase, check_outside
from tests.support.tuner.fakes import FakeEngine
from tuner.engines.protocol.serving import EngineFailure
from tuner.host.extraction import Planner
from tuner.host.inspection import Prepared, Rewritten
from tuner.native import reading
from tuner.native.reading import Batch
from tuner.search.operators import CheckedOperator

TOKEN = "a-token"
TOOLCHAINS = {
    "relay": Toolchain(engine="relay", tvm="0.19.0", llvm="22.1.8"),
    "relax": Toolchain(engine="relax", tvm="0.27.0", llvm="22.1.8"),
}
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
SHAPES = {"x": [1, 3, 8, 8]}
"""Of the inputs of a model whose sizes are open; see ``inspect``."""
_SETTINGS: dict[str, Any] = {
    "token": SecretStr(TOKEN),
    "events_poll_seconds": 0.05,
    # Tests are quicker than people.
    "rate_burst": 100_000,
    "failures_burst": 100_000,
}


@dataclass
class FakePublisher:
    """Counts the bells; ``down`` makes the broker unreachable."""

    rung: int = 0
    down: bool = False

    def ring(self) -> None:
        self.check()
        self.rung += 1

    def check(self) -> None:
        check_outside("the broker")
        if self.down:
            raise errors.BrokerUnavailable("the broker does not respond")


def inspect(path: Path, model_format: ModelFormat, canceled: Callable[[], bool] = lambda: False) -> ModelFacts:
    """Bytes that start with ``bad`` are no model; ``static`` has no open dimension; everything else has some.

    Those that start with ``slow`` take a minute. ``unknown`` has operators that nobody knows, ``matrix`` such that no
    engine imports.
    """
    with path.open("rb") as file:
        start = file.read(16)
    until = time.monotonic() + (60 if start.startswith(b"slow") else 0)
    while time.monotonic() < until:
        if canceled():
            raise Canceled
        time.sleep(0.01)
    if start.startswith(b"bad"):
        raise errors.InvalidModel("not an ONNX model")
    if start.startswith(b"unknown"):
        message = "neither ONNX Runtime nor the model defines 'my.domain::Twist' (2×)"
        raise errors.UnsupportedOperators(message, details={"operators": {"my.domain::Twist": 2}})
    if start.startswith(b"no engine"):
        raise errors.EngineNotInstalled("the onnx engine is not installed")
    if start.startswith(b"crash"):
        raise RuntimeError("a secret of the inside")
    dimensions: tuple[int | str | None, ...] = ("batch", 3, None, 8)
    if start.startswith(b"static"):
        dimensions = (1, 3, 8, 8)
    elif start.startswith(b"pictures"):
        dimensions = ("batch", 3, None, None)
    return ModelFacts(
        inputs=(TensorSpec(name="x", dtype="float32", shape=dimensions),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=(1, 2)),),
        opset=17,
        ir_version=8,
        operators={"Det": 2, "Relu": 1} if start.startswith(b"matrix") else {"Conv": 2},
        parameters=100,
        format=model_format,
    )


def inspect_rows(path: Path, canceled: Callable[[], bool] = lambda: False) -> DataFacts:
    """As the onnx engine does, in this process, which has no numpy: a JSON document of names, dtypes and shapes."""
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        raise errors.InvalidDataSet("not an .npz file of arrays") from None
    if canceled():
        raise Canceled
    arrays = tuple(TensorSpec(name=name, dtype=dtype, shape=tuple(shape)) for name, (dtype, shape) in found.items())
    return DataFacts(arrays=arrays, rows=found[arrays[0].name][1][0])


def read_records(path: Path, tuner: Tuner, take: Callable[[Batch], None]) -> None:
    """As a ``RecordReader`` does, in this process."""
    with path.open("rb") as file:
        for message in reading.messages(file, tuner):
            take(Batch.of(json.loads(json.dumps(message))))


@dataclass
class FakePlanner:
    """Engines by script: relay finds two tasks for AutoTVM and one for Ansor, relax one; both import everything.

    ``missing`` names engines that are not installed, ``unsupported`` gives engines operators that they lack, and
    ``refused`` tuners that refuse to extract, with a code. ``started`` counts starts.
    """

    missing: set[str] = field(default_factory=set)
    unsupported: dict[str, dict[str, int]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    prepared: int = 0
    rewritten: int = 0
    seconds: float = 20.0
    working: Callable[[], None] = lambda: None
    """Called while an engine works."""
    slow: dict[str, float] = field(default_factory=dict)
    """Seconds that the check of an engine takes, unless it is canceled; ``prepare`` counts as ``onnx``."""

    def prepare(
        self, model: Path, shapes: Mapping[str, Sequence[int]], out: Path, canceled: Callable[[], bool] | None = None
    ) -> Prepared:
        if "onnx" in self.missing:
            raise errors.EngineNotInstalled("the onnx engine is not installed")
        self.prepared += 1
        self._work("onnx", canceled)
        out.write_bytes(b"prepared")
        return Prepared(path=out, inputs=(), outputs=(), operators={}, folded=True)

    def rewrite(self, prepared: Path, lanes: int, out: Path, canceled: Callable[[], bool] | None = None) -> Rewritten:
        self.rewritten += 1
        out.write_bytes(f"rewritten for {lanes} lanes".encode())
        return Rewritten(path=out, applied={"aligned": 1}, undone={})

    def start(self, name: str, folder: Path, canceled: Callable[[], bool]) -> FakeEngine:
        if name in self.missing:
            raise errors.EngineNotInstalled(f"the {name} engine is not installed", hint="Install it.")
        self.started.append(name)
        hello = {"toolchain": asdict(TOOLCHAINS[name]), "plugins": []}
        check = partial(self._check, name, canceled)
        return FakeEngine({"check": check, "extract": self._extract}, hello=hello)

    def _work(self, name: str, canceled: Callable[[], bool] | None) -> None:
        until = time.monotonic() + self.slow.get(name, 0.0)
        while time.monotonic() < until:
            if canceled is not None and canceled():
                raise Canceled
            time.sleep(0.01)

    def _check(self, name: str, canceled: Callable[[], bool], params: Any, _emit: object) -> dict[str, Any]:
        self.working()
        self._work(name, canceled)
        if name in self.unsupported:
            details = {"operators": self.unsupported[name]}
            raise EngineFailure("unsupported_operators", f"{name} lacks operators", details=details)
        return {"operators": {"Conv": 2}, "lanes": 16}

    def _extract(self, params: Any, _emit: object) -> dict[str, Any]:
        tuner = params["tuner"]
        if tuner in self.refused:
            raise EngineFailure(self.refused[tuner], f"{tuner} refuses", hint="Ask for something else.")
        names = ["conv2d", "dense"] if tuner == "autotvm" else ["fused_conv2d"]
        tasks = []
        for position, name in enumerate(names):
            definition = None if tuner == "autotvm" else f"{name}.json"
            if definition:
                (Path(params["out_dir"]) / definition).write_text(f"definition of {name}")
            task = ExtractedTask(
                position=position,
                name=name,
                workload_key=f"{tuner}-{name}",
                description=name,
                weight=1,
                flop=1e6,
                space_size=100,
                definition=definition,
            )
            tasks.append(asdict(task))
        return {"tasks": tasks}


def make_operator(operator: CheckedOperator, path: Path) -> None:
    """Bytes that ``inspect`` takes for a model without open dimensions."""
    path.write_bytes(f"static {operator}".encode())


@dataclass(frozen=True)
class Service:
    app: FastAPI
    database: Database
    blobs: LocalBlobStore
    publisher: FakePublisher
    planner: Any
    """A FakePlanner, unless a test brought another one."""
    logs: Path
    home: Path


_routes: dict[bool, list[BaseRoute]] = {}
"""By whether metrics are open, for all applications: FastAPI puts each route together when it is first asked for, which
takes longer than most tests."""


def make_service(
    home: Path, *, planner: Planner | None = None, read_records: ReadRecords = read_records, **settings: Any
) -> Service:
    file = home / "db.sqlite3"
    if not file.exists():
        put_empty_database(home)
    database = WatchedDatabase(f"sqlite:///{file}")
    blobs, publisher = WatchedBlobStore(home / "blobs"), FakePublisher()
    logs, planner = home / "logs" / "jobs", planner or FakePlanner()
    app = create_app(
        ApiSettings(**_SETTINGS | settings),
        database=database,
        blobs=blobs,
        publisher=publisher,
        inspect=inspect,
        inspect_rows=inspect_rows,
        read_records=read_records,
        make_operator=make_operator,
        planner=planner,
        logs=logs,
    )
    app.router.routes = _routes.setdefault(app.state.services.settings.metrics_open, app.router.routes)
    return Service(app=app, database=database, blobs=blobs, publisher=publisher, planner=planner, logs=logs, home=home)


@contextmanager
def open_service(home: Path, **options: Any) -> Iterator[Service]:
    """As ``make_service``; its database is closed at the end."""
    made = make_service(home, **options)
    with closing(made.database):
        yield made
