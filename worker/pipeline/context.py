"""The context of one claimed job, which every stage receives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from domain import errors
from domain.blobs import BlobStore
from domain.jobs import EventKind, Job, JobRequest, Lease, Placement, Precision, RunnerKind, Tuner
from domain.models import Model, ModelFormat, TensorSpec
from domain.ports import Engine, OnEvent
from domain.stage_results import BaselineResult, ImportResult, RowRuns, StageResults
from domain.targets import Device, Target, Toolchain, kind_of
from domain.workers import Worker
from storage import events, jobs, workers
from storage.database import Database
from tuner.host import devicelock, failures
from tuner.results import verification
from tuner.search import precisions
from worker import clock
from worker.engines import MAIN, EnginePool
from worker.leases import Heartbeat
from worker.pipeline.emulation import Emulation
from worker.settings import WorkerSettings
from worker.total_limit import TotalLimit

CallHelp = Callable[[str, Sequence[Worker]], None]
"""Ask idle workers to help with the job of that id; return at once."""

INPUTS, EXPECTED, EXPECTED_OF_ROWS = "inputs", "expected", "expected-of-rows"
"""Folders of the inputs, and of the reference's outputs on seeded ones and on rows of a data set, within the work
folder."""
UNTUNED = "untuned"
CHECK_SECONDS = 600.0
EXTRACT_SECONDS = 1800.0
COMPILE_SECONDS = 3600.0
_SILENT_SECONDS = 2.0
"""Longer waits for the device are noted."""
_WAITING = "waiting for the device: another measurement is using it"


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """One claimed job, where it runs, and what its finished stages found."""

    job: Job
    model: Model
    target: Target
    device: Device
    toolchains: dict[str, Toolchain]
    """Toolchain of each engine that may serve the job, by name."""
    candidates: tuple[Tuner, ...]
    """Tuners that may serve the job, the preferred one first; only the requested one, if the job names it."""
    tuner: Tuner
    """The leading tuner; with ``auto`` it may change between stages."""
    beside: Tuner | None = None
    """The tuner whose builds are completed by the leading one, as in ``Strategy``."""
    unavailable: tuple[str, ...]
    """One sentence for each engine that ``auto`` cannot use."""
    plugins: dict[str, tuple[str, ...]]
    """Plug-ins of each engine, as its hello lists them."""
    heartbeat: Heartbeat
    database: Database
    blobs: BlobStore
    engines: EnginePool
    settings: WorkerSettings
    folder: Path
    compilers: str = MAIN
    """Role of the processes that extract, tune and compile."""
    call_help: CallHelp | None = None
    """None if other workers are not asked."""
    emulation: Emulation = field(default_factory=Emulation)
    limit: TotalLimit = field(default_factory=TotalLimit)
    results: StageResults = field(default_factory=StageResults)
    """Of the stages that have finished."""
    first_size: BaselineResult | None = None
    """What the baseline of the first size found, if this job tunes another size of the same model."""
    noted: set[str] = field(default_factory=set)
    extraction_errors: dict[Tuner, errors.TunesmithError] = field(default_factory=dict)
    """Errors of extractions that ran ahead; stage ``plan`` raises them."""
    searched_by: dict[str, str] = field(default_factory=dict)
    """The last worker to search each workload, since this attempt first searched it."""

    @property
    def request(self) -> JobRequest:
        return self.job.request

    @property
    def lease(self) -> Lease:
        return self.heartbeat.lease

    @property
    def canceled(self) -> Callable[[], bool]:
        return self.heartbeat.stop_wanted

    @property
    def threads(self) -> int:
        return self.target.threads

    @property
    def engine(self) -> str:
        """Name of the engine that tunes."""
        return self.tuner.engine

    @property
    def placement(self) -> Placement:
        return Placement(target=self.target, device=self.device, toolchain=self.toolchains[self.engine])

    @property
    def measures(self) -> bool:
        """Whether anything runs on the target, so that it can be timed."""
        return self.request.runner is not RunnerKind.NONE

    @property
    def verifies(self) -> bool:
        """Whether builds run on the target or on an emulator of it, so that their results can be compared."""
        return self.measures or bool(self.emulation.emulator)

    @property
    def reference_shares_device(self) -> bool:
        """Whether the reference's times can be compared with those of compiled variants."""
        return self.request.runner is RunnerKind.LOCAL and kind_of(self.target.text) == "llvm"

    @property
    def place(self) -> dict[str, Any]:
        """Where compiled files run: parameters of the engines' ``run`` and ``time``."""
        emulated = {"emulated": self.emulation.machine} if self.emulation.emulator else {}
        return {"threads": self.threads, "target": self.target.text, "runner": self.runner, **emulated}

    @property
    def runner(self) -> dict[str, Any] | None:
        rpc = self.request.rpc
        if self.request.runner is not RunnerKind.RPC or rpc is None:
            return None
        named = {"kind": "rpc", "tracker": rpc.tracker, "key": rpc.key, "session_timeout": rpc.session_timeout}
        avoid = self._quarantined(f"{rpc.tracker}/{rpc.key}/")
        return {**named, "avoid": avoid} if avoid else named

    def _quarantined(self, prefix: str) -> list[str]:
        """``HOST:PORT`` of each quarantined device."""
        with self.database.reading() as session:
            active = workers.quarantined(session, clock.now())
        return [device.id.removeprefix(prefix) for device in active if device.id.startswith(prefix)]

    @property
    def device_lock(self) -> str:
        """The device without its thread count: jobs with any number of threads disturb each other's measurements."""
        key = self.device.key
        return key.rpartition("/")[0] if kind_of(self.target.text) == "llvm" and "/" in key else key

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self.results.imported.inputs

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Static shapes of the prepared model."""
        return {spec.name: tuple(size for size in spec.shape if isinstance(size, int)) for spec in self.inputs}

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self.results.imported.outputs

    @property
    def prepared(self) -> Path:
        return self.folder / f"prepared{self.model.facts.format.suffix}"

    @property
    def rewrites(self) -> bool:
        """Whether tuned builds may replace operators by equivalent ones; IRModules are not rewritten."""
        return self.request.tuner_options.rewrite and self.model.facts.format is ModelFormat.ONNX

    @property
    def rewritten(self) -> Path:
        """Path of the rewritten model, if there is one."""
        return self.folder / "rewritten.onnx"

    @property
    def quantized(self) -> Path:
        """Path of the quantized model for int8 builds, if there is one."""
        return self.folder / "quantized.onnx"

    @property
    def narrowed(self) -> Path:
        """Path of the model whose sensitive layers are marked for bf16 builds, if there are any."""
        return self.folder / "narrowed.onnx"

    def build_params(self, tuner: Tuner | None) -> dict[str, Any]:
        """Parameters of the engines' methods: the model and the target; without a tuner, for an untuned build."""
        imported = self.results.find(ImportResult)
        rewritten = imported.rewritten if imported else ()
        precision = precisions.first(self.request)
        model = self.rewritten if tuner is not None and tuner.engine in rewritten else self.prepared
        return {
            "model": str(self._of_precision(precision) or model),
            "rewrite": tuner is not None and self.rewrites,
            "target": self.target.text,
            "threads": self.threads,
            "precision": str(precision),
            "tuner": None if tuner is None else str(tuner),
            "options": asdict(self.request.tuner_options),
        }

    def _of_precision(self, precision: Precision) -> Path | None:
        """The model that the import stage derived for a precision; None if it takes the usual one."""
        derived = {Precision.INT8: self.quantized, Precision.BF16: self.narrowed}.get(precision)
        imported = self.results.find(ImportResult)
        return derived if derived and imported and derived.name in imported.files else None

    @property
    def seeds(self) -> tuple[int, ...]:
        return verification.seeds_for(self.request.precision, with_data=self.request.data is not None)

    @property
    def rows(self) -> verification.Rows | None:
        """Runs of the job's data set that judge builds."""
        found = self.results.baseline.rows
        return None if found is None else self.rows_of(found)

    def rows_of(self, found: RowRuns) -> verification.Rows:
        inputs, expected, labels = (
            tuple(self.folder / name for name in names) for names in (found.inputs, found.expected, found.labels)
        )
        return verification.Rows(first=found.first, each=found.each, inputs=inputs, expected=expected, labels=labels)

    @property
    def timed_inputs(self) -> Path:
        """Inputs of runs that are timed: the user's, if there are any."""
        rows = self.rows
        return rows.inputs[0] if rows else self.seeded_inputs[0]

    @property
    def seeded_inputs(self) -> list[Path]:
        """One file a seed."""
        return [self.folder / name for name in self.results.baseline.inputs]

    @property
    def expected_outputs(self) -> list[Path]:
        """Outputs of the reference, one file a seed."""
        return [self.folder / name for name in self.results.baseline.expected]

    def compiler(self, name: str | None = None) -> Engine:
        """The process that extracts, tunes and compiles; the leading engine's by default."""
        return self.engines.get(name or self.engine, role=self.compilers)

    def ask(
        self,
        engine: Engine,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float,
        on_event: OnEvent | None = None,
        canceled: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        """Send a request that ends with the job; errors of the caller are raised as the caller's errors."""
        canceled = canceled or self.canceled
        try:
            return engine.request(method, params, timeout=timeout, on_event=on_event, canceled=canceled)
        except errors.EngineRequestFailed as error:
            raise failures.explain(error) from error

    @contextmanager
    def exclusive_device(self, *, canceled: Callable[[], bool] | None = None, say: bool = True) -> Iterator[None]:
        """Hold the device while something is timed, waiting as long as the job may. Raises Canceled, TimeLimit.

        A longer wait is noted once a job, unless ``say`` is false. Devices behind a tracker queue there, and other jobs
        may use others of the same key meanwhile.
        """
        if self.request.runner is not RunnerKind.LOCAL:
            yield
            return
        with ExitStack() as stack:
            canceled = canceled or self.canceled
            try:
                stack.enter_context(devicelock.hold(self.device_lock, timeout=_SILENT_SECONDS, canceled=canceled))
            except errors.DeviceBusy:
                if say:
                    self.note_once(_WAITING)
                try:
                    stack.enter_context(devicelock.hold(self.device_lock, timeout=self.limit.left, canceled=canceled))
                except errors.DeviceBusy as error:
                    raise self.limit.error("the device was busy") from error
            yield

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Open a transaction for which this worker must hold the lease. Raises LeaseLost before anything is written."""
        with self.database.transaction() as session:
            self.heartbeat.require(jobs.holds(session, self.job.id, self.lease))
            yield session

    def note(self, message: str) -> None:
        with self.transaction() as session:
            events.append(session, self.job.id, EventKind.NOTE, {"message": message}, now=clock.now())

    def note_once(self, message: str) -> None:
        if message not in self.noted:
            self.noted.add(message)
            self.note(message)
