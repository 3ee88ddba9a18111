"""Artifacts: compiled bundles with their evidence."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from domain.digests import ArtifactDigest, ModelDigest
from domain.sizes import Size

LARGEST_ERROR = 1e308
"""Stands for an error that is no finite number: JSON has no NaN and no infinity."""
ONNX_RUNTIME = "ONNX Runtime"
PLAIN_BUILD = "the module's own unscheduled build"
"""Names of references. ONNX Runtime does not run IRModules."""


PART = "part"
"""Bundle format of an artifact that is one size of another bundle, and not offered alone."""


class Variant(StrEnum):
    REFERENCE = "reference"  # ONNX Runtime, or a module's plain build; compared with, never published
    UNTUNED = "untuned"
    TUNED = "tuned"
    ONNXRUNTIME = "onnxruntime"  # ONNX Runtime with other options or another model than the reference has
    OPENVINO = "openvino"

    def title(self, reference: str = ONNX_RUNTIME) -> str:
        """Return a name for tables; ``reference`` is that of the reference."""
        return {
            Variant.REFERENCE: reference,
            Variant.ONNXRUNTIME: f"{ONNX_RUNTIME} with chosen options",
            Variant.OPENVINO: "OpenVINO",
        }.get(self, f"TVM, {self}")


class Runtime(StrEnum):
    """Programs that may run a published bundle."""

    TVM = "tvm"  # what was compiled: the bundle's library
    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"


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
    """Bounds of a 95 % confidence interval of the median over processes, if there were several."""
    processes: int = 1
    """Processes of the build that were timed one after another; the samples are in their order."""
    per_process: tuple[int, ...] = ()
    """Samples of each process; empty in reports of earlier releases."""


def speedup(of: Timing, over: Timing) -> float:
    """Return how many times as fast a build is as another one, by the timings of one benchmark.

    The median ratio of samples at equal positions, which belong to the same round: what slows both down cancels out.
    The ratio of medians if not every sample has a counterpart.
    """
    if not of.samples or len(of.samples) != len(over.samples):
        return over.median / of.median
    return statistics.median(theirs / ours for ours, theirs in zip(of.samples, over.samples, strict=True))


@dataclass(frozen=True, kw_only=True)
class OutputError:
    """Error of one output compared with the reference, the maximum over all inputs."""

    output: str
    dtype: str
    max_abs: float
    max_rel: float
    """Relative to the largest magnitude in the reference output."""
    atol: float
    rtol: float
    """The allowed error is the sum of ``atol`` and ``rtol`` times the largest magnitude. In f32, ``rtol`` is larger if
    the reference's own rounding error is."""
    passed: bool
    top1: float | None = None
    """Share of rows whose largest element is at the same place as in the reference; None if not meaningful."""
    not_finite: int = 0
    """Elements that are NaN or infinite where the reference is finite."""
    least_top1: float | None = None
    """The required share of ``top1``; None without a requirement."""
    not_compared: bool = False
    """Whether no element was compared: on every input, the reference's output is empty or has no finite number."""
    empty: bool = False
    """Whether the reference's output has no elements on any input. Builds agree on that much, and it proves little."""
    rounding: float | None = None
    """The reference's own rounding error, estimated and relative as ``max_rel`` is; None if it was not estimated."""
    ties: int = 0
    """Elements where the reference itself decides a tie one way or the other, and the build one of these ways."""
    rms: float | None = None
    """Root mean square of the error in the part closest to its limit, relative to the output's; may be None, too."""
    rms_limit: float | None = None
    part: str | None = None
    """That part, such as ``index 3 of axis 1``; None for the whole output."""
    within: float | None = None
    """Share of the user's rows, or of a classifier's vectors in them, without an element beyond the limit; None where
    every element must be within it."""
    least_within: float | None = None
    """The required share."""
    fault: str | None = None
    """Why the error is no number, such as ``NaN`` or ``wrong shape: 1×4 instead of 1×3``; None if it is one."""

    @property
    def found(self) -> str:
        """Describe the error: ``off by 0.17 % of its largest magnitude``, or ``NaN``."""
        if self.fault or self.max_abs >= LARGEST_ERROR:
            counted = f" in {self.not_finite} elements" if self.not_finite else ""
            return (self.fault or "NaN, infinite or of a wrong shape") + counted
        if self._misses_top1:
            return f"top-1 agreement {self.top1:.1%}"
        if self._misses_rows:
            beyond = 1 - (self.within or 0.0)
            return f"off by more than {_share(self.rtol)} of its largest magnitude in {beyond:.1%} of rows"
        if self._misses_rms:
            return f"off by {_share(self.rms or 0.0)} of its root mean square{f' at {self.part}' if self.part else ''}"
        return f"off by {_share(self.max_rel)} of its largest magnitude" if self.rtol else f"off by {self.max_abs:.3g}"

    @property
    def allowed(self) -> str:
        """Describe the limit: ``0.05 %``."""
        if self._misses_top1:
            return f"at least {self.least_top1:.1%}"
        if self._misses_rows:
            return f"at most {1 - (self.least_within or 0.0):.1%}"
        if self._misses_rms:
            return _share(self.rms_limit or 0.0)
        return _share(self.rtol) if self.rtol else f"{self.atol:.3g}"

    @property
    def _misses_top1(self) -> bool:
        return self.top1 is not None and self.least_top1 is not None and self.top1 < self.least_top1

    @property
    def _misses_rows(self) -> bool:
        return self.within is not None and self.least_within is not None and self.within < self.least_within

    @property
    def _misses_rms(self) -> bool:
        """Whether only the root mean square of a part is beyond its limit."""
        beyond = self.rms is not None and self.rms_limit is not None and self.rms > self.rms_limit
        return beyond and not self.fault and self.max_rel <= self.rtol


def _share(value: float) -> str:
    return f"{value:.3g} times" if value > 10 else f"{value * 100:.2g} %"


@dataclass(frozen=True, kw_only=True)
class WorstRow:
    """A run of the user's rows with one of the largest errors."""

    row: int
    """Index of the run's first row in the data set."""
    output: str
    max_rel: float
    """As in OutputError."""


@dataclass(frozen=True, kw_only=True)
class LabelledAccuracy:
    """Accuracy against the user's labels, of the reference and of a build, on the same rows."""

    output: str
    measure: str
    """``top1``: share of rows whose largest element is the label's; ``error``: mean absolute error."""
    count: int
    """Rows, or elements for ``error``."""
    reference: float
    build: float
    reference_top5: float | None = None
    build_top5: float | None = None
    """None with five classes or fewer, and for ``error``."""

    @property
    def lost(self) -> float:
        """Share of rows that the build gets wrong beyond those of the reference; 0 for ``error``."""
        return self.reference - self.build if self.measure == "top1" else 0.0


@dataclass(frozen=True, kw_only=True)
class RowsCompared:
    """Comparison of a build with the reference on rows of the user's data set."""

    rows: int
    elements: int
    """Of all outputs."""
    worst: tuple[WorstRow, ...]
    """The largest errors, the largest first."""
    labelled: LabelledAccuracy | None = None
    """None without labels."""


@dataclass(frozen=True, kw_only=True)
class DataUse:
    """The data set of a job, and what its rows were used for."""

    id: str
    name: str
    digest: str
    """sha256 of the ``.npz`` file, hex."""
    rows: int
    calibration_rows: int = 0
    """Rows that chose the layers of int8 and bf16, and the ranges of int8; none of them judged."""
    judging_rows: int = 0


MOST_LOST = 0.01
"""Share of labelled rows that a build of reduced precision may get wrong beyond those of the reference."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    variant: Variant
    seeds: tuple[int, ...]
    """Of the seeded inputs; none if only rows of a data set were compared."""
    outputs: tuple[OutputError, ...]
    precision: str = "f32"
    """Precision of the build, which determines the tolerances."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Kind of values that each input was given: ``image``, ``ids``, ``mask``, ``bytes``, ``uniform``…"""
    rows: RowsCompared | None = None
    """None without a data set."""

    @property
    def passed(self) -> bool:
        """Whether every output agrees, and not all of them lack finite numbers."""
        return self.proves and all(output.passed for output in self.outputs) and self.keeps_labels

    @property
    def keeps_labels(self) -> bool:
        """Whether a build of reduced precision loses at most ``MOST_LOST`` of the labelled rows."""
        labelled = self.rows.labelled if self.rows else None
        # One of a hundred rows, in floating point, is more than 0.01.
        return labelled is None or self.precision == "f32" or labelled.lost < MOST_LOST + 1e-9

    @property
    def proves(self) -> bool:
        """Whether any output was compared, or is empty in the reference as in the build."""
        return any(output.empty or not output.not_compared for output in self.outputs)

    @property
    def is_complete(self) -> bool:
        """Whether every output was compared and agrees. Only such a build is called verified."""
        return self.passed and not any(output.not_compared for output in self.outputs)


@dataclass(frozen=True, kw_only=True)
class FormatVerification:
    """Verification of the file of the bundle's format that TVM loads, apart from that of the library."""

    file: str
    """``mod.so``, ``mod.tar`` or ``mod.a``."""
    verification: Verification | None = None
    """Of the published build, as TVM runs it from that file; None if it was not run."""
    not_run: str = ""
    """Why it was not run; empty if it was."""

    @property
    def outcome(self) -> str:
        """Describe the outcome in a sentence."""
        if self.verification is None:
            return f"{self.file} was not run: {self.not_run}."
        return f"{self.file}, run by TVM, {'is verified' if self.verification.passed else 'gives wrong results'}."


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
    """``untuned relay``, ``rewritten``, ``autotvm``, ``autotvm, operators alone``, ``autotvm, mixed with ansor``,
    ``metaschedule NCHW``…"""
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
    """Why it was rejected, or that it was published."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions of a benchmark."""

    device: str
    threads: int
    governor: str | None = None
    """The kernel's frequency governor; None if unknown."""
    megahertz: tuple[float, float] | None = None
    """Lowest and highest measured clock of a core; None if it cannot be measured."""
    load: float | None = None
    """Runnable programs other than ours, mean over the benchmark."""
    drift: float | None = None
    """Largest change of the calibration kernel's time; 0.03 is 3 %."""
    attempts: int = 1
    """Number of benchmarks run until one was quiet, or its speedups were known precisely."""
    noisy: bool = False
    """Whether the machine was busy: times are approximate; speedups are as precise as their intervals."""
    reasons: tuple[str, ...] = ()
    """What was noisy."""


_WIDEST_FIRST = ("f32", "fp16", "bf16", "int8")
"""Precisions by how close their results are to those of float32; the significands of bf16 are shorter than fp16's."""


def narrowest(precisions: Iterable[str]) -> str:
    """Return the precision whose results may be the farthest from those of float32."""
    return max(precisions, key=_WIDEST_FIRST.index)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The final comparison of a job."""

    timings: dict[Variant, Timing]
    verifications: dict[Variant, Verification]
    published: Variant
    speedup_over_untuned: float
    """See ``speedup``; 1.0 when untuned itself is published."""
    speedup_over_reference: float | None
    """None if the reference cannot run there: on a device behind RPC, on a GPU, or if nothing runs."""
    speedup_over_untuned_interval: tuple[float, float] | None = None
    speedup_over_reference_interval: tuple[float, float] | None = None
    """Bounds of 95 % confidence intervals of these ratios; None with few samples, or where there is no such ratio."""
    runtime: Runtime = Runtime.TVM
    """The fastest verified way to run the bundle: another runtime if it is clearly faster than the published build."""
    runtime_variant: Variant | None = None
    """The variant that it was timed as; None for ``tvm``, and in old reports for the reference."""
    runtime_version: str = ""
    """Empty for ``tvm``: ``engines`` has its toolchain."""
    runtime_model: str = ""
    """File of the bundle that it runs: the original, the prepared, the rewritten or the quantized model; empty for
    ``tvm``."""
    runtime_precision: str = "f32"
    """In which that runtime computes."""
    runtime_options: dict[str, str] = field(default_factory=dict)
    """As the runtime names them; its defaults hold for others."""
    summary: str
    """One sentence with the speedup, or that there is none."""
    engines: dict[Variant, str] = field(default_factory=dict)
    """Toolchain identity of each compiled variant."""
    choice: tuple[str, ...] = ()
    """Why this engine and tuner: a sentence for each one considered."""
    failed_tasks: tuple[FailedTask, ...] = ()
    compared_with: str = ONNX_RUNTIME
    """Name of the reference."""
    precision: str = "f32"
    """Precision of the published variant."""
    portfolio: tuple[Contender, ...] = ()
    """All candidate builds: those of the benchmark, fastest first, then the others in order of completion."""
    conditions: Conditions | None = None
    emulator: str = ""
    """What ran the builds for the verification, such as ``qemu-aarch64``; empty if their target did, or nothing."""
    format_verification: FormatVerification | None = None
    """None if the bundle's format has no file for TVM."""
    data: DataUse | None = None
    """None without a data set."""
    sizes: tuple[SizeReport, ...] = ()
    """Of a bundle with several entry points; its own ``timings`` are means over them, by the expected runs."""

    @property
    def is_verified(self) -> bool:
        """Whether every output of the published variant was compared and agrees."""
        found = self.verifications.get(self.published)
        return found is not None and found.is_complete

    @property
    def narrowest(self) -> str:
        """Return the precision in which the bundle computes in its runtime or without it, whichever is narrower."""
        return narrowest((self.precision, self.runtime_precision))

    @property
    def fastest(self) -> Variant:
        """Return the variant whose time is that of the bundle in its runtime."""
        return self.published if self.runtime is Runtime.TVM else self.runtime_variant or Variant.REFERENCE

    @property
    def runtime_speedup_over_untuned(self) -> float | None:
        """Return the speedup of the bundle in its runtime; None without a time of it or of untuned."""
        if Variant.UNTUNED not in self.timings or self.fastest not in self.timings:
            return None
        return speedup(self.timings[self.fastest], self.timings[Variant.UNTUNED])


@dataclass(frozen=True, kw_only=True)
class SizeReport:
    """One entry point of a bundle with several."""

    size: Size
    job: str
    """Id of the job that tuned it."""
    report: Report


@dataclass(frozen=True, kw_only=True)
class Artifact:
    id: str
    digest: ArtifactDigest
    """sha256 of the bundle's bytes in hex; also its strong ETag."""
    size_bytes: int
    job_id: str
    model_digest: ModelDigest
    input_shapes: dict[str, tuple[int, ...]]
    """Of a bundle of several sizes, with 0 for the dimensions that vary."""
    target: str
    device_key: str
    toolchain: str
    precision: str
    report: Report
    bundle_format: str = "shared"
    """As in ``BundleFormat``, or ``PART``."""
    sizes: tuple[Size, ...] = ()
    """Entry points of a bundle of several sizes, in the order of the request."""
    verified: bool = True
    """Whether it was run on its target or an emulator of it, and every output was compared with the reference and
    agrees."""
    created_at: datetime
    deleted_at: datetime | None = None
    """Set at deletion; its bytes are unavailable since then."""
