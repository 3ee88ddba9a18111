"""Profiles: where the time of a build goes, operator by operator, beside the reference's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Bound(StrEnum):
    """The limit of the machine that is closer for an operator."""

    COMPUTE = "compute"
    MEMORY = "memory"


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """Speed at which the job's threads together read data of this size again and again."""

    size: int
    """Bytes."""
    speed: float
    """Bytes per second."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Measured limits of the machine at the job's number of threads."""

    flops: float | None
    """Floating-point operations per second in float32; None if it cannot be measured."""
    bandwidths: tuple[Bandwidth, ...] = ()
    """By size, ascending."""


@dataclass(frozen=True, kw_only=True)
class OperatorTime:
    """Kernels of the build and the reference's nodes that compute the same; times are seconds of a run."""

    name: str
    """Of the reference's first node or, if none was matched, of the kernel, or the type of OpenVINO's layers."""
    kernels: tuple[str, ...]
    """Empty for nodes that no kernel was matched with."""
    nodes: tuple[str, ...]
    """``OPERATOR name`` of each; empty for kernels that no node was matched with."""
    seconds: float
    """In place: within runs of the whole network."""
    reference_seconds: float
    alone_seconds: float | None = None
    """Best time of the tuning task by itself; None if none was matched or measured."""
    task: int | None = None
    """Position of that task."""
    flop: float | None = None
    bytes: int | None = None
    """Size of all tensors that it reads and writes."""
    share: float | None = None
    """The least time that the machine's peak allows, divided by ``seconds``."""
    bound: Bound | None = None
    """Which limit sets that least time."""
    layers: tuple[str, ...] = ()
    """``TYPE name`` of each layer of OpenVINO that computes the same."""
    openvino_seconds: float | None = None
    """Time of these layers; None if OpenVINO was not profiled."""

    @property
    def loss(self) -> float:
        """Seconds that the build takes longer than the reference; negative where it is faster.

        OpenVINO's time does not count: few of its layers end where the reference's nodes do.
        """
        return self.seconds - self.reference_seconds


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A build's time by operator.

    The times of ``operators`` and ``outside`` add up to ``seconds``, those of the reference and of OpenVINO likewise.
    """

    variant: str
    """The build: ``tuned`` or ``untuned``."""
    compared_with: str
    """Name of the reference."""
    threads: int
    seconds: float
    """Mean of the quicker half of whole runs, between the profiled ones; the other times are such means, too."""
    reference_seconds: float
    outside: float
    """Seconds of a run outside of its kernels; below zero if the profile's own noise is larger."""
    reference_outside: float
    operators: tuple[OperatorTime, ...]
    """The largest loss first."""
    peak: Peak
    openvino_seconds: float | None = None
    """Of OpenVINO in float32 on the reference's model; None if it was not profiled."""
    openvino_outside: float | None = None
