"""The JSON of a report. Times are seconds."""

from __future__ import annotations

from pydantic import BaseModel, Field

from domain.artifacts import Variant


class Timing(BaseModel):
    """Seconds per run, from one interleaved benchmark."""

    mean: float
    median: float
    p90: float
    p99: float
    min: float
    max: float
    std: float
    ci_low: float | None = Field(description="Bounds of a 95 % confidence interval of the median; null of few samples.")
    ci_high: float | None
    samples: list[float]


class OutputError(BaseModel):
    output: str
    dtype: str
    max_abs: float
    max_rel: float = Field(description="Relative to the largest magnitude in the reference output.")
    atol: float
    rtol: float
    passed: bool
    top1: float | None = Field(
        description="Share of rows whose largest element is at the reference's place; null of what is no classifier's."
    )
    least_top1: float | None = Field(description="The share that was asked for.")
    not_finite: int = Field(description="Elements that are NaN or infinite where the reference's are not.")
    not_compared: bool = Field(
        description="Whether the reference has no finite number there, on any input, so that nothing was compared."
    )


class Verification(BaseModel):
    passed: bool
    precision: str = Field(description="What the build computes with, which decides the tolerances.")
    seeds: list[int]
    inputs: dict[str, str] = Field(description="Kind of values that each input was given: image, ids, mask, …")
    outputs: list[OutputError]


class FailedTask(BaseModel):
    """A tuning task of which no trial was valid."""

    position: int
    name: str
    failures: dict[str, int] = Field(description="What went wrong, to count of trials.")
    hint: str


class Contender(BaseModel):
    """One build that raced for publication."""

    name: str
    tuner: str | None
    engine: str
    precision: str
    rewritten: bool = Field(description="Whether the network was rewritten for compilers before it was built.")
    records: int = Field(description="Tuning records that it was built with.")
    trials: int = Field(description="Trials of this job that searched for it.")
    seconds_tuned: float
    seconds: float | None = Field(description="Median of a run in the benchmark; null of a build that was not in it.")
    verified: bool
    verdict: str = Field(description="Why it was left, or that it won.")


class Conditions(BaseModel):
    """What the benchmark was measured under."""

    device: str
    threads: int
    governor: str | None = Field(description="The kernel's frequency governor; null where it does not tell.")
    megahertz: tuple[float, float] | None = Field(description="Lowest and highest clock of the cores seen.")
    load: float | None = Field(description="Runnable programs beside the service's, mean over the benchmark.")
    drift: float | None = Field(description="Change of a calibration loop's time: 0.03 is 3 %.")
    attempts: int = Field(description="Benchmarks made until one was quiet enough.")
    noisy: bool = Field(description="Even the quietest was not: the comparison holds, the milliseconds are rough.")
    reasons: list[str] = Field(description="What was noisy.")


class Report(BaseModel):
    """The comparison that a job ends with."""

    timings: dict[Variant, Timing]
    verifications: dict[Variant, Verification]
    published: Variant
    speedup_over_untuned: float
    speedup_over_reference: float | None = Field(description="Null where the reference cannot run: behind RPC.")
    summary: str
    engines: dict[Variant, str] = Field(description="Toolchain of each compiled variant.")
    failed_tasks: list[FailedTask]
    choice: list[str] = Field(description="Why this engine and tuner: a sentence for each that was considered.")
    compared_with: str = Field(description="What the reference is: ONNX Runtime, or an IRModule's unscheduled build.")
    precision: str = Field(description="What the published variant computes with.")
    portfolio: list[Contender] = Field(
        description="Every build that raced: those of the benchmark, the fastest first, then the others."
    )
    conditions: Conditions | None = Field(description="Null where nothing was measured on the service's own machine.")
