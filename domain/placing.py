"""Resolution of a request on a host, to target and device, for the API and for workers."""

from __future__ import annotations

from dataclasses import dataclass

from domain import errors
from domain.jobs import JobRequest, RunnerKind
from domain.targets import NATIVE, Device, Target, check_text, kind_of, machine_of, option_of

_ELSEWHERE = "Measure on a matching device with runner 'rpc', or build without measuring with runner 'none'."


@dataclass(frozen=True, kw_only=True)
class Host:
    """Targets and devices of a worker's host."""

    native: str
    """Target text of its CPU."""
    cpu: Device
    """With one thread per core."""
    accelerators: tuple[Device, ...] = ()
    foreign_cpus: tuple[str, ...] = ()
    """Names for ``-mcpu`` that LLVM can compile for but this CPU cannot run."""

    @property
    def machine(self) -> str:
        """As ``platform.machine()`` names it: ``x86_64``, ``aarch64``."""
        return self.cpu.key.partition("/")[0]

    def gpus_for(self, text: str) -> list[Device]:
        """Return GPUs that can run code of a cuda target; their keys end in the compute capability, if it is known."""
        wanted = (option_of(text, "-arch") or "").rstrip("a")
        return [gpu for gpu in self.accelerators if gpu.key.endswith((f"/{wanted}", "/unknown"))]

    def is_machine(self, text: str) -> bool:
        """Return whether the host is of the machine in the target's triple, if it has one."""
        triple = option_of(text, "-mtriple")
        return triple is None or machine_of(triple) == machine_of(self.machine)

    def runs_cpu(self, text: str) -> bool:
        """Return whether the CPU has the instructions of the target's CPU, if it names one."""
        return option_of(text, "-mcpu") not in self.foreign_cpus


def resolve(request: JobRequest, host: Host) -> tuple[Target, Device]:
    """Resolve a request. Raises UnknownTarget, UnsupportedTarget for targets that the host cannot run, and
    InvalidOption."""
    device = _device(request, check_text(request.target), host)
    return Target(text=text_for(request, host), threads=device.threads), device


def text_for(request: JobRequest, host: Host) -> str:
    """Return the requested target, or what ``native`` means on the host. Raises UnknownTarget."""
    text = check_text(request.target)
    return host.native if text == NATIVE else text


def check_tracker(request: JobRequest) -> None:
    """Check a request with runner 'rpc' for missing options. Raises InvalidOption and UnsupportedTarget."""
    if request.rpc is None:
        raise errors.InvalidOption(
            "runner 'rpc' needs the address of a tracker and a device key",
            hint='Set rpc: {"tracker": "HOST:PORT", "key": KEY}, or --rpc-tracker and --rpc-key.',
        )
    if request.target == NATIVE:
        raise errors.UnsupportedTarget(
            "target 'native' means the worker's CPU, not a device behind the tracker",
            hint="Name the device's target, such as 'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72'.",
        )
    if request.threads is None:
        raise errors.InvalidOption(
            "the number of cores of devices behind a tracker is unknown",
            hint="Set the number of threads that the model will use: threads (--threads).",
        )


def _device(request: JobRequest, text: str, host: Host) -> Device:
    threads = request.threads or host.cpu.threads
    if request.runner is RunnerKind.RPC:
        check_tracker(request)
        assert request.rpc is not None  # noqa: S101 - checked
        return Device.behind_tracker(request.rpc.tracker, request.rpc.key, threads)
    if request.device is not None:
        return Device.recorded(request.device, threads)
    if request.runner is RunnerKind.NONE and text != NATIVE:
        return Device.none(threads)
    if kind_of(text) == "cuda":
        gpus = host.gpus_for(text)
        if not gpus:
            raise errors.UnsupportedTarget(f"this worker has no GPU that runs {text!r}", hint=_ELSEWHERE)
        return gpus[0].with_threads(threads)
    if not host.is_machine(text):
        raise errors.UnsupportedTarget(
            f"this worker is a {host.machine} and cannot run code for {text!r}", hint=_ELSEWHERE
        )
    if not host.runs_cpu(text):
        raise errors.UnsupportedTarget(
            f"this worker's CPU lacks instructions of {option_of(text, '-mcpu')!r} and cannot run code for {text!r}",
            hint=_ELSEWHERE,
        )
    return host.cpu.with_threads(threads)
