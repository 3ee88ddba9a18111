"""CPU and GPUs of this host, by the properties that determine the speed of schedules. Standard library only."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from domain.targets import Device

_CPUINFO = Path("/proc/cpuinfo")
_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_ASK_SECONDS = 20

FEATURES = (
    # x86: Linux's ``flags``
    ("avx", "avx"),
    ("avx2", "avx2"),
    ("fma", "fma"),
    ("avx_vnni", "avxvnni"),
    ("avx512f", "avx512f"),
    ("avx512bw", "avx512bw"),
    ("avx512_vnni", "avx512vnni"),
    ("avx512_bf16", "avx512bf16"),
    ("avx512_fp16", "avx512fp16"),
    ("amx_tile", "amx"),
    ("amx_bf16", "amxbf16"),
    ("amx_int8", "amxint8"),
    # aarch64: Linux's ``Features``
    ("asimd", "neon"),
    ("asimdhp", "fp16"),
    ("asimddp", "dotprod"),
    ("i8mm", "i8mm"),
    ("bf16", "bf16"),
    ("sve", "sve"),
    ("sve2", "sve2"),
    ("sme", "sme"),
)
"""Vector features that affect which code is fastest: Linux's name and ours, in the order of keys."""


def device(threads: int | None = None) -> Device:
    """Return this host's CPU as a device with ``threads`` threads; None means every usable core."""
    text = _CPUINFO.read_text(errors="replace") if _CPUINFO.exists() else ""
    return describe(text, machine=platform.machine(), threads=threads or usable_cores())


def describe(cpuinfo: str, *, machine: str, threads: int) -> Device:
    """Return the device described by the text of ``/proc/cpuinfo`` and ``platform.machine()``; a pure function."""
    fields = _first_processor(cpuinfo)
    name = fields.get("model name") or _arm_name(fields) or machine or "unknown CPU"
    identity = (
        f"{fields['vendor_id']}-{fields.get('cpu family', '?')}-{fields.get('model', '?')}-{name}"
        if "vendor_id" in fields
        else name
    )
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    features = "+".join(ours for theirs, ours in FEATURES if theirs in flags) or "scalar"
    return Device(key=f"{machine}/{_slug(identity)}/{features}/t{threads}", name=name, threads=threads)


def accelerators(threads: int | None = None) -> tuple[Device, ...]:
    """Return this host's NVIDIA GPUs; keys end in the compute capability, or ``unknown``."""
    threads = threads or usable_cores()
    program = shutil.which("nvidia-smi")
    if program:
        command = [program, "--query-gpu=name,compute_cap", "--format=csv,noheader"]
        try:
            listed = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=True)
            return gpus(listed.stdout, threads=threads)
        except (OSError, subprocess.SubprocessError):
            pass
    names = [_model(folder / "information") for folder in sorted(_NVIDIA.glob("*"))]
    return gpus("\n".join(f"{name}, " for name in names if name), threads=threads)


def gpus(listing: str, *, threads: int) -> tuple[Device, ...]:
    """Return devices from ``nvidia-smi`` lines ``name, compute capability``; a pure function."""
    found = []
    for line in listing.splitlines():
        name, separator, capability = line.rpartition(",")
        if separator and name.strip():
            digits = capability.strip().replace(".", "")
            arch = f"sm_{digits}" if digits.isdigit() else "unknown"
            found.append(Device(key=f"cuda/{_slug(name)}/{arch}", name=name.strip(), threads=threads))
    return tuple(found)


def _model(information: Path) -> str | None:
    fields = dict(line.partition(":")[::2] for line in _lines(information))
    return fields.get("Model", "").strip() or None


def usable_cores(groups: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> int:
    """Return the number of cores for this process: its affinity mask, limited by the cgroup's CPU quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(groups, membership)
    return cores if quota is None else max(1, min(cores, int(quota)))


def _quota(groups: Path, membership: Path) -> float | None:
    """Return the CPU quota in CPUs: cgroup 2's ``cpu.max``, or cgroup 1's ``cpu.cfs_quota_us``."""
    limits = []
    for folder in _own_groups(groups, membership):
        parts = _words(folder / "cpu.max")
        parts = parts or _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(parts) == 2 and parts[0].isdigit() and parts[1].isdigit() and int(parts[1]):
            limits.append(int(parts[0]) / int(parts[1]))
    return min(limits, default=None)


def _own_groups(groups: Path, membership: Path) -> list[Path]:
    """Return the folders of this process's CPU cgroup and its ancestors, as the tightest limit applies."""
    found = []
    for line in _lines(membership) or ["0::/"]:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = groups if not controllers else groups / "cpu"
        own = root / path.lstrip("/")
        found += [folder for folder in (own, *own.parents) if folder == root or root in folder.parents]
    return found


def _first_processor(cpuinfo: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, separator, value = line.partition(":")
        if separator:
            fields.setdefault(name.strip().lower(), value.strip())
    return fields


def _arm_name(fields: dict[str, str]) -> str | None:
    """Return the name of an Arm core, for which the kernel only gives implementer, part and variant numbers."""
    if "cpu implementer" not in fields:
        return None
    parts = [fields.get(name, "?") for name in ("cpu implementer", "cpu part", "cpu variant")]
    return "arm-" + "-".join(parts)


def _slug(text: str) -> str:
    text = re.sub(r"\((?:r|tm)\)|\b(?:cpu|processor)\b|@.*", " ", text, flags=re.IGNORECASE)
    return re.sub(r"[^A-Za-z0-9.?]+", "-", text).strip("-").lower()


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
