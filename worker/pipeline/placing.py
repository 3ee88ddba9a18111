"""From what a request says to what this worker compiles for and measures on."""

from __future__ import annotations

import difflib
from typing import Any

from domain import errors
from domain.jobs import JobRequest, Placement
from domain.targets import NATIVE, Target, Toolchain, check_text
from tuner import hostinfo


def resolve(request: JobRequest, hello: dict[str, Any]) -> Placement:
    """``hello`` is the compiling engine's. Raises UnknownTarget."""
    device = hostinfo.device(request.threads)
    target = Target(text=_text(check_text(request.target), hello), threads=device.threads)
    return Placement(target=target, device=device, toolchain=toolchain(hello))


def toolchain(hello: dict[str, Any]) -> Toolchain:
    facts = hello["toolchain"]
    return Toolchain(engine=str(facts["engine"]), tvm=str(facts["tvm"]), llvm=str(facts["llvm"]))


def native_text(hello: dict[str, Any]) -> str:
    return f"llvm -mcpu={hello['mcpu']}"


def _text(text: str, hello: dict[str, Any]) -> str:
    if text == NATIVE:
        return native_text(hello)
    kind, *options = text.split()
    if kind != "llvm":
        raise errors.UnknownTarget(f"the {hello['toolchain']['engine']} engine compiles for 'llvm', not {kind!r}")
    for option in options:
        name, _, value = option.partition("=")
        if name == "-num-cores":
            raise errors.UnknownTarget("a target names no thread count here", hint="Pass threads instead.")
        if name == "-mcpu" and value not in hello["cpus"]:
            near = difflib.get_close_matches(value, hello["cpus"], n=3, cutoff=0.4)
            hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else None
            raise errors.UnknownTarget(
                f"LLVM {hello['toolchain']['llvm']} knows no CPU {value!r}", hint=hint, details={"near_matches": near}
            )
    return text
