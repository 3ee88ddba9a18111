"""Linking of a plan, its weights and kernels with the driver to ``libmodel.so``."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tuner.engines.runtime.library import elf, memory, source
from tuner.engines.runtime.library.plan import NotStandalone, Plan

LIBRARY, HEADER = "libmodel.so", "tunesmith.h"
DRIVER = Path(__file__).parent / "c"
MAX_WEIGHT_BYTES = 500 * 1000**2
"""Weights beyond this take long to assemble, and beyond 2 GB do not link."""
_EXPORTS = "{ global: tunesmith_get_api; local: *; };\n"
_WEIGHTS = """\
    .section .rodata
    .balign {alignment}
    .globl tunesmith_weights
    .hidden tunesmith_weights
tunesmith_weights:
    .incbin "weights.bin"
    .byte 0
    .section .note.GNU-stack, "", %progbits
"""
_PROVIDED = frozenset(
    {
        "TVMFFIErrorSetRaisedFromCStrParts",
        "__TVMAPISetLastError",
        "__TVMBackendAllocWorkspace",
        "__TVMBackendFreeWorkspace",
        "__TVMBackendGetFuncFromEnv",
        "__TVMBackendParallelBarrier",
        "__TVMBackendParallelLaunch",
        "__TVMFFIEnvModLookupFromImports",
        "__TVMFFIFunctionCall",
        "__TVMFFIHandleInitOnce",
        "__TVMFuncCall",
    }
)
"""Functions of TVM's runtime that the driver defines, most of them as pointers."""
_CALLED = ".tvm_func."
"""Prefix of the symbols in which kernels keep what they call by name."""
_CALLABLE = frozenset(f"tvm.contrib.sort.{name}" for name in ("argsort", "argsort_nms", "sort", "topk"))
"""Functions that kernels may call by name, as ``c/calls.c`` lists them."""
_WRAPPED = ("expf", "exp2f", "logf", "log2f", "powf", "exp", "exp2", "log", "log2", "pow", "fmod", "fmodf")
"""Functions that ``c/math.c`` replaces by older versions."""


def link(plan: Plan, objects: Sequence[Path], facts: source.Facts, folder: Path, compiler: str) -> list[str]:
    """Write ``libmodel.so`` and ``tunesmith.h`` into ``folder`` and return their names.

    ``objects`` are the kernels' object files, ``compiler`` is a C compiler for their target. Raises NotStandalone for
    what needs TVM's runtime or does not link.
    """
    _refuse_runtime_calls(objects)
    packed = source.weights(plan.constants)
    if len(packed.content) > MAX_WEIGHT_BYTES:
        raise NotStandalone(f"{len(packed.content) // 1000**2} MB of weights, more than {MAX_WEIGHT_BYTES // 1000**2}")
    text = source.model(plan, memory.lay_out(plan), packed, facts)
    with tempfile.TemporaryDirectory(prefix="tunesmith-library-") as scratch:
        work = Path(scratch)
        (work / "model.c").write_text(text)
        (work / "weights.bin").write_bytes(packed.content)
        (work / "weights.S").write_text(_WEIGHTS.format(alignment=memory.ALIGNMENT))
        (work / "exports.map").write_text(_EXPORTS)
        _compile(compiler, [*map(str, objects)], work)
        # Unlink first: this process may have mapped the old file.
        (folder / LIBRARY).unlink(missing_ok=True)
        shutil.copyfile(work / LIBRARY, folder / LIBRARY)
    shutil.copyfile(DRIVER / HEADER, folder / HEADER)
    return [LIBRARY, HEADER]


def _refuse_runtime_calls(objects: Sequence[Path]) -> None:
    """Raise NotStandalone if kernels call functions of TVM's runtime that the driver lacks: pointers would be null."""
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


def separate_library(compiler: str, name: str) -> str:
    """Return the option for ``libNAME``, a part of libc that only old versions of glibc keep apart.

    Its linker name may stand for an empty archive, with which the result would not load on those.
    """
    soname = {"pthread": "libpthread.so.0", "dl": "libdl.so.2"}[name]
    asked = [compiler, f"-print-file-name={soname}"]
    found = subprocess.run(asked, check=False, capture_output=True, text=True).stdout
    return f"-l:{soname}" if found.strip() != soname else f"-l{name}"


def _compile(compiler: str, objects: list[str], work: Path) -> None:
    # The driver's symbols come first: they replace the weak null pointers in the kernels' objects.
    command = [
        *(compiler, "-shared", "-o", LIBRARY, "-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-I", str(DRIVER)),
        *(str(path) for path in sorted(DRIVER.glob("*.c"))),
        *("model.c", "weights.S", *objects),
        *("-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-Wl,--version-script=exports.map"),
        # Threads of the library may end after dlclose.
        *(f"-Wl,--wrap={name}" for name in _WRAPPED),
        *("-Wl,-z,defs", "-Wl,-z,nodelete", "-Wl,--build-id=none", "-s"),
        *("-lm", "-Wl,--no-as-needed", separate_library(compiler, "pthread")),
    ]
    try:
        subprocess.run(command, cwd=work, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error" in line or "undefined" in line]
        reason = (lines or error.stderr.splitlines() or [str(error)])[0]
        raise NotStandalone(f"linking: {reason[-300:]}") from error
