"""The library of a build, ``libmodel.so``, beside the files that TVM loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import compiling, faults
from tuner.engines.runtime.compiling import Objects, Tools
from tuner.engines.runtime.library import kernels, linking, parts
from tuner.engines.runtime.library import operators as ort
from tuner.engines.runtime.library.plan import NotStandalone, Plan, UnknownSizes
from tuner.engines.runtime.library.source import Facts

NEEDS_TVM = "needs-tvm.txt"
"""Says what a model needs TVM for, so that there is no library."""
WRITTEN = (
    *(linking.LIBRARY, linking.HEADER, linking.WEIGHTS, linking.ARCHIVE, linking.ARCHIVE_HEADER),
    *(ort.MODEL, ort.OPERATOR, kernels.FILE),
)
"""Names of files that libraries consist of, and of those about them."""


def write(
    plan: Callable[[], Plan],
    objects: Objects,
    facts: Facts,
    folder: Path,
    programs: Tools,
    form: str,
    operators: Mapping[str, int],
    *,
    is_part: bool = False,
) -> list[str]:
    """Link the library of the model that ``plan`` reads, or write ``NEEDS_TVM``; return the names of the files.

    ``operators`` are the model's, by count. With ``is_part``, also write what a library of several sizes is linked
    from. Raises EngineFailure ``compile_failed`` for a format that is made from the
    library, if there is none.
    """
    for name in (*WRITTEN, parts.FILE, NEEDS_TVM):
        (folder / name).unlink(missing_ok=True)
    try:
        return _write(plan(), objects, facts, folder, programs, form, is_part=is_part)
    except NotStandalone as error:
        need = str(error)
        if isinstance(error, UnknownSizes) and (selecting := faults.sized_by_values(operators)):
            need += f": {selecting}"
        if form in compiling.WITHOUT_TVM:
            message = f"a bundle of the format {form} cannot be made: the model needs TVM for {need}"
            raise EngineFailure("compile_failed", message, hint="Use the bundle format shared.") from error
        (folder / NEEDS_TVM).write_text(f"{need}\n")
        return [NEEDS_TVM]


def _write(
    plan: Plan, objects: Objects, facts: Facts, folder: Path, programs: Tools, form: str, *, is_part: bool
) -> list[str]:
    if is_part and plan.open_axes:
        # Sizes of outputs are either those of inputs or what a run decides.
        raise UnknownSizes
    if programs.c_compiler is None:
        raise NotStandalone("linking: no C compiler for the target was found")
    binutils = None
    if form == compiling.STATIC and programs.archiver and programs.objcopy:
        binutils = linking.Binutils(ar=programs.archiver, objcopy=programs.objcopy)
    paths = [Path(path) for path in objects.paths]
    written = linking.link(plan, paths, facts, folder, programs.c_compiler, binutils)
    kernels.write(plan, folder)
    if form == compiling.ONNX:
        written += ort.write(plan, None, facts, folder, programs.c_compiler)
    if is_part:
        parts.write(plan, paths, facts, folder / parts.FILE)
        written.append(parts.FILE)
    return written
