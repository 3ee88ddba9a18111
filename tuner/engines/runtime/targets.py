"""CPUs known to TVM's LLVM. ``tvm`` is the package of either release."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tuner.engines.protocol.serving import EngineFailure

_X86 = (
    *("sse3", "ssse3", "sse4.1", "sse4.2", "sse4a", "movbe", "popcnt", "lzcnt", "bmi", "bmi2", "gfni", "tbm", "xop"),
    *("avx", "f16c", "fma", "fma4", "avx2", "avxvnni", "avxifma", "avxneconvert", "avxvnniint8", "avxvnniint16"),
    *("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2"),
    *("avx512vnni", "avx512bitalg", "avx512vpopcntdq", "avx512bf16", "avx512fp16"),
    *("amx-tile", "amx-int8", "amx-bf16", "amx-fp16", "amx-complex", "amx-fp8", "amx-tf32", "amx-avx512", "amx-movrs"),
    *("ccmp", "egpr", "ndd", "nf", "ppx", "push2pop2", "zu"),
)
_AARCH64 = (
    *("fp-armv8", "neon", "fullfp16", "fp16fml", "bf16", "dotprod", "i8mm", "rdm", "complxnum", "lse", "rcpc"),
    *("sve", "sve2", "sve-b16b16", "cssc", "mops"),
)
INSTRUCTIONS = frozenset((*_X86, *_AARCH64))
"""LLVM's features whose instructions compilers emit, as ``library/c/cpu.c`` has them; every CPU with AVX10 has others.

Most other features are tuning hints, matter to kernels of systems, or are for code that asks for them: cryptography,
checksums, streaming matrices.
"""


def foreign(known: Collection[str], host: str, features_of: Callable[[str], Collection[str]]) -> list[str]:
    """Return the ``known`` CPUs whose code uses instructions that ``host`` lacks; empty if ``host`` is unknown."""
    if host not in known:
        return []
    own = _instructions(features_of(host))
    return [name for name in known if not _instructions(features_of(name)) <= own]


def _instructions(features: Collection[str]) -> frozenset[str]:
    return INSTRUCTIONS.intersection(features)


def required_features(tvm: Any, target: Any, host_flags: Collection[str]) -> list[str]:
    """Return LLVM's names of the features that code for a target may use; ``host_flags`` are those of /proc/cpuinfo.

    LLVM knows a CPU by its model and counts features that a virtual machine hides. Code for this machine's own CPU is
    verified here, so it does not use what is missing here.
    """
    features = sorted(map(str, tvm.target.codegen.llvm_get_cpu_features(target)))
    if "mtriple" in target.attrs or target.attrs.get("mcpu") != native_cpu(tvm):
        return features
    own = {_ALIASES.get(flag, re.sub("[^a-z0-9]", "", flag)) for flag in host_flags}
    return [name for name in features if re.sub("[^a-z0-9]", "", name) in own]


_ALIASES = {"pni": "sse3", "abm": "lzcnt", "bmi1": "bmi"}
"""Linux's names of features for which LLVM has another word."""


def host_flags() -> list[str]:
    """Return the flags of this machine's first processor; empty where Linux lists none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    return next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])


def llvm_version(tvm: Any) -> str:
    return str(tvm.target.codegen.llvm_version_major())


def native_cpu(tvm: Any) -> str:
    """Return LLVM's name of the CPU that this process runs on."""
    return str(tvm.target.codegen.llvm_get_system_cpu())


def known_cpus(tvm: Any, target: Any = None) -> list[str]:
    """Return LLVM's names of the CPUs in a target's family, by default this machine's."""
    return [str(name) for name in tvm.target.codegen.llvm_get_cpu_archlist(target or tvm.target.Target("llvm"))]


def foreign_cpus(tvm: Any) -> list[str]:
    """Return the known CPUs whose code does not run on this host."""

    def features_of(name: str) -> set[str]:
        target = tvm.target.Target({"kind": "llvm", "mcpu": name})
        return set(map(str, tvm.target.codegen.llvm_get_cpu_features(target)))

    return foreign(known_cpus(tvm), native_cpu(tvm), features_of)


def check_known(tvm: Any, noun: str, name: str, known: Collection[str], place: str = "") -> None:
    """Raise EngineFailure ``unknown_target`` with near matches unless ``name`` is known; ``place`` ends the message."""
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        raise unknown(f"LLVM {llvm_version(tvm)} does not know {noun} {name!r}{place}", near)


def refused(text: str, error: Exception) -> EngineFailure:
    """Return EngineFailure ``unknown_target`` for any error of TVM's target parser: TVMError, ValueError, TypeError."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return unknown(f"TVM rejects the target {text!r}: {lines[-1][:300] if lines else type(error).__name__}")


def unknown(message: str, near: Collection[str] = ()) -> EngineFailure:
    hint = f"Did you mean {' or '.join(near)}?" if near else None
    return EngineFailure("unknown_target", message, hint=hint, details={"near_matches": list(near)})
