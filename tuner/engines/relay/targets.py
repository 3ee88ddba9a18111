"""TVM targets for the CPUs that this TVM's LLVM knows."""

from __future__ import annotations

import difflib
from typing import Any

import tvm
from tvm.target import codegen

from tuner.engines.protocol.serving import EngineFailure


def llvm_version() -> str:
    return str(codegen.llvm_version_major())


def native_cpu() -> str:
    """LLVM's name for the CPU that this process runs on."""
    return str(codegen.llvm_get_system_cpu())


def known_cpus(target: Any = None) -> list[str]:
    return [str(name) for name in codegen.llvm_get_cpu_archlist(target or tvm.target.Target("llvm"))]


def resolve(text: str, threads: int) -> Any:
    """The ``tvm.target.Target`` of ``text`` with its thread count. Raises EngineFailure ``unknown_target``."""
    kind, *options = text.split() or [""]
    if kind != "llvm":
        raise _unknown(f"this engine compiles for 'llvm' targets, not {kind!r}", [])
    try:
        target = tvm.target.Target(f"{text} -num-cores={threads}")
    except Exception as error:
        # tvm.error.TVMError, ValueError and TypeError all come out of target parsing.
        raise _unknown(f"TVM refuses the target {text!r}: {_last_line(error)}", []) from error
    cpu = next((option.split("=", 1)[1] for option in options if option.startswith("-mcpu=")), None)
    if cpu is not None:
        cpus = known_cpus(target)
        if cpu not in cpus:
            near = difflib.get_close_matches(cpu, cpus, n=3, cutoff=0.5)
            raise _unknown(f"LLVM {llvm_version()} knows no CPU {cpu!r}", near)
    return target


def _unknown(message: str, near: list[str]) -> EngineFailure:
    hint = f"Did you mean {' or '.join(near)}?" if near else None
    return EngineFailure("unknown_target", message, hint=hint, details={"near_matches": near})


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
