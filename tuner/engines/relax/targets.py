"""TVM targets for CUDA and for the CPUs supported by this TVM's LLVM."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import tvm
from tvm.target import codegen

from tuner.engines.runtime.targets import check_known, known_cpus, native_cpu, refused, unknown

KINDS = ("llvm", "cuda")
_SHARED_MEMORY_BYTES = 49152
_REGISTERS = 65536
_THREADS_PER_BLOCK = 1024


def resolve(text: str, threads: int) -> Any:
    """Return the ``tvm.target.Target`` of a target in TVM 0.19's syntax. Raises EngineFailure ``unknown_target``.

    TVM 0.27 accepts dictionaries only. A CUDA target gets this CPU as its host, and the per-block limits that every GPU
    since compute capability 5.0 supports, which bound schedules built without a GPU.
    """
    kind, *options = text.split() or [""]
    given = dict(_option(text, option) for option in options)
    if kind == "llvm":
        return _checked(text, _create(text, _llvm(given, threads)))
    if kind == "cuda":
        host = _create(text, _llvm({"mcpu": native_cpu(tvm)}, threads))
        limits = {
            "max_shared_memory_per_block": _SHARED_MEMORY_BYTES,
            "max_threads_per_block": _THREADS_PER_BLOCK,
            "registers_per_block": _REGISTERS,
        }
        return _create(text, {"kind": "cuda", **limits, **given, "host": host})
    raise unknown(f"this engine compiles for {' and '.join(KINDS)} targets, not {kind!r}")


def is_gpu(target: Any) -> bool:
    return target.kind.name == "cuda"


def lanes(target: Any) -> int | None:
    """Return the number of 32-bit lanes of the vectors of a ``tvm.target.Target``; None for GPUs."""
    return None if is_gpu(target) else lanes_of(target)


def lanes_of(target: Any) -> int:
    """Return the same of a CPU's ``tvm.target.Target``; TVM's own answer for x86 is that of the widest CPUs."""
    if codegen.target_has_features(["avx512bw", "avx512f"], target):
        return 16
    return 8 if codegen.target_has_features("avx2", target) else 4


def leave_out_intrinsics() -> None:
    """Replace ``tvm.s_tir.tensor_intrin`` by an empty package whose modules can still be imported individually.

    TVM imports all of it, for every processor that it supports, before the first search: 11 to 14 s of parsing. Call
    after ``tvm`` is imported; ``load_intrinsics`` imports the modules that a target's schedules need.
    """
    name = "tvm.s_tir.tensor_intrin"
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None or spec.origin is None:
        return
    package = types.ModuleType(name)
    package.__path__ = [str(Path(spec.origin).parent)]
    sys.modules[name] = package


def load_intrinsics(target: Any) -> None:
    """Import the tensor intrinsics used in a target's search spaces."""
    name = "cuda" if is_gpu(target) else _INTRINSICS_OF.get(_machine(target))
    if name:
        importlib.import_module(f"tvm.s_tir.tensor_intrin.{name}")


_INTRINSICS_OF = {"x86_64": "x86", "i686": "x86", "aarch64": "arm_cpu", "arm64": "arm_cpu"}


def _machine(target: Any) -> str:
    return str(target.attrs.get("mtriple") or codegen.llvm_get_system_triple()).split("-")[0]


def _option(text: str, option: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not name.startswith("-") or not equals:
        raise unknown(f"TVM rejects the target {text!r}: {option!r} is not of the form -name=value")
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
        raise refused(text, error) from error


def _checked(text: str, target: Any) -> Any:
    cpu = target.attrs.get("mcpu")
    if cpu is not None:
        check_known(tvm, "CPU", str(cpu), known_cpus(tvm, target), f" (target {text!r})")
    return target
