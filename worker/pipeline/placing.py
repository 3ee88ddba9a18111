"""From what a request says to what this worker compiles for and measures on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domain import errors, placing
from domain.jobs import JobRequest
from domain.placing import Host
from domain.targets import Device, Target, Toolchain, kind_of
from tuner import hostinfo

Hello = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Place:
    target: Target
    device: Device
    engines: tuple[str, ...]
    """Names of those that compile for the target."""


def resolve(request: JobRequest, hellos: Mapping[str, Hello]) -> Place:
    """``hellos`` by engine, the preferred one first. Raises UnknownTarget, UnsupportedTarget, InvalidOption."""
    target, device = placing.resolve(request, _host(request, list(hellos.values())))
    refusals = {name: _refusal(target.text, hello) for name, hello in hellos.items()}
    engines = tuple(name for name, refusal in refusals.items() if refusal is None)
    for refusal in refusals.values():
        if refusal is not None and not engines:
            raise refusal
    return Place(target=target, device=device, engines=engines)


def toolchain(hello: Hello) -> Toolchain:
    facts = hello["toolchain"]
    return Toolchain(engine=str(facts["engine"]), tvm=str(facts["tvm"]), llvm=str(facts["llvm"]))


def native_text(hello: Hello) -> str:
    return f"llvm -mcpu={hello['mcpu']}"


def foreign_cpus(hellos: Iterable[Hello]) -> tuple[str, ...]:
    return tuple(sorted({str(name) for hello in hellos for name in hello.get("foreign_cpus", ())}))


def _host(request: JobRequest, hellos: Sequence[Hello]) -> Host:
    """This host; its GPUs are looked for where the request needs one."""
    return Host(
        native=native_text(hellos[0]),
        cpu=hostinfo.device(),
        accelerators=hostinfo.accelerators() if kind_of(request.target) == "cuda" else (),
        foreign_cpus=foreign_cpus(hellos),
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
