"""Linkers and archivers: this machine's own, or a cross toolchain named after the target's triple."""

from __future__ import annotations

import os
import platform
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.engines.protocol.serving import EngineFailure

_MACHINE_OF = {"amd64": "x86_64", "arm64": "aarch64", "i386": "x86", "i486": "x86", "i586": "x86", "i686": "x86"}


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Programs that make libraries for one target; None where this machine has none."""

    triple: str | None
    """The target's, where it is not this machine's own."""
    compiler: str | None
    archiver: str | None
    create_shared: Callable[..., None]
    """``create_shared`` and ``create_staticlib`` of TVM's module ``cc``."""
    create_staticlib: Callable[..., None]

    def link(self, output: str, objects: Any, options: Any = None, **_: Any) -> None:
        """Make a shared library of object files; ``fcompile`` of ``tvm.runtime.Module.export_library``."""
        if self.triple is None and self.compiler is None:
            raise EngineFailure(
                "compile_failed", "this machine has no C compiler to link with", hint="Install one (Debian: gcc)."
            )
        if self.compiler is None:
            raise self.missing()
        self.create_shared(output, objects, options, cc=self.compiler)

    def archive(self, output: str, objects: Any, *_: Any, **__: Any) -> None:
        """Make a static library of object files; likewise."""
        if self.archiver is None:
            raise self.archiver_missing()
        self.create_staticlib(output, list(objects), ar=self.archiver)

    def archiver_missing(self) -> EngineFailure:
        return EngineFailure(
            "cross_compiler_missing",
            f"this machine has no archiver for {self.triple or 'itself'}",
            hint="Install one (Debian: apt install binutils).",
        )

    def missing(self) -> EngineFailure:
        package = f"gcc-{self.triple}".replace("_", "-")
        return EngineFailure(
            "cross_compiler_missing",
            f"nothing on this machine links for {self.triple}: there is no {self.triple}-gcc",
            hint=f"Install a cross toolchain (Debian: apt install {package}), or ask for the format 'object', "
            "whose mod.tar is linked elsewhere.",
            details={"triple": self.triple},
        )


def pack(output: str, objects: Any, *_: Any, **__: Any) -> None:
    """Put object files into a tar, as TVM does, without the time and the user that would make each build differ."""
    with tarfile.open(output, "w", format=tarfile.USTAR_FORMAT) as archive:
        for path in map(Path, objects):
            member = tarfile.TarInfo(path.name)
            member.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(member, file)


def tools(target: Any, cc: Any) -> Tools:
    """What there is for a ``tvm.target.Target``, or its host, with TVM's module ``cc``.

    A triple with another spelling of the vendor counts as the same.
    """
    host = target.host or target
    create = {"create_shared": cc.create_shared, "create_staticlib": cc.create_staticlib}
    triple = str(host.attrs["mtriple"]) if "mtriple" in host.attrs else None
    if triple is None or _is_native(triple):
        compiler = _first(os.environ.get("CXX"), "g++", "gcc", "cc")
        return Tools(triple=None, compiler=compiler, archiver=_first("ar"), **create)
    machine, *rest = triple.split("-")
    # aarch64-unknown-linux-gnu is Debian's aarch64-linux-gnu.
    plain = "-".join([machine, *(part for part in rest if part not in ("unknown", "pc", "none"))])
    return Tools(
        triple=plain,
        compiler=_first(f"{triple}-gcc", f"{plain}-gcc", f"{plain}-g++", f"{plain}-cc"),
        # Any archiver takes any object files; only the index of their symbols needs one that knows them.
        archiver=_first(f"{triple}-ar", f"{plain}-ar", "llvm-ar", "ar"),
        **create,
    )


def _is_native(triple: str) -> bool:
    machine, *rest = triple.lower().split("-")
    here = platform.machine().lower()
    same = _MACHINE_OF.get(machine, machine) == _MACHINE_OF.get(here, here)
    libraries = {"gnu", "musl", "android", "gnueabi", "gnueabihf"} & set(rest)
    return same and "linux" in rest and libraries <= {"gnu"}


def _first(*names: str | None) -> str | None:
    return next((path for name in names if name and (path := shutil.which(name))), None)
