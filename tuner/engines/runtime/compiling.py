"""Code generation and linking: calls TVM's code generator and the native or cross toolchain of a target."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import faults, progress


@dataclass(frozen=True, kw_only=True)
class Release:
    tvm: Any
    """The ``tvm`` package."""
    package: str
    """Package of the engine, with the modules ``candidates``, ``comparing`` and ``rpc`` that child processes run."""
    cc: Any
    """``tvm.contrib.cc``, or ``tvm.support.cc`` in later releases."""
    tir: str
    """Prefix of TensorIR pass options: ``tir`` or ``tirx``."""
    tensor: Callable[..., Any]
    """``tensor(array, device)``: a TVM tensor with the array's data."""
    empty: Callable[..., Any]
    """``empty(shape, dtype, device)``: an uninitialized TVM tensor."""
    fill: str
    """Global function that fills a tensor with random data."""
    session_errors: tuple[type[BaseException], ...]
    """Exceptions that TVM raises for errors in an RPC session."""


Built = TypeVar("Built")

LIBRARY, OBJECTS, ARCHIVE = "mod.so", "mod.tar", "mod.a"
ONNX, STATIC = "onnx", "static"
WITHOUT_TVM = ("wheel", ONNX, STATIC)
"""Output formats that are made from the same plan as ``libmodel.so``."""
ADDED = {"shared": None, **dict.fromkeys(WITHOUT_TVM), "tvm": None, "object": OBJECTS, "system-lib": ARCHIVE}
"""File of TVM that each output format adds to the shared library."""
_FOR_TVM = ("tvm", "object", "system-lib")
"""Output formats for programs that call TVM's functions themselves."""
_LINKED = ("shared", "tvm")
"""Output formats that are useless without TVM's shared library."""
_VERIFIER_BUG = "#dbg_declare"
_MACHINE_OF = {"amd64": "x86_64", "arm64": "aarch64", "i386": "x86", "i486": "x86", "i586": "x86", "i686": "x86"}


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Compiler and binutils for one target; None if not installed."""

    triple: str | None
    """Triple of the target; None for this machine's own."""
    compiler: str | None
    archiver: str | None
    objcopy: str | None
    c_compiler: str | None
    cc: Any
    """TVM's ``cc`` module, which runs the programs."""

    def link(self, output: str, objects: Any, options: Any = None, **_: Any) -> None:
        """Link object files into a shared library; usable as ``fcompile`` of ``tvm.runtime.Module.export_library``."""
        if self.compiler is None:
            raise self.missing()
        self.cc.create_shared(output, objects, options, cc=self.compiler)

    def link_quickly(self, output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
        """Link one candidate with ``ld``, since the compiler driver takes longer than the link itself (20 to 40 ms)."""
        if self.triple is not None:
            self.link(output, objects, options)
            return
        try:
            subprocess.run(["ld", "-shared", "-o", output, *objects], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            self.cc.create_shared(output, objects, options)

    def compile_nothing(self, output: Path) -> None:
        """Write an object file without symbols. Raises EngineFailure, as ``link`` does, without a C compiler."""
        if self.c_compiler is None:
            raise self.missing()
        command = [self.c_compiler, "-c", "-x", "c", os.devnull, "-o", str(output)]
        subprocess.run(command, check=True, capture_output=True)

    def archive(self, output: str, objects: Sequence[str]) -> None:
        """Archive object files into a static library."""
        if self.archiver is None:
            raise self.archiver_missing()
        self.cc.create_staticlib(output, list(objects), ar=self.archiver)

    def archiver_missing(self) -> EngineFailure:
        return EngineFailure(
            "cross_compiler_missing",
            f"no ar or objcopy found for {self.triple or 'this machine'}",
            hint=f"Install binutils (Debian: apt install {'-'.join(filter(None, ('binutils', self.triple)))}).",
        )

    def missing(self) -> EngineFailure:
        if self.triple is None:
            return EngineFailure("compile_failed", "no C compiler found", hint="Install one (Debian: gcc).")
        package = f"gcc-{self.triple}".replace("_", "-")
        return EngineFailure(
            "cross_compiler_missing",
            f"no cross linker for {self.triple}: {self.triple}-gcc is missing",
            hint=f"Install a cross toolchain (Debian: apt install {package}), or use format 'object' "
            "and link its mod.tar elsewhere.",
            details={"triple": self.triple},
        )


def pack(output: str, objects: Sequence[str]) -> None:
    """Write object files to a tar as TVM does, without the timestamps and user names that make builds differ."""
    with tarfile.open(output, "w", format=tarfile.USTAR_FORMAT) as archive:
        for path in map(Path, objects):
            member = tarfile.TarInfo(path.name)
            member.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(member, file)


def tools(release: Release, target: Any) -> Tools:
    """Return the tools for a ``tvm.target.Target``, or for its host.

    Triples that differ only in the vendor field are treated as equal.
    """
    host = target.host or target
    triple = str(host.attrs["mtriple"]) if "mtriple" in host.attrs else None
    if triple is None or _is_native(triple):
        return Tools(
            triple=None,
            compiler=_first(os.environ.get("CXX"), "g++", "gcc", "cc"),
            archiver=_first("ar"),
            objcopy=_first("objcopy", "llvm-objcopy"),
            c_compiler=_first(os.environ.get("CC"), "gcc", "cc", "clang"),
            cc=release.cc,
        )
    machine, *rest = triple.split("-")
    # Debian spells aarch64-unknown-linux-gnu as aarch64-linux-gnu.
    plain = "-".join([machine, *(part for part in rest if part not in ("unknown", "pc", "none"))])
    return Tools(
        triple=plain,
        compiler=_first(f"{triple}-gcc", f"{plain}-gcc", f"{plain}-g++", f"{plain}-cc"),
        # Any archiver accepts any object files; only the symbol index requires one that supports the format.
        archiver=_first(f"{triple}-ar", f"{plain}-ar", "llvm-ar", "ar"),
        objcopy=_first(f"{triple}-objcopy", f"{plain}-objcopy", "llvm-objcopy"),
        c_compiler=_first(f"{triple}-gcc", f"{plain}-gcc"),
        cc=release.cc,
    )


def tools_for(release: Release, target: Any, form: str) -> Tools:
    """Return the tools that ``form`` needs; called before a long build, to fail early.

    Raises EngineFailure ``invalid_option`` or ``cross_compiler_missing``.
    """
    faults.require_known("format", form, ADDED)
    found = tools(release, target)
    if form in _LINKED and found.triple and not found.compiler:
        raise found.missing()
    if (form in ("system-lib", STATIC) and not found.archiver) or (form == STATIC and not found.objcopy):
        raise found.archiver_missing()
    return found


def needs_assertions(form: str) -> bool:
    """Whether code in this format checks its arguments itself, which takes ten times the code.

    Our executors and ``libmodel.so`` fix all shapes beforehand; programs that use TVM may call functions at will.
    """
    return form in _FOR_TVM


@dataclass(frozen=True, kw_only=True)
class Objects:
    """Object files of a compiled module, in a folder that exists as long as the context of ``exported``."""

    paths: list[str]
    options: Any
    """Options for the compiler that links them."""


@contextmanager
def exported(module: Any, pack: Callable[..., str] | None = None) -> Iterator[Objects]:
    """Have TVM generate a module's code, once for all files that are linked from it.

    ``pack`` replaces TVM's own ``fpack_imports``, which writes what the module imports.
    """
    with tempfile.TemporaryDirectory(prefix="tunesmith-objects-") as folder:
        kept: list[Objects] = []

        def keep(_: str, paths: Any, options: Any = None, **__: Any) -> None:
            kept.append(Objects(paths=[str(path) for path in paths], options=options))

        packing = {"fpack_imports": pack} if pack else {}
        module.export_library(str(Path(folder) / LIBRARY), fcompile=keep, workspace_dir=folder, **packing)
        # It has the weights, and the files have them, too.
        del module
        yield kept[0]


def write_libraries(objects: Objects, folder: Path, form: str, programs: Tools) -> list[str]:
    """Link object files in the given format and return the names of the files."""
    for name in (LIBRARY, OBJECTS, ARCHIVE):
        # Unlink first: this process may have mapped the old file, and files of another format must not remain.
        (folder / name).unlink(missing_ok=True)
    written = []
    if programs.compiler or not programs.triple:
        programs.link(str(folder / LIBRARY), objects.paths, objects.options)
        written.append(LIBRARY)
    added = ADDED[form]
    if added == OBJECTS:
        pack(str(folder / OBJECTS), objects.paths)
    if added == ARCHIVE:
        programs.archive(str(folder / ARCHIVE), objects.paths)
    return [*written, added] if added else written


def build(
    release: Release,
    make: Callable[[], Built],
    *,
    assertions: bool = True,
    instruments: Sequence[Any] = (),
    disabled: Collection[str] = (),
    **options: Any,
) -> Built:
    """Call ``make`` in a ``PassContext`` with ``options`` and ``instruments``, and return its result; ``disabled`` are
    names of passes to leave out.

    ``assertions=False`` omits the checks of argument shapes and strides, which take a seventh of a candidate's build.

    LLVM 22's verifier rejects the debug declarations of some functions that TVM's common-subexpression pass rewrote
    ("location of #dbg_declare must be a pointer or int"). In that case ``make`` is called again without the pass; the
    code builds and runs as fast.
    """
    if progress.is_told():
        instruments = [*instruments, _generation(release)]
    if not assertions:
        options = {**options, f"{release.tir}.disable_assert": True}
    context = {"opt_level": 3, "instruments": instruments, "disabled_pass": list(disabled)}
    try:
        with release.tvm.transform.PassContext(**context, config=options):
            return make()
    except Exception as error:
        if _VERIFIER_BUG not in str(error):
            raise
    options = {**options, f"{release.tir}.disable_cse_tir": True}
    with release.tvm.transform.PassContext(**context, config=options):
        return make()


def _generation(release: Release) -> Any:
    """Return an instrument that reports the beginning of code generation, which TVM does for all functions at once."""

    @release.tvm.instrument.pass_instrument
    class Generation:
        def run_before_pass(self, module: Any, info: Any) -> None:
            if info.name == f"{release.tir}.MakePackedAPI":
                progress.begin("generate", len(module.functions), counts=False)

    return Generation()


def _is_native(triple: str) -> bool:
    machine, *rest = triple.lower().split("-")
    here = platform.machine().lower()
    same = _MACHINE_OF.get(machine, machine) == _MACHINE_OF.get(here, here)
    libraries = {"gnu", "musl", "android", "gnueabi", "gnueabihf"} & set(rest)
    return same and "linux" in rest and libraries <= {"gnu"}


def _first(*names: str | None) -> str | None:
    return next((path for name in names if name and (path := shutil.which(name))), None)
