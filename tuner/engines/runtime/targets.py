"""CPUs known to TVM's LLVM. ``tvm`` is the package of either release."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tuner.engines.protocol.serving import EngineFailure

_INSTRUCTIONS = re.compile(
    # x86
    r"(?:s?sse|avx|fma|xop|f16c|tbm|bmi|lzcnt|popcnt|movbe|gfni|vaes|vpclmul|adx|amx-|egpr|ndd|ccmp|nf$|ppx|push2|zu$)"
    # aarch64
    r"|(?:fp-armv8|neon|sve|sme|dotprod|i8mm|bf16|fullfp16|fp16fml|lse|rcpc|rdm|complxnum|jsconv|crc|aes|sha|mops|cssc)"
)
"""Features whose instructions compilers emit; most other LLVM features are tuning hints or matter to kernels only."""


def foreign(known: Collection[str], host: str, features_of: Callable[[str], Collection[str]]) -> list[str]:
    """Return the ``known`` CPUs whose code uses instructions that ``host`` lacks; empty if ``host`` is unknown."""
    if host not in known:
        return []
    own = _instructions(features_of(host))
    return [name for name in known if not _instructions(features_of(name)) <= own]


def _instructions(features: Collection[str]) -> set[str]:
    return {name for name in features if _INSTRUCTIONS.match(name)}


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
