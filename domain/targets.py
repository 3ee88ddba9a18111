"""What to compile for, what measures, and with which tools."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from domain import errors

NATIVE = "native"
"""The worker's own CPU, with the ``-mcpu`` that its LLVM detects."""

KINDS = ("llvm", "cuda")
_OPTION = re.compile(r"-[a-z][a-z0-9-]*=[A-Za-z0-9_.,+:-]+")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A concrete TVM target and the number of threads that a run may use."""

    text: str
    """TVM's own spelling, without a thread count: ``llvm -mcpu=znver3``."""
    threads: int

    @property
    def identity(self) -> str:
        """The form used in lookups: ``llvm -mcpu=znver3 -num-cores=2``."""
        return f"{self.text} -num-cores={self.threads}"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    engine: str
    tvm: str
    llvm: str

    @property
    def identity(self) -> str:
        return f"{self.engine}/tvm-{self.tvm}/llvm-{self.llvm}"


@dataclass(frozen=True, kw_only=True)
class Device:
    """A machine that measures. ``key`` is the CPU model, its vector features and the thread count."""

    key: str
    name: str
    threads: int


def check_text(text: str) -> str:
    """Return ``text`` with single spaces if it can be a target at all; only an engine knows LLVM's CPUs.

    Raises UnknownTarget, with near matches in its details.
    """
    if text == NATIVE:
        return text
    kind, *options = text.split()[:32] or [""]
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, [NATIVE, *KINDS], n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else None
        raise errors.UnknownTarget(f"unknown target {text[:80]!r}", hint=hint, details={"near_matches": near})
    for option in options:
        if not _OPTION.fullmatch(option):
            raise errors.UnknownTarget(f"target option {option[:80]!r} is not of the form -name=value")
    return " ".join([kind, *options])
