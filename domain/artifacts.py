"""The compiled bundle with its evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

ONNX_RUNTIME = "ONNX Runtime"
PLAIN_BUILD = "the module's own unscheduled build"
"""Names of references. ONNX Runtime runs no IRModules."""


class Variant(StrEnum):
    REFERENCE = "reference"  # ONNX Runtime, or a module's plain build; compared with, never published
    UNTUNED = "untuned"
    TUNED = "tuned"


@dataclass(frozen=True, kw_only=True)
class Timing:
    """End-to-end latency of one variant, in seconds per run, from one interleaved benchmark."""

    samples: tuple[float, ...]
    mean: float
    median: float
    p90: float
    p99: float
    min: float
    max: float
    std: float


@dataclass(frozen=True, kw_only=True)
class OutputError:
    """How far one output is from the reference's, worst over all seeded inputs."""

    output: str
    dtype: str
    max_abs: float
    max_rel: float
    """Relative to the largest magnitude in the reference output."""
    atol: float
    rtol: float
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Verification:
    variant: Variant
    seeds: tuple[int, ...]
    outputs: tuple[OutputError, ...]
    precision: str = "f32"
    """What the build computes with, which decides the tolerances."""

    @property
    def passed(self) -> bool:
        return bool(self.outputs) and all(output.passed for output in self.outputs)


@dataclass(frozen=True, kw_only=True)
class FailedTask:
    """A tuning task of which no trial was valid."""

    position: int
    name: str
    failures: dict[str, int]
    """``TrialError`` to count."""
    hint: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """The comparison a job ends with."""

    timings: dict[Variant, Timing]
    verifications: dict[Variant, Verification]
    published: Variant
    speedup_over_untuned: float
    """Ratio of medians; 1.0 when untuned itself is published."""
    speedup_over_reference: float | None
    """None where the reference cannot run: on a device behind RPC, a GPU, or nowhere at all."""
    summary: str
    """One line that says plainly what was gained, or that nothing was."""
    engines: dict[Variant, str] = field(default_factory=dict)
    """Toolchain identity of each compiled variant."""
    choice: tuple[str, ...] = ()
    """Why this engine and this tuner: one sentence for each that was considered."""
    failed_tasks: tuple[FailedTask, ...] = ()
    compared_with: str = ONNX_RUNTIME
    """What the reference is."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    id: str
    digest: str
    """sha256 of the bundle's bytes, hex; also its strong ETag."""
    size_bytes: int
    job_id: str
    model_digest: str
    input_shapes: dict[str, tuple[int, ...]]
    target: str
    device_key: str
    toolchain: str
    precision: str
    report: Report
    bundle_format: str = "shared"
    verified: bool = True
    created_at: datetime
