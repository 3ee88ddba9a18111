"""Settings of the host for engines and devices."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pydantic import Field

from process.settings import Settings
from tuner.sandbox.limits import Limits, memory_of_host


def _lock_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"tunesmith-{os.getuid()}"


class TunerSettings(Settings):
    engine_relay_python: Path | None = Field(
        default=None, description="Interpreter to run the relay engine with, such as one with your own TVM build."
    )
    engine_relax_python: Path | None = Field(
        default=None, description="Interpreter to run the relax engine with, such as one with your own TVM build."
    )
    engine_onnx_python: Path | None = Field(
        default=None, description="Interpreter to run the onnx engine (ONNX Runtime) with."
    )
    engine_openvino_python: Path | None = Field(
        default=None, description="Interpreter to run the openvino engine with, such as one with your own OpenVINO."
    )
    engine_plugins: str = Field(
        default="", description="Comma-separated installed Python packages that add operators to the engines."
    )
    engine_plugin_requirements: Path | None = Field(
        default=None,
        description="Requirement file of the packages that `engines install` adds to the relay and relax environments.",
    )
    engine_environment: str = Field(
        default="",
        description="Comma-separated environment variables that engines may see in addition; * matches any characters. "
        "Variables that could hold credentials are hidden unless listed here.",
    )
    engine_writable: str = Field(
        default="",
        description="Comma-separated folders and devices that engines may also write.",
    )
    engine_memory_mb: int = Field(
        default=0,
        ge=0,
        description="Memory limit, in MiB, of one engine process; 0 means three quarters of the "
        "machine's or container's.",
    )
    engine_memory_factor: float = Field(
        default=8.0,
        ge=0,
        description="Memory that a stage may use for a model, as a multiple of what ONNX Runtime needs; 0: any.",
    )
    engine_file_mb: int = Field(default=16384, gt=0, description="Largest file, in MiB, that an engine may write.")
    engine_hello_seconds: float = Field(default=120.0, gt=0, description="Seconds that an engine may take to start.")
    engine_silence_seconds: float = Field(
        default=60.0, gt=0, description="Seconds without a heartbeat after which an engine is killed."
    )
    lock_folder: Path = Field(
        default_factory=_lock_folder,
        description="Folder of the locks that prevent concurrent measurements on one device; must be the same for "
        "every service of one user on one host.",
    )
    inspect_memory_mb: int = Field(
        default=4096, gt=0, description="Limit of the address space, in MiB, for reading one upload."
    )
    inspect_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Time limit, in seconds, for reading one upload; records get another second for each MiB, "
        "models for each 8 MiB.",
    )
    plan_memory_mb: int = Field(
        default=16384, gt=0, description="Limit of the address space, in MiB, of an engine that makes a plan."
    )
    plan_seconds: float = Field(
        default=300.0,
        gt=0,
        description="Time limit, in seconds, of one plan: importing the model and finding its tasks.",
    )

    def engine_limits(self, *, network: bool) -> Limits:
        """Return the limits of engines of jobs; time limits are set for each request."""
        memory = self.engine_memory_mb * 1024**2 or memory_of_host() * 3 // 4
        return Limits(data_bytes=memory, file_bytes=self.engine_file_mb * 1024**2, offline=not network)
