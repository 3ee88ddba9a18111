"""Reading of untrusted models in a child process with limits.

ONNX Runtime was seen to crash while loading bad files and to allocate 40 GB for a model of 179 bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from domain import errors, models
from domain.data_sets import DataFacts
from domain.models import ModelFacts, ModelFormat, TensorSpec
from domain.ports import Engine
from tuner.host import catalogue, environments, failures
from tuner.host.catalogue import EngineSpec
from tuner.host.session import EngineSession, Limits
from tuner.host.settings import TunerSettings

_FILE_SHARE = 1024**3
"""Bytes by which a prepared model may exceed the original, as folding constants can enlarge it."""

_BYTES_PER_SECOND = 8 * 1024**2
"""Bytes of a model that give its reader another second."""

_COPIES = 6
"""Copies of a model in memory while it is read, checked, optimized and written."""

_CHECKS = {
    ModelFormat.ONNX: "Check that onnx.checker accepts it and that ONNX Runtime loads it",
    ModelFormat.IRMODULE: "Check that tvm.ir.load_json of TVM 0.27 reads it",
}


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A model with static shapes and folded constants, as engines read it."""

    path: Path
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: dict[str, int]
    folded: bool
    memory_bytes: int | None = None
    """Memory that engines may use for the model; None without a limit by model."""


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """An equivalent of a prepared model that compilers optimize better."""

    path: Path | None
    """None if nothing could be rewritten."""
    applied: dict[str, int]
    """Number of changed places by rewriting."""
    undone: dict[str, str]
    """Reasons for abandoned rewritings."""

    @classmethod
    def of(cls, answer: Mapping[str, Any], path: Path) -> Rewritten:
        applied = {str(name): int(count) for name, count in answer["applied"].items()}
        return cls(path=path if applied else None, applied=applied, undone=dict(answer["undone"]))


@dataclass(frozen=True, kw_only=True)
class Inspector:
    """Reads models of one format with the corresponding engine; each call starts a process."""

    format: ModelFormat = ModelFormat.ONNX
    spec: EngineSpec
    python: Path
    memory_bytes: int = 4 * 1024**3
    """Limit of address space, in addition to copies of the model."""
    seconds: float = 60.0
    """Time limit of a call, in addition to time for the model's bytes; also the limit of CPU time on each core."""
    memory_factor: float = 0.0
    """Memory that engines may use for a model, as a multiple of what preparing it needs; 0 for no limit."""
    log_path: Path | None = None
    home: Path | None = None
    hidden: tuple[str, ...] = ()
    """Folders hidden from the process in addition to those hidden from all engines, except for the files of
    the request."""
    canceled: Callable[[], bool] | None = None
    """Whether to give up, polled during a call, which then raises Canceled."""

    @classmethod
    def installed(
        cls,
        model_format: ModelFormat,
        home: Path,
        settings: TunerSettings,
        *,
        log_path: Path | None = None,
        hidden: tuple[str, ...] = (),
        canceled: Callable[[], bool] | None = None,
    ) -> Inspector:
        """Create an inspector with the engine installed in a home folder. Raises EngineNotInstalled."""
        spec = catalogue.get(model_format.reader)
        return cls(
            format=model_format,
            spec=spec,
            python=environments.interpreter(spec, home),
            memory_bytes=settings.inspect_memory_mb * 1024**2,
            seconds=settings.inspect_seconds,
            memory_factor=settings.engine_memory_factor,
            log_path=log_path,
            home=home,
            hidden=hidden,
            canceled=canceled,
        )

    def inspect(self, path: Path) -> ModelFacts:
        """Read a model's facts. Raises EngineStartFailed, and InvalidModel also if reading crashes, hangs or
        exceeds the memory limit."""
        return _facts(self._ask(path, "inspect", {"path": str(path.absolute())}), self.format)

    def inspect_rows(self, path: Path) -> DataFacts:
        """Read what a data set holds. Raises EngineStartFailed, and InvalidDataSet also if reading crashes, hangs or
        exceeds the memory limit."""
        try:
            answer = self._ask(path, "inspect_rows", {"path": str(path.absolute())})
        except errors.InvalidModel as error:
            # The process has ended: the engine refuses files of rows as data sets.
            reason = error.message.partition(": ")[2]
            message = f"reading the data set failed: {reason}"
            raise errors.InvalidDataSet(message, hint="Supply fewer rows.", details=error.details) from error
        return DataFacts(arrays=models.tensor_specs(answer["arrays"]), rows=int(answer["rows"]))

    def prepare(self, path: Path, input_shapes: Mapping[str, Sequence[int]], out_path: Path) -> Prepared:
        """Write the model with these shapes. Raises ShapeRequired, ShapeMismatch, and as ``inspect``."""
        shapes = {name: list(shape) for name, shape in input_shapes.items()}
        params = {"path": str(path.absolute()), "input_shapes": shapes, "out_path": str(out_path.absolute())}
        answer = self._ask(path, "prepare", params)
        return Prepared(
            path=out_path,
            inputs=models.tensor_specs(answer["inputs"]),
            outputs=models.tensor_specs(answer["outputs"]),
            operators=dict(answer["operators"]),
            folded=bool(answer["folded"]),
            memory_bytes=int(answer["memory_bytes"] * self.memory_factor) if self.memory_factor else None,
        )

    def rewrite(self, path: Path, lanes: int, out_path: Path) -> Rewritten:
        """Rewrite a prepared model for vectors of ``lanes`` lanes. Raises as ``inspect``."""
        params = {"path": str(path.absolute()), "lanes": lanes, "out_path": str(out_path.absolute())}
        return Rewritten.of(self._ask(path, "rewrite", params), out_path)

    def make_operator(self, params: Mapping[str, Any], out_path: Path) -> None:
        """Write a model of one operator; see ``tuner.search.operators``. Raises EngineStartFailed and InvalidModel."""
        out_path.touch()
        self._ask(out_path, "make_operator", {**params, "out_path": str(out_path.absolute())})

    def _ask(self, path: Path, method: str, params: dict[str, Any]) -> dict[str, Any]:
        out_path, size = params.get("out_path"), path.stat().st_size
        with self._engine(path, None if out_path is None else Path(out_path)) as engine:
            try:
                return engine.request(method, params, timeout=self._seconds(size), canceled=self.canceled)
            except errors.EngineRequestFailed as error:
                explained = (
                    self._unreadable(error, error.message, size)
                    if failures.needs_memory(error)
                    else failures.explain(error)
                )
                raise explained from None
            except (errors.EngineCrashed, errors.EngineTimeout, errors.EngineSilent) as error:
                raise self._unreadable(error, failures.ending(error), size) from error

    def _seconds(self, size_bytes: int) -> float:
        return self.seconds + size_bytes // _BYTES_PER_SECOND

    def _memory_bytes(self, size_bytes: int) -> int:
        return self.memory_bytes + size_bytes * _COPIES

    def _unreadable(self, error: errors.EngineError, reason: str, size_bytes: int) -> errors.InvalidModel:
        allowed = f"{self._memory_bytes(size_bytes) / 1024**3:.1f} GB and {self._seconds(size_bytes):g} s"
        return errors.InvalidModel(
            f"reading the model failed: {reason}",
            hint=f"{_CHECKS[self.format]} within {allowed}.",
            details={"cause": error.code, "reason": "memory" if failures.needs_memory(error) else "reader_ended"},
        )

    def limits(self, size_bytes: int) -> Limits:
        """Return the limits of a process that reads a model of ``size`` bytes."""
        return Limits(
            memory_bytes=self._memory_bytes(size_bytes),
            cpu_seconds=int(self._seconds(size_bytes) * 4) + 10,
            file_bytes=size_bytes * 2 + _FILE_SHARE,
            offline=True,
        )

    @contextmanager
    def _engine(self, path: Path, out_path: Path | None) -> Iterator[Engine]:
        written = () if out_path is None else (str(out_path.absolute().parent),)
        shown = (str(path.absolute()), *written)
        limits = replace(self.limits(path.stat().st_size), hidden=self.hidden, shown=shown, writable=written)
        with tempfile.TemporaryDirectory(prefix="tunesmith-inspect-") as scratch:
            log = self.log_path or Path(scratch) / "engine.log"
            with EngineSession.start(
                self.spec, self.python, log_path=log, home=self.home, limits=limits, canceled=self.canceled
            ) as session:
                yield session


def _facts(answer: Mapping[str, Any], model_format: ModelFormat) -> ModelFacts:
    return ModelFacts(
        inputs=models.tensor_specs(answer["inputs"]),
        outputs=models.tensor_specs(answer["outputs"]),
        opset=int(answer["opset"]),
        ir_version=int(answer["ir_version"]),
        operators=dict(answer["operators"]),
        parameters=int(answer["parameters"]),
        format=model_format,
    )
