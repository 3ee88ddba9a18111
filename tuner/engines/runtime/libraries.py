"""The library of a build, ``libmodel.so``, beside the files that TVM loads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tuner.engines.runtime.compiling import Objects, Tools
from tuner.engines.runtime.library import linking
from tuner.engines.runtime.library.plan import NotStandalone, Plan
from tuner.engines.runtime.library.source import Facts

NEEDS_TVM = "needs-tvm.txt"
"""Says what a model needs TVM for, so that there is no library."""


def write(plan: Callable[[], Plan], objects: Objects, facts: Facts, folder: Path, programs: Tools) -> list[str]:
    """Link the library of the model that ``plan`` reads, or write ``NEEDS_TVM``; return the names of the files."""
    for name in (linking.LIBRARY, linking.HEADER, NEEDS_TVM):
        (folder / name).unlink(missing_ok=True)
    try:
        return linking.link(plan(), [Path(path) for path in objects.paths], facts, folder, programs.c_compiler)
    except NotStandalone as need:
        (folder / NEEDS_TVM).write_text(f"{need}\n")
        return [NEEDS_TVM]
