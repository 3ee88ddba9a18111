"""From what a request says to what this worker compiles for and measures on."""

from __future__ import annotations

import difflib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from domain import errors
from domain.jobs import JobRequest, RunnerKind
from domain.targets import NATIVE, Device, Target, Toolchain, check_text, kind_of, machine_of, option_of
from tuner import hostinfo

Hello = Mapping[str, Any]
_ELSEWHERE = "Measure on devices that can, with runner 'rpc', or only build for it, with runner 'none'."


@dataclass(frozen=True, kw_only=True)
class Place:
    target: Target
    device: Device
    engines: tuple[str, ...]
    """Names of those that compile for the target."""


def resolve(request: JobRequest, hellos: Mapping[str, Hello]) -> Place:
    """``hellos`` by engine, the preferred one first. Raises UnknownTarget, UnsupportedTarget, InvalidOption."""
    text = check_text(request.target)
    if text == NATIVE and request.runner is RunnerKind.RPC:
        raise errors.UnsupportedTarget(
            "'native' is this worker's CPU, not the device behind the tracker",
            hint="Name the device's target, such as 'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72'.",
        )
    native = text == NATIVE
    text = native_text(next(iter(hellos.values()))) if native else text
    refusals = {name: _refusal(text, hello) for name, hello in hellos.items()}
    engines = tuple(name for name, refusal in refusals.items() if refusal is None)
    for refusal in refusals.values():
        if refusal is not None and not engines:
            raise refusal
    device = _device(request, text, hellos, native=native)
    return Place(target=Target(text=text, threads=device.threads), device=device, engines=engines)


def toolchain(hello: Hello) -> Toolchain:
    facts = hello["toolchain"]
    return Toolchain(engine=str(facts["engine"]), tvm=str(facts["tvm"]), llvm=str(facts["llvm"]))


def native_text(hello: Hello) -> str:
    return f"llvm -mcpu={hello['mcpu']}"


def _device(request: JobRequest, text: str, hellos: Mapping[str, Hello], *, native: bool) -> Device:
    if request.runner is RunnerKind.RPC:
        return _behind_tracker(request)
    if request.device is not None:
        return Device.recorded(request.device, request.threads or hostinfo.usable_cores())
    if request.runner is RunnerKind.NONE and not native:
        return Device.none(request.threads or hostinfo.usable_cores())
    if kind_of(text) == "cuda":
        return _gpu(text, request.threads)
    _check_runs(text, hellos)
    return hostinfo.device(request.threads)


def _behind_tracker(request: JobRequest) -> Device:
    if request.rpc is None:
        raise errors.InvalidOption("runner 'rpc' needs the address of a tracker and a key")
    if request.threads is None:
        raise errors.InvalidOption(
            "how many cores a device behind a tracker has is not known here",
            hint="Say with how many threads the model will run there: --threads N.",
        )
    return Device.behind_tracker(request.rpc.tracker, request.rpc.key, request.threads)


def _gpu(text: str, threads: int | None) -> Device:
    arch = next((option.partition("=")[2] for option in text.split() if option.startswith("-arch=")), "")
    found = [gpu for gpu in hostinfo.accelerators(threads) if gpu.key.endswith((f"/{arch.rstrip('a')}", "/unknown"))]
    if not found:
        raise errors.UnsupportedTarget(f"this worker has no GPU that runs {text!r}", hint=_ELSEWHERE)
    return found[0]


def _check_runs(text: str, hellos: Mapping[str, Hello]) -> None:
    triple, cpu, own = option_of(text, "-mtriple"), option_of(text, "-mcpu"), platform.machine().lower()
    if triple is not None and machine_of(triple) != machine_of(own):
        raise errors.UnsupportedTarget(f"this worker is a {own} and cannot run code for {text!r}", hint=_ELSEWHERE)
    if cpu is not None and any(cpu in hello.get("foreign_cpus", ()) for hello in hellos.values()):
        raise errors.UnsupportedTarget(
            f"this worker's CPU lacks instructions of {cpu!r} and cannot run code for {text!r}", hint=_ELSEWHERE
        )


def _refusal(text: str, hello: Hello) -> errors.TunesmithError | None:
    """Why that engine does not compile for the target, or None."""
    kind, *options = text.split()
    kinds = hello.get("kinds", ["llvm"])
    if kind not in kinds:
        name = hello["toolchain"]["engine"]
        return errors.UnsupportedTarget(f"the {name} engine compiles for {' and '.join(kinds)}, not for {kind!r}")
    for option in options:
        name, _, value = option.partition("=")
        # The list is of this machine's own architecture.
        if name == "-mcpu" and "-mtriple=" not in text and value not in hello["cpus"]:
            near = difflib.get_close_matches(value, hello["cpus"], n=3, cutoff=0.4)
            hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else None
            return errors.UnknownTarget(
                f"LLVM {hello['toolchain']['llvm']} knows no CPU {value!r}", hint=hint, details={"near_matches": near}
            )
    return None
