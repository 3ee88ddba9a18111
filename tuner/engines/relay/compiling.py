"""Relay modules into the files that a graph executor loads, laid out as TVMC does, and into what linkers take."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import autotvm, relay

from tuner.engines.protocol import faults
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import importing, linking, speedups

LIBRARY, GRAPH, PARAMS = "mod.so", "mod.json", "mod.params"
OBJECTS, ARCHIVE = "mod.tar", "mod.a"
ADDED = {"shared": None, "object": OBJECTS, "system-lib": ARCHIVE}
"""The file that each format of a build adds to the others."""
_VERIFIER_BUG = "#dbg_declare"


def load_records(path: str | None) -> list[Any]:
    """``(MeasureInput, MeasureResult)`` of a file of native AutoTVM lines, or none."""
    return list(autotvm.record.load_from_file(path)) if path else []


def pass_contexts(**config: Any) -> Iterator[Any]:
    """The contexts to compile in, best first; ``config`` is what the schedules ask for.

    LLVM 22's verifier refuses the debug declarations of some functions that TVM's common-subexpression pass
    rewrote ("location of #dbg_declare must be a pointer or int"); without that pass they build and run as fast.
    """
    yield tvm.transform.PassContext(opt_level=3, config=config)
    yield tvm.transform.PassContext(opt_level=3, config={**config, "tir.disable_cse_tir": True})


def is_verifier_bug(error: Exception) -> bool:
    return _VERIFIER_BUG in str(error)


@contextmanager
def dispatch(records: list[Any]) -> Iterator[None]:
    """Use ``records`` and nothing else: any context of our own keeps TVM from asking TopHub."""
    with autotvm.task.ApplyHistoryBest(records):
        yield


def tools(target: Any, form: str) -> linking.Tools:
    """The programs that the format needs, asked for before a long build.

    Raises EngineFailure ``invalid_option`` and ``cross_compiler_missing``.
    """
    if form not in ADDED:
        raise EngineFailure("invalid_option", f"format {form!r} is none of {', '.join(ADDED)}")
    found = linking.tools(target)
    if form == "shared" and found.triple and not found.compiler:
        raise found.missing()
    if form == "system-lib" and not found.archiver:
        raise found.archiver_missing()
    return found


@dataclass(frozen=True, kw_only=True)
class Schedules:
    """Where a build takes its schedules from."""

    dispatch: Callable[[], AbstractContextManager[None]]
    """A context in which TVM finds them."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Options of the ``PassContext``."""
    lines: Callable[[], list[str]] = list
    """The native records of those that the build took."""


def compile_model(
    imported: importing.Imported, target: Any, schedules: Schedules, out_dir: str, form: str = "shared"
) -> list[str]:
    """Build with ``schedules`` and write the files of the format; returns their names.

    Raises EngineFailure ``compile_failed``, and as ``tools``.
    """
    programs = tools(target, form)
    speedups.use_threads(1)
    library = _build(imported, target, schedules, system_lib=form == "system-lib")
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    written = _write_libraries(library.get_lib(), folder, form, programs)
    graph = json.loads(library.get_graph_json())
    # Graph executors skip this key when it comes last; without it outputs have no names.
    graph["metadata"] = {"outputs": list(imported.outputs)}
    (folder / GRAPH).write_text(json.dumps(graph))
    (folder / PARAMS).write_bytes(relay.save_param_dict(library.get_params()))
    return [*written, GRAPH, PARAMS]


def _write_libraries(module: Any, folder: Path, form: str, programs: linking.Tools) -> list[str]:
    for name in (LIBRARY, OBJECTS, ARCHIVE):
        # Not over a file that this process may have mapped into memory, and none left of another format.
        (folder / name).unlink(missing_ok=True)
    written = []
    if programs.compiler or not programs.triple:
        module.export_library(str(folder / LIBRARY), fcompile=programs.link)
        written.append(LIBRARY)
    added = ADDED[form]
    if added == OBJECTS:
        module.export_library(str(folder / OBJECTS), fcompile=linking.pack)
    if added == ARCHIVE:
        module.export_library(str(folder / ARCHIVE), fcompile=programs.archive)
    return [*written, added] if added else written


def _build(imported: importing.Imported, target: Any, schedules: Schedules, *, system_lib: bool) -> Any:
    # Functions of a system library register themselves when it is loaded; they can still be looked up by name.
    runtime = relay.backend.Runtime("cpp", {"system-lib": True} if system_lib else None)
    failure: Exception | None = None
    for context in pass_contexts(**schedules.config):
        try:
            with schedules.dispatch(), context:
                return relay.build(imported.module, target=target, params=imported.params, runtime=runtime)
        except Exception as error:  # noqa: BLE001 - relay.build raises whatever a pass, a schedule or LLVM raised
            failure = error
            if not is_verifier_bug(error):
                break
    raise faults.failure("compile_failed", "TVM cannot compile the model", failure) from failure
