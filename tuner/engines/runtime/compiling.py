"""Code into files: how to call TVM's code generator, and this machine's linker or a cross toolchain for a target."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import faults


@dataclass(frozen=True, kw_only=True)
class Release:
    tvm: Any
    """The package."""
    package: str
    """The engine's, whose modules ``candidates``, ``comparing`` and ``rpc`` processes are started with."""
    cc: Any
    """``tvm.contrib.cc``, since moved to ``tvm.support.cc``."""
    tir: str
    """How options of passes over tensor functions begin: ``tir`` or ``tirx``."""
    tensor: Callable[..., Any]
    """``tensor(array, device)``: a tensor of TVM's."""
    empty: Callable[..., Any]
    """``empty(shape, dtype, device)``: one that holds anything."""
    fill: str
    """The global function that fills a tensor with random data."""
    session_errors: tuple[type[BaseException], ...]
    """What TVM raises for whatever goes wrong in an RPC session."""


Built = TypeVar("Built")

LIBRARY, OBJECTS, ARCHIVE = "mod.so", "mod.tar", "mod.a"
ADDED = {"shared": None, "object": OBJECTS, "system-lib": ARCHIVE}
"""The file that each format of a build adds to the others."""
_VERIFIER_BUG = "#dbg_declare"
_MACHINE_OF = {"amd64": "x86_64", "arm64": "aarch64", "i386": "x86", "i486": "x86", "i586": "x86", "i686": "x86"}


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Programs that make libraries for one target; None where this machine has none."""

    triple: str | None
    """The target's, where it is not this machine's own."""
    compiler: str | None
    archiver: str | None
    cc: Any
    """TVM's module, which calls them."""

    def link(self, output: str, objects: Any, options: Any = None, **_: Any) -> None:
        """Make a shared library of object files; ``fcompile`` of ``tvm.runtime.Module.export_library``."""
        if self.triple is None and self.compiler is None:
            raise EngineFailure("compile_failed", "no C compiler found to link with", hint="Install one (Debian: gcc).")
        if self.compiler is None:
            raise self.missing()
        self.cc.create_shared(output, objects, options, cc=self.compiler)

    def link_quickly(self, output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
        """Likewise for one candidate, without the compiler driver, which takes longer than the link (20 to 40 ms)."""
        if self.triple is not None:
            self.link(output, objects, options)
            return
        try:
            subprocess.run(["ld", "-shared", "-o", output, *objects], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            self.cc.create_shared(output, objects, options)

    def archive(self, output: str, objects: Any, *_: Any, **__: Any) -> None:
        """Make a static library of object files; likewise."""
        if self.archiver is None:
            raise self.archiver_missing()
        self.cc.create_staticlib(output, list(objects), ar=self.archiver)

    def archiver_missing(self) -> EngineFailure:
        return EngineFailure(
            "cross_compiler_missing",
            f"no archiver found for {self.triple or 'this machine'}",
            hint="Install one (Debian: apt install binutils).",
        )

    def missing(self) -> EngineFailure:
        package = f"gcc-{self.triple}".replace("_", "-")
        return EngineFailure(
            "cross_compiler_missing",
            f"no cross linker for {self.triple}: {self.triple}-gcc is missing",
            hint=f"Install a cross toolchain (Debian: apt install {package}), or use format 'object' "
            "and link its mod.tar elsewhere.",
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


def tools(release: Release, target: Any) -> Tools:
    """What there is for a ``tvm.target.Target``, or its host.

    A triple with another spelling of the vendor counts as the same.
    """
    host = target.host or target
    triple = str(host.attrs["mtriple"]) if "mtriple" in host.attrs else None
    if triple is None or _is_native(triple):
        compiler = _first(os.environ.get("CXX"), "g++", "gcc", "cc")
        return Tools(triple=None, compiler=compiler, archiver=_first("ar"), cc=release.cc)
    machine, *rest = triple.split("-")
    # aarch64-unknown-linux-gnu is Debian's aarch64-linux-gnu.
    plain = "-".join([machine, *(part for part in rest if part not in ("unknown", "pc", "none"))])
    return Tools(
        triple=plain,
        compiler=_first(f"{triple}-gcc", f"{plain}-gcc", f"{plain}-g++", f"{plain}-cc"),
        # Any archiver takes any object files; only the index of their symbols needs one that knows them.
        archiver=_first(f"{triple}-ar", f"{plain}-ar", "llvm-ar", "ar"),
        cc=release.cc,
    )


def tools_for(release: Release, target: Any, form: str) -> Tools:
    """The programs that the format needs, asked for before a long build.

    Raises EngineFailure ``invalid_option`` and ``cross_compiler_missing``.
    """
    faults.require_known("format", form, ADDED)
    found = tools(release, target)
    if form == "shared" and found.triple and not found.compiler:
        raise found.missing()
    if form == "system-lib" and not found.archiver:
        raise found.archiver_missing()
    return found


def write_libraries(module: Any, folder: Path, form: str, programs: Tools) -> list[str]:
    """Export a compiled module, which has ``export_library``, as the format asks; returns the names of the files."""
    for name in (LIBRARY, OBJECTS, ARCHIVE):
        # Not over a file that this process may have mapped into memory, and none left of another format.
        (folder / name).unlink(missing_ok=True)
    written = []
    if programs.compiler or not programs.triple:
        module.export_library(str(folder / LIBRARY), fcompile=programs.link)
        written.append(LIBRARY)
    added = ADDED[form]
    if added == OBJECTS:
        module.export_library(str(folder / OBJECTS), fcompile=pack)
    if added == ARCHIVE:
        module.export_library(str(folder / ARCHIVE), fcompile=programs.archive)
    return [*written, added] if added else written


def build(release: Release, make: Callable[[], Built], *, assertions: bool = True, **options: Any) -> Built:
    """What ``make`` builds, in a context of passes with ``options``; raises what it raises.

    Without ``assertions`` the code does not check the shapes and strides of its arguments, which takes a seventh of
    a candidate's build. LLVM 22's verifier refuses the debug declarations of some functions that TVM's
    common-subexpression pass rewrote ("location of #dbg_declare must be a pointer or int"); without that pass, in
    which ``make`` is then called again, they build and run as fast.
    """
    if not assertions:
        options = {**options, f"{release.tir}.disable_assert": True}
    try:
        with release.tvm.transform.PassContext(opt_level=3, config=options):
            return make()
    except Exception as error:
        if _VERIFIER_BUG not in str(error):
            raise
    with release.tvm.transform.PassContext(opt_level=3, config={**options, f"{release.tir}.disable_cse_tir": True}):
        return make()


def _is_native(triple: str) -> bool:
    machine, *rest = triple.lower().split("-")
    here = platform.machine().lower()
    same = _MACHINE_OF.get(machine, machine) == _MACHINE_OF.get(here, here)
    libraries = {"gnu", "musl", "android", "gnueabi", "gnueabihf"} & set(rest)
    return same and "linux" in rest and libraries <= {"gnu"}


def _first(*names: str | None) -> str | None:
    return next((path for name in names if name and (path := shutil.which(name))), None)
