"""Targets, devices and toolchains."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from domain import cpus, errors

NATIVE = "native"
"""The worker's own CPU, with the ``-mcpu`` that LLVM detects."""

KINDS = ("llvm", "cuda")
GPU_ARCHITECTURES = tuple(
    f"sm_{version}"
    for version in (
        50,
        52,
        53,
        60,
        61,
        62,
        70,
        72,
        75,
        80,
        86,
        87,
        89,
        90,
        "90a",
        100,
        "100a",
        101,
        103,
        120,
        "120a",
        121,
    )
)
"""Compute capabilities known to CUDA compilers (CUDA C++ Programming Guide, section 20.1)."""
MACHINES = (
    "x86_64", "i686", "aarch64", "arm64", "arm", "armv7", "armv7a", "armv7l", "armv8l",
    "riscv32", "riscv64", "powerpc64le", "s390x", "loongarch64", "wasm32",
)  # fmt: skip
"""First part of an LLVM triple."""

_EMULATED = ("aarch64",)
_SAME_MACHINE = {"arm64": "aarch64", "amd64": "x86_64"}
_MOST_OPTIONS = 32
_NAME = re.compile(r"-[a-z][a-z0-9-]*")
_VALUE = re.compile(r"[A-Za-z0-9_.,+:-]+")
_KEY_THREADS = re.compile(r"/t[0-9]+$")
_THREADS = re.compile(r"(?P<text>.*\S)\s+(?P<threads>-num-cores=[0-9]+)")
_FEATURE = re.compile(r"[+-][A-Za-z0-9][A-Za-z0-9_.+-]*")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A concrete TVM target and the number of threads of a run."""

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

    @classmethod
    def of(cls, hello: Mapping[str, Any]) -> Self:
        """Read the toolchain of an engine from its hello."""
        facts = hello["toolchain"]
        return cls(engine=str(facts["engine"]), tvm=str(facts["tvm"]), llvm=str(facts["llvm"]))

    @property
    def identity(self) -> str:
        return f"{self.engine}/tvm-{self.tvm}/llvm-{self.llvm}"


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device for measurements. ``key`` consists of the CPU model, its vector features and the thread count."""

    key: str
    name: str
    threads: int

    @classmethod
    def behind_tracker(cls, tracker: str, key: str, threads: int) -> Device:
        """Return the device of one kind of board: all devices of a key count as equal, with any tracker."""
        return cls(key=f"rpc/{key}/t{threads}", name=f"{key} behind {tracker}", threads=threads)

    @classmethod
    def none(cls, threads: int) -> Device:
        """Return the device of builds that no device runs."""
        return cls(key=f"none/t{threads}", name="nothing was run on", threads=threads)

    @classmethod
    def recorded(cls, key: str, threads: int) -> Device:
        """Return the device whose records a build without runs uses; a thread count in the key takes precedence."""
        match = _KEY_THREADS.search(key)
        known = int(match[0].removeprefix("/t")) if match else threads
        return cls(key=key, name=f"nothing was run; records of {key}", threads=known)

    def with_threads(self, threads: int) -> Device:
        """Return the same machine with another number of threads."""
        return replace(self, key=_KEY_THREADS.sub(f"/t{threads}", self.key), threads=threads)


def kind_of(text: str) -> str:
    """Return ``llvm`` or ``cuda``; ``native`` is ``llvm``."""
    kind = text.split(maxsplit=1)[0] if text.strip() else ""
    return "llvm" if kind == NATIVE else kind


def split_threads(text: str) -> tuple[str, str]:
    """Split a target's identity into its text and `` -num-cores=N``, which is empty if missing."""
    match = _THREADS.fullmatch(text.strip())
    return (match["text"], f" {match['threads']}") if match else (text, "")


def canonical(text: str) -> str:
    """Return a target's text or identity in canonical form. Raises UnknownTarget."""
    bare, threads = split_threads(text)
    return check_text(bare) + threads


def option_of(text: str, name: str) -> str | None:
    """Return the value of an option, such as ``-mcpu``."""
    return next((option.partition("=")[2] for option in text.split() if option.startswith(f"{name}=")), None)


def machine_of(triple: str) -> str:
    """Return the machine of a triple or of ``platform.machine()``, in one spelling."""
    machine = triple.partition("-")[0].lower()
    return _SAME_MACHINE.get(machine, machine)


def emulated_machine(text: str) -> str | None:
    """Return the machine of a target if it is one whose programs workers may emulate (Linux with glibc), else None."""
    triple = option_of(text, "-mtriple") or ""
    machine, system = machine_of(triple), triple.split("-")[1:]
    return machine if machine in _EMULATED and "linux" in system and system[-1] == "gnu" else None


def check_text(text: str) -> str:
    """Return ``text`` in canonical form, with sorted options.

    Does not check the CPU's name: see ``check_cpu``. Raises UnknownTarget, with near matches in its details.
    """
    if text.strip() == NATIVE:
        return NATIVE
    kind, *options = text.split()[:_MOST_OPTIONS] or [""]
    if kind not in KINDS:
        raise _unknown(f"unknown target {text[:80]!r}", kind, [NATIVE, *KINDS])
    given = dict(_option(kind, option) for option in options)
    if len(given) < len(options):
        raise errors.UnknownTarget(f"target {text[:80]!r} repeats an option")
    if kind == "cuda" and "-arch" not in given:
        raise errors.UnknownTarget("a cuda target needs -arch", hint="Write 'cuda -arch=sm_90'.")
    return " ".join([kind, *(f"{name}={given[name]}" for name in _OPTIONS[kind] if name in given)])


def check_cpu(text: str, further: Collection[str] = ()) -> None:
    """Raise UnknownTarget, with near matches in its details, if a target's ``-mcpu`` is not a CPU of its machine.

    ``further`` names are also accepted, such as those that a newer LLVM of a worker knows. Without ``-mtriple``, the
    CPUs of all machines are accepted, as the worker's is not known yet.
    """
    cpu, triple = option_of(text, "-mcpu"), option_of(text, "-mtriple")
    known = cpus.names(machine_of(triple) if triple else None)
    if cpu is None or known is None or cpu in known or cpu in further:
        return
    near = difflib.get_close_matches(cpu, [*known, *further], n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else None
    place = f" of machine {machine_of(triple)!r}" if triple else ""
    raise errors.UnknownTarget(f"LLVM knows no CPU {cpu[:80]!r}{place}", hint=hint, details={"near_matches": near})


def _option(kind: str, option: str) -> tuple[str, str]:
    """Return name and value of a valid option."""
    name, equals, value = option.partition("=")
    if name == "-num-cores":
        raise errors.UnknownTarget("-num-cores is not allowed in a target", hint="Set threads instead (--threads).")
    if not equals or not _VALUE.fullmatch(value) or not _NAME.fullmatch(name):
        raise errors.UnknownTarget(f"target option {option[:80]!r} is not of the form -name=value")
    if name not in _OPTIONS[kind]:
        raise _unknown(f"{kind!r} targets do not support option {name[:80]!r}", name, list(_OPTIONS[kind]))
    _OPTIONS[kind][name](value)
    return name, value


def _check_arch(value: str) -> None:
    if value not in GPU_ARCHITECTURES:
        raise _unknown(f"unknown GPU architecture {value[:80]!r}", value, list(GPU_ARCHITECTURES))


def _check_triple(value: str) -> None:
    machine, *rest = value.split("-")
    if machine not in MACHINES:
        raise _unknown(f"unknown machine {machine[:80]!r} in -mtriple", machine, list(MACHINES))
    if not 1 <= len(rest) <= 3 or not all(rest):
        hint = "A triple is MACHINE-SYSTEM-ABI, such as aarch64-linux-gnu."
        raise errors.UnknownTarget(f"-mtriple={value[:80]} is not a valid triple", hint=hint)


def _check_features(value: str) -> None:
    wrong = next((feature for feature in value.split(",") if not _FEATURE.fullmatch(feature)), None)
    if wrong is not None:
        hint = "Write each feature with a sign, as in -mattr=+avx2,-fma."
        raise errors.UnknownTarget(f"-mattr contains {wrong[:80]!r}, not a feature with a sign", hint=hint)


def _check_name(value: str) -> None:
    if not _FEATURE.fullmatch(f"+{value}"):
        raise errors.UnknownTarget(f"{value[:80]!r} is not a valid CPU, ABI or device name")


def _check_float_abi(value: str) -> None:
    if value not in ("hard", "soft"):
        raise _unknown(f"unknown floating-point ABI {value[:80]!r}", value, ["hard", "soft"])


_OPTIONS: dict[str, dict[str, Callable[[str], None]]] = {
    "llvm": {
        "-mtriple": _check_triple,
        "-mcpu": _check_name,
        "-mattr": _check_features,
        "-mabi": _check_name,
        "-mfloat-abi": _check_float_abi,
        "-device": _check_name,
    },
    "cuda": {"-arch": _check_arch},
}
"""Options of TVM's targets that affect code generation, in canonical order."""


def _unknown(message: str, given: str, known: list[str]) -> errors.UnknownTarget:
    near = difflib.get_close_matches(given, known, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Supported: {', '.join(known)}."
    return errors.UnknownTarget(message, hint=hint, details={"near_matches": near})
