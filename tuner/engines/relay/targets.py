"""TVM targets for the CPUs supported by this TVM's LLVM."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Any

import tvm
from tvm.target import codegen, x86

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime.targets import check_known, known_cpus, llvm_version, refused, unknown

_FAMILIES = {
    "amd64": "x86_64",
    "i486": "i386",
    "i586": "i386",
    "i686": "i386",
    "arm64": "aarch64",
    **{f"armv{version}": "arm" for version in (6, 7, 8, 9)},
    **{f"thumbv{version}": "thumb" for version in (6, 7, 8)},
}
"""Aliases and versions of machines that share an LLVM code generator."""
_SYSTEMS = ("linux", "android", "none", "darwin", "macosx", "ios", "windows", "freebsd", "netbsd", "openbsd", "fuchsia")


def resolve(text: str, threads: int) -> Any:
    """Return the ``tvm.target.Target`` of ``text`` with its thread count.

    Raises EngineFailure ``unknown_target`` with near matches, also for options that LLVM would drop with a warning, and
    ``unsupported_target`` for a machine without a code generator in this LLVM.
    """
    kind, *options = text.split() or [""]
    if kind != "llvm":
        raise EngineFailure(
            "unsupported_target",
            f"this engine compiles for 'llvm' targets, not {kind!r}",
            hint="The metaschedule tuner compiles for cuda." if kind == "cuda" else None,
        )
    values = dict(option.removeprefix("-").partition("=")[::2] for option in options)
    # Check before TVM does: it terminates the process for a machine without code generator.
    if "mtriple" in values:
        _check_triple(values["mtriple"])
    triple = f" -mtriple={values['mtriple']}" if "mtriple" in values else ""
    try:
        place = f" for{triple}" if triple else ""
        plain = tvm.target.Target(f"llvm{triple}")
        if "mcpu" in values:
            check_known(tvm, "CPU", values["mcpu"], known_cpus(tvm, plain), place)
        if "mattr" in values:
            for feature in values["mattr"].split(","):
                if feature[:1] not in ("+", "-"):
                    raise unknown(f"a feature needs a sign, + or -: {feature!r}", [f"+{feature}"])
                check_known(tvm, "feature", feature[1:], _known_features(triple), place)
        return tvm.target.Target(f"{text} -num-cores={threads}")
    except EngineFailure:
        raise
    except Exception as error:
        raise refused(text, error) from error


def lanes(target: Any) -> int:
    """Return the number of 32-bit vector lanes of a ``tvm.target.Target``, as TVM's templates count them."""
    with target:
        return int(x86.get_simd_32bit_lanes())


def _check_triple(triple: str) -> None:
    machine, *rest = triple.split("-")
    built_in = [str(name) for name in codegen.llvm_get_targets()]
    family = _FAMILIES.get(machine) or _FAMILIES.get(machine.rstrip("abcdefghijklmnopqrstuvwxyz")) or machine
    if family not in built_in:
        known = [*built_in, *_FAMILIES]
        near = difflib.get_close_matches(machine, known, n=3, cutoff=0.6)
        if near:
            raise unknown(f"LLVM {llvm_version(tvm)} does not know machine {machine!r}", near)
        raise EngineFailure(
            "unsupported_target",
            f"this engine's LLVM has no code generator for {machine!r}",
            hint=f"Supported: {', '.join(built_in)}.",
        )
    if not any(part in _SYSTEMS for part in rest):
        near = [near for part in rest for near in difflib.get_close_matches(part, _SYSTEMS, n=1, cutoff=0.6)]
        raise unknown(f"the triple {triple!r} names no operating system", near or [f"{machine}-linux-gnu"])


@lru_cache(maxsize=16)
def _known_features(triple: str) -> tuple[str, ...]:
    """Return the features of all CPUs of a triple; LLVM lists those of one CPU at a time. Takes 0.1 s."""
    cpus = known_cpus(tvm, tvm.target.Target(f"llvm{triple}"))
    each = (codegen.llvm_get_cpu_features(tvm.target.Target(f"llvm{triple} -mcpu={cpu}")) for cpu in cpus)
    return tuple(sorted({str(feature) for features in each for feature in features}))
