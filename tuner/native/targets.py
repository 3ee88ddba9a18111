"""Targets as TVM writes them, with all derived options, converted to canonical text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain import errors, targets
from tuner.native.lines import Refused

_DERIVED = frozenset(
    {
        "tag",
        "model",
        "host",
        "max_num_threads",
        "thread_warp_size",
        "max_threads_per_block",
        "max_shared_memory_per_block",
        "registers_per_block",
    }
)
"""Options that name the machine or follow from others, and do not affect a CPU's code."""
_FAMILIES = {"aarch64": "arm_cpu", "arm64": "arm_cpu", "arm": "arm_cpu"}
_HOST_VENDORS = ("unknown", "conda", "pc")
_HOST_MACHINE = "x86_64"


def read(target: Any) -> tuple[str, int | None]:
    """Return the text and thread count of a target given as text or, since TVM 0.20, as a mapping.

    A GPU target's thread count is its host's. Raises Refused for options that our targets cannot express, so that
    targets with different code are never merged.
    """
    kind, options = _of_text(target) if isinstance(target, str) else _of_mapping(target)
    threads = _threads(options, target)
    keys = options.pop("keys", None)
    known = {name: value for name, value in options.items() if name not in _DERIVED and not name.startswith("feature.")}
    text = " ".join([kind, *(f"-{name}={value}" for name, value in known.items())])
    try:
        spelled = targets.check_text(text)
    except errors.UnknownTarget as error:
        raise Refused(f"invalid target: {error.message}") from error
    _check_keys(kind, keys, known, spelled)
    return spelled, threads


def meant_by(spelled: str, wanted: str) -> bool:
    """Return whether a line with target ``spelled`` belongs to the target ``wanted``.

    TVM adds its host's triple to a target without triple and CPU.
    """
    if spelled == wanted:
        return True
    rest, _, triple = spelled.partition(" -mtriple=")
    machine, _, system = triple.partition("-")
    by_default = machine == _HOST_MACHINE and system in {f"{vendor}-linux-gnu" for vendor in _HOST_VENDORS}
    return by_default and rest == "llvm" and wanted == "llvm"


def _of_text(text: str) -> tuple[str, dict[str, str]]:
    kind, *words = text.split()[:64] or [""]
    options: dict[str, str] = {}
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not equals or name in options:
            raise Refused(f"its target has an option {word[:80]!r} that is not supported")
        options[name] = value
    return kind, options


def _of_mapping(target: Any) -> tuple[str, dict[str, str]]:
    if not isinstance(target, Mapping) or not isinstance(target.get("kind"), str):
        raise Refused("it has no target")
    options: dict[str, str] = {}
    for name, value in target.items():
        if name == "kind" or value in ("", []):
            continue
        if name == "host":
            _, host = _of_mapping(value)
            options |= {"num-cores": host["num-cores"]} if "num-cores" in host else {}
        elif isinstance(value, list) and all(isinstance(part, str) for part in value):
            options[str(name)] = ",".join(value)
        elif isinstance(value, (str, int)):
            options[str(name)] = str(value)
        else:
            raise Refused(f"its target has an option {str(name)[:80]!r} that is not supported")
    return target["kind"], options


def _threads(options: dict[str, str], target: Any) -> int | None:
    text = options.pop("num-cores", None)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:6]) <= 1024 and len(text) <= 6):
        raise Refused(f"its target has an invalid core count: {str(target)[:80]!r}")
    return int(text)


def _check_keys(kind: str, keys: str | None, options: Mapping[str, str], spelled: str) -> None:
    """Check the keys, which select templates and schedules: only those that TVM derives itself are accepted."""
    family = _FAMILIES.get(options.get("mtriple", "").split("-")[0])
    derived = {"cuda": {"cuda", "gpu"}, "llvm": {"cpu"}}[kind] | {options.get("device"), family}
    if keys is not None and not set(keys.split(",")) <= derived:
        raise Refused(f"its target has the keys {keys[:80]}, which TVM does not use for {spelled!r}")
