"""TVM targets for the processors that this TVM's LLVM knows, and for CUDA."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

import tvm
from tvm.target import codegen

from tuner.engines.protocol import cpus
from tuner.engines.protocol.serving import EngineFailure

KINDS = ("llvm", "cuda")
_SHARED_MEMORY_BYTES = 49152
_REGISTERS = 65536
_THREADS_PER_BLOCK = 1024


def llvm_version() -> str:
    return str(codegen.llvm_version_major())


def native_cpu() -> str:
    """LLVM's name for the CPU that this process runs on."""
    return str(codegen.llvm_get_system_cpu())


def known_cpus(target: Any = None) -> list[str]:
    return [str(name) for name in codegen.llvm_get_cpu_archlist(target or tvm.target.Target("llvm"))]


def foreign_cpus() -> list[str]:
    """Those known whose code this host's CPU does not run."""

    def features_of(name: str) -> set[str]:
        return set(map(str, codegen.llvm_get_cpu_features(tvm.target.Target({"kind": "llvm", "mcpu": name}))))

    return cpus.foreign(known_cpus(), native_cpu(), features_of)


def resolve(text: str, threads: int) -> Any:
    """The ``tvm.target.Target`` of a target in TVM 0.19's spelling. Raises EngineFailure ``unknown_target``.

    0.27 takes dictionaries only. A CUDA target gets this CPU as its host, and what every GPU since compute
    capability 5.0 allows a block, which schedules without a GPU at hand are held to.
    """
    kind, *options = text.split() or [""]
    given = dict(_option(text, option) for option in options)
    if kind == "llvm":
        return _checked(text, _create(text, _llvm(given, threads)))
    if kind == "cuda":
        host = _create(text, _llvm({"mcpu": native_cpu()}, threads))
        limits = {
            "max_shared_memory_per_block": _SHARED_MEMORY_BYTES,
            "max_threads_per_block": _THREADS_PER_BLOCK,
            "registers_per_block": _REGISTERS,
        }
        return _create(text, {"kind": "cuda", **limits, **given, "host": host})
    raise _unknown(f"this engine compiles for {' and '.join(KINDS)} targets, not {kind!r}", [])


def is_gpu(target: Any) -> bool:
    return target.kind.name == "cuda"


def lanes(text: str, threads: int) -> int | None:
    """32-bit lanes of a target's vectors; None of a GPU, and of what ``resolve`` refuses."""
    try:
        target = resolve(text, threads)
    except EngineFailure:
        return None
    if is_gpu(target):
        return None
    if codegen.target_has_features(["avx512bw", "avx512f"], target):
        return 16
    return 8 if codegen.target_has_features("avx2", target) else 4


def load_intrinsics(target: Any) -> None:
    """Import the tensor intrinsics that the search spaces of a target name."""
    name = "cuda" if is_gpu(target) else _INTRINSICS_OF.get(_machine(target))
    if name:
        importlib.import_module(f"tvm.s_tir.tensor_intrin.{name}")


_INTRINSICS_OF = {"x86_64": "x86", "i686": "x86", "aarch64": "arm_cpu", "arm64": "arm_cpu"}


def _machine(target: Any) -> str:
    return str(target.attrs.get("mtriple") or codegen.llvm_get_system_triple()).split("-")[0]


def _option(text: str, option: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not name.startswith("-") or not equals:
        raise _unknown(f"TVM refuses the target {text!r}: {option!r} is not of the form -name=value", [])
    return name.removeprefix("-"), value


def _llvm(given: dict[str, str], threads: int) -> dict[str, Any]:
    attributes: dict[str, Any] = {"kind": "llvm", "num-cores": threads, **given}
    if "mattr" in given:
        attributes["mattr"] = given["mattr"].split(",")
    return attributes


def _create(text: str, attributes: dict[str, Any]) -> Any:
    try:
        return tvm.target.Target(attributes)
    except Exception as error:
        # TVMError, ValueError and TypeError all come out of target parsing.
        raise _unknown(f"TVM refuses the target {text!r}: {_last_line(error)}", []) from error


def _checked(text: str, target: Any) -> Any:
    cpu = target.attrs.get("mcpu")
    cpus = known_cpus(target)
    if cpu is not None and cpu not in cpus:
        near = difflib.get_close_matches(str(cpu), cpus, n=3, cutoff=0.5)
        raise _unknown(f"LLVM {llvm_version()} knows no CPU {str(cpu)!r} (target {text!r})", near)
    return target


def _unknown(message: str, near: list[str]) -> EngineFailure:
    hint = f"Did you mean {' or '.join(near)}?" if near else None
    return EngineFailure("unknown_target", message, hint=hint, details={"near_matches": near})


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
