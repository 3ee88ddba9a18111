"""The compiled bundle with its evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from domain.digests import ArtifactDigest, ModelDigest

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
    ci_low: float | None = None
    ci_high: float | None = None
    """Bounds of a 95 % confidence interval of the median."""


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
    top1: float | None = None
    """Share of rows whose largest element is at the reference's place; None where that says nothing."""
    not_finite: int = 0
    """Elements that are NaN or infinite where the reference is finite."""
    least_top1: float | None = None
    """The share of ``top1`` that was asked for; None where any will do."""
    not_compared: bool = False
    """The reference has no finite number there, on any input: whatever agrees with that proves nothing."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    variant: Variant
    seeds: tuple[int, ...]
    outputs: tuple[OutputError, ...]
    precision: str = "f32"
    """Precision of the build, which decides the tolerances."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Kind of values that each input was given: ``image``, ``ids``, ``mask``, ``bytes``, ``uniform``…"""

    @property
    def passed(self) -> bool:
        """Every output agrees, and at least one of them was compared."""
        return self.proves and all(output.passed for output in self.outputs)

    @property
    def proves(self) -> bool:
        """Whether anything was compared at all."""
        return any(not output.not_compared for output in self.outputs)


@dataclass(frozen=True, kw_only=True)
class FailedTask:
    """A tuning task without a valid trial."""

    position: int
    name: str
    failures: dict[str, int]
    """``TrialError`` to count."""
    hint: str


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A build that competed for publication."""

    name: str
    """``untuned relay``, ``rewritten``, ``autotvm``, ``autotvm, operators alone``, ``metaschedule NCHW``…"""
    tuner: str | None
    engine: str
    precision: str = "f32"
    rewritten: bool = False
    records: int = 0
    trials: int = 0
    """Trials of this job spent on it."""
    seconds_tuned: float = 0.0
    seconds: float | None = None
    """Median seconds per run in the benchmark, as in ``timings``; None of a build that was not in it."""
    verified: bool = False
    verdict: str = ""
    """Why it was rejected, or that it won."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a benchmark was measured under."""

    device: str
    threads: int
    governor: str | None = None
    """The kernel's frequency governor; None where it does not tell."""
    megahertz: tuple[float, float] | None = None
    """Lowest and highest clock of the cores seen."""
    load: float | None = None
    """Runnable programs beside ours, mean over the benchmark."""
    drift: float | None = None
    """Largest change of the calibration kernel's time, 0.03 is 3 %."""
    attempts: int = 1
    """Number of benchmarks run until one was quiet enough."""
    noisy: bool = False
    """Even the quietest attempt was: the comparison round by round holds, the milliseconds are rough."""
    reasons: tuple[str, ...] = ()
    """What was noisy."""


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
    precision: str = "f32"
    """Of the published variant."""
    portfolio: tuple[Contender, ...] = ()
    """Every build that raced: those of the benchmark, the fastest first, then the others as they came in."""
    conditions: Conditions | None = None


@dataclass(frozen=True, kw_only=True)
class Artifact:
    id: str
    digest: ArtifactDigest
    """sha256 of the bundle's bytes, hex; also its strong ETag."""
    size_bytes: int
    job_id: str
    model_digest: ModelDigest
    input_shapes: dict[str, tuple[int, ...]]
    target: str
    device_key: str
    toolchain: str
    precision: str
    report: Report
    bundle_format: str = "shared"
    verified: bool = True
    created_at: datetime
    deleted_at: datetime | None = None
    """Since then its bytes are not to be had any more."""
