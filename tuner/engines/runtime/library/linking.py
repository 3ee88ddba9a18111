"""Linking of plans, their weights and kernels with the driver to ``libmodel.so`` and ``libmodel.a``."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.engines.runtime.library import elf, memory, source
from tuner.engines.runtime.library.plan import NotStandalone, Plan
from tuner.engines.runtime.library.sizes import Sizes

LIBRARY, HEADER = "libmodel.so", "tunesmith.h"
ARCHIVE, ARCHIVE_HEADER = "libmodel.a", "libmodel.h"
WEIGHTS = "libmodel.weights"
DRIVER = Path(__file__).parent / "c"
MAX_BYTES_INSIDE = 500 * 1000**2
"""Weights beyond this are in a file of their own: they would take long to assemble, and beyond 2 GB would not link."""
_EXPORTS = "{ global: tunesmith_get_api; local: *; };\n"
_WEIGHTS = """\
    .section .rodata
    .balign {alignment}
    .globl tunesmith_weights
    .hidden tunesmith_weights
tunesmith_weights:
    .incbin "libmodel.weights"
    .byte 0
    .section .note.GNU-stack, "", %progbits
"""
_ARCHIVE_HEADER = """\
/* The model in the libmodel.a beside this file. Link it with -lm -lpthread. If there is a libmodel.weights, too, copy
 * it to the program's folder as {weights}. */
#ifndef {guard}
#define {guard}

#include "tunesmith.h"

#ifdef __cplusplus
extern "C" {{
#endif

/* As tunesmith_get_api; the name is of this model alone. */
const tunesmith_api *{function}(uint32_t version, const char **error);

#ifdef __cplusplus
}}
#endif
#endif
"""
_OPTIONS = ("-std=c11", "-O2", "-fPIC", "-fno-plt", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections")
_CALLED = ".tvm_func."
"""Prefix of the symbols in which kernels keep what they call by name."""
_CALLERS = frozenset(
    {
        "__TVMBackendGetFuncFromEnv",
        "__TVMFFIEnvModLookupFromImports",
        "__TVMFFIFunctionCall",
        "__TVMFFIHandleInitOnce",
        "__TVMFuncCall",
    }
)
"""Functions through which kernels call others by name."""
_PROVIDED = _CALLERS | {
    "TVMFFIErrorSetRaisedFromCStrParts",
    "__TVMAPISetLastError",
    "__TVMBackendAllocWorkspace",
    "__TVMBackendFreeWorkspace",
    "__TVMBackendParallelBarrier",
    "__TVMBackendParallelLaunch",
}
"""Functions of TVM's runtime that the driver defines, most of them as pointers."""
_FOR_CALLS = frozenset({"calls.c", "sorting.c"})
"""Sources of the driver for such kernels alone: they take as long to compile as the others together."""
_CALLABLE = frozenset(f"tvm.contrib.sort.{name}" for name in ("argsort", "argsort_nms", "sort", "topk"))
"""Functions that kernels may call by name, as ``c/calls.c`` lists them."""
_WRAPPED = ("expf", "exp2f", "logf", "log2f", "powf", "exp", "exp2", "log", "log2", "pow", "fmod", "fmodf")
"""Functions that ``c/math.c`` replaces by older versions."""


@dataclass(frozen=True, kw_only=True)
class Binutils:
    """Programs for object files of the target."""

    ar: str
    objcopy: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What an entry point is linked from."""

    name: str
    plan: Plan
    objects: Sequence[Path]
    """The kernels' object files."""


def link(
    plan: Plan,
    objects: Sequence[Path],
    facts: source.Facts,
    folder: Path,
    compiler: str,
    binutils: Binutils | None = None,
    max_bytes_inside: int = MAX_BYTES_INSIDE,
) -> list[str]:
    """Write ``libmodel.so`` and ``tunesmith.h`` into ``folder`` and return their names.

    ``objects`` are the kernels' object files, ``compiler`` is a C compiler for their target. With ``binutils``, also
    write ``libmodel.a``, of which programs may link several, and ``libmodel.h``. More weights than ``max_bytes_inside``
    become ``libmodel.weights``. Raises NotStandalone for what needs TVM's runtime or does not link.
    """
    entry = Entry(name="main", plan=plan, objects=objects)
    is_archived = binutils is not None
    packed = source.weights(plan.constants)
    return link_all([entry], packed, None, facts, folder, compiler, binutils, max_bytes_inside, is_archived=is_archived)


def link_all(
    entries: Sequence[Entry],
    packed: source.Weights,
    sizes: Sizes | None,
    facts: source.Facts,
    folder: Path,
    compiler: str,
    binutils: Binutils | None,
    max_bytes_inside: int = MAX_BYTES_INSIDE,
    *,
    is_archived: bool,
) -> list[str]:
    """Write a library with an entry point for each of several sizes, or for one without ``sizes``, as ``link`` does.

    ``packed`` are the constants of all plans, in their order. Several entry points, and an archive, need ``binutils``.
    """
    driver = _driver([path for each in entries for path in each.objects])
    is_outside = packed.size > max_bytes_inside
    outside = source.WeightsFile(name=WEIGHTS, digest=packed.digest()) if is_outside else None
    planned = _planned(entries, packed, facts.threads)
    text = source.model(planned, packed.size, facts, sizes, outside)
    # Unlink first: this process may have mapped the old files.
    for name in (LIBRARY, WEIGHTS):
        (folder / name).unlink(missing_ok=True)
    shutil.copyfile(DRIVER / HEADER, folder / HEADER)
    with tempfile.TemporaryDirectory(prefix="tunesmith-library-") as scratch:
        work = Path(scratch)
        (work / "model.c").write_text(text)
        for number, each in enumerate(planned):
            (work / _source_of(number)).write_text(source.entry(number, each))
        (work / WEIGHTS).touch()
        with ((folder if is_outside else work) / WEIGHTS).open("wb") as file:
            file.writelines(packed.parts)
        (work / "weights.S").write_text(_WEIGHTS.format(alignment=memory.ALIGNMENT))
        (work / "exports.map").write_text(_EXPORTS)
        sources = ["model.c", "weights.S", *_kernels(entries, compiler, binutils, work)]
        options = (
            *(("-DWEIGHTS_OUTSIDE",) if is_outside else ()),
            *(() if sizes else ("-DONE_SIZE=1",)),
        )
        needed = ("dl", "pthread") if is_outside else ("pthread",)
        _share(compiler, options, [*driver, *sources], needed, work)
        shutil.copyfile(work / LIBRARY, folder / LIBRARY)
        written = [LIBRARY, HEADER, *([WEIGHTS] if is_outside else [])]
        if binutils is None or not is_archived:
            return written
        name = facts.model[:16] or "model"
        function, weights = f"tunesmith_get_api_{name}", f"libmodel-{name}.weights"
        if outside:
            # Of several models in one program, each needs a file of its own.
            (work / "model.c").write_text(
                source.model(planned, packed.size, facts, sizes, replace(outside, name=weights))
            )
        # Static programs bring their own libm.
        without_math = [path for path in driver if path != str(DRIVER / "math.c")]
        _archive(compiler, binutils, options, [*without_math, *sources], function, work)
        shutil.copyfile(work / ARCHIVE, folder / ARCHIVE)
    header = _ARCHIVE_HEADER.format(function=function, guard=f"{function.upper()}_H", weights=weights)
    (folder / ARCHIVE_HEADER).write_text(header)
    return [*written, ARCHIVE, ARCHIVE_HEADER]


def _planned(entries: Sequence[Entry], packed: source.Weights, threads: int) -> list[source.Entry]:
    planned, first = [], 0
    for each in entries:
        end = first + len(each.plan.constants)
        offsets = packed.offsets[first:end]
        laid_out = memory.lay_out(each.plan, threads)
        planned.append(source.Entry(name=each.name, plan=each.plan, memory=laid_out, offsets=offsets))
        first = end
    return planned


def _source_of(number: int) -> str:
    return f"entry_{number}.c"


def _kernels(entries: Sequence[Entry], compiler: str, binutils: Binutils | None, work: Path) -> list[str]:
    """Return the files with the entry points' tables and kernels, of which different ones may have equal symbols."""
    if len(entries) == 1:
        return [_source_of(0), *map(str, entries[0].objects)]
    if binutils is None:
        raise NotStandalone("linking: no objcopy for the target was found")
    made = []
    for number, each in enumerate(entries):
        output = f"entry_{number}.o"
        relocatable = (compiler, "-r", "-nostdlib", "-o", output, *_OPTIONS, "-I", str(DRIVER))
        _run([*relocatable, _source_of(number), *map(str, each.objects)], work)
        # The driver's definitions must replace the pointers among the kernels, in all entry points.
        kept = (f"--keep-global-symbol={name}" for name in (source.symbol(number), *sorted(_PROVIDED)))
        _run([binutils.objcopy, "--strip-debug", *kept, output], work)
        made.append(output)
    return made


def _driver(objects: Sequence[Path]) -> list[str]:
    """Return the driver's sources that the kernels need.

    Raises NotStandalone if kernels call functions of TVM's runtime that the driver lacks: pointers would be null.
    """
    imported: set[str] = set()
    called: set[str] = set()
    for path in objects:
        for name, symbol in elf.symbols(path).items():
            if name.startswith(_CALLED):
                called.add(name.removeprefix(_CALLED))
            elif name.startswith("__TVM") or (name.startswith("TVM") and not symbol.is_defined):
                imported.add(name)
    lacking = sorted(called - _CALLABLE) or sorted(name.removeprefix("__") for name in imported - _PROVIDED)
    if lacking:
        raise NotStandalone(f"functions of TVM's runtime: {', '.join(lacking)}")
    left_out = frozenset() if called or not _CALLERS.isdisjoint(imported) else _FOR_CALLS
    return [str(path) for path in sorted(DRIVER.glob("*.c")) if path.name not in left_out]


def separate_library(compiler: str, name: str) -> str:
    """Return the option for ``libNAME``, a part of libc that only old versions of glibc keep apart.

    Its linker name may stand for an empty archive, with which the result would not load on those.
    """
    soname = {"pthread": "libpthread.so.0", "dl": "libdl.so.2"}[name]
    asked = [compiler, f"-print-file-name={soname}"]
    found = subprocess.run(asked, check=False, capture_output=True, text=True).stdout
    return f"-l:{soname}" if found.strip() != soname else f"-l{name}"


def _share(compiler: str, options: Sequence[str], sources: Sequence[str], needed: Sequence[str], work: Path) -> None:
    # The driver's symbols come first: they replace the weak null pointers in the kernels' objects.
    command = [
        *(compiler, "-shared", "-o", LIBRARY, *_OPTIONS, "-I", str(DRIVER)),
        *options,
        *sources,
        *("-Wl,--gc-sections", "-Wl,--version-script=exports.map"),
        # Threads of the library may end after dlclose.
        *(f"-Wl,--wrap={name}" for name in _WRAPPED),
        *("-Wl,-z,defs", "-Wl,-z,nodelete", "-Wl,--build-id=none", "-s"),
        *("-lm", "-Wl,--no-as-needed", *(separate_library(compiler, name) for name in needed)),
    ]
    _run(command, work)


def _archive(
    compiler: str, binutils: Binutils, options: Sequence[str], sources: Sequence[str], function: str, work: Path
) -> None:
    """Write an archive of one object file that defines one global symbol: all others may be in other models, too."""
    named = (f"-Dtunesmith_get_api={function}", "-DTUNESMITH_STATIC", "-DTUNESMITH_NO_DLOPEN")
    relocatable = (compiler, "-r", "-nostdlib", "-o", "model.o", *_OPTIONS, "-I", str(DRIVER))
    _run([*relocatable, *named, *options, *sources], work)
    _run([binutils.objcopy, f"--keep-global-symbol={function}", "--strip-unneeded", "model.o"], work)
    _run([binutils.ar, "rcsD", ARCHIVE, "model.o"], work)


def _run(command: Sequence[str], work: Path) -> None:
    try:
        subprocess.run(command, cwd=work, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error:" in line.lower() or "undefined" in line]
        reason = (lines or error.stderr.splitlines() or [str(error)])[0]
        raise NotStandalone(f"linking: {reason[-300:]}") from error
