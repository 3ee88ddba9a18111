"""Relay modules into the three files that a graph executor loads, laid out as TVMC does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
from tvm import autotvm, relay

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import importing, speedups

LIBRARY, GRAPH, PARAMS = "mod.so", "mod.json", "mod.params"
_VERIFIER_BUG = "#dbg_declare"


def load_records(path: str | None) -> list[Any]:
    """``(MeasureInput, MeasureResult)`` of a file of native AutoTVM lines, or none."""
    return list(autotvm.record.load_from_file(path)) if path else []


def pass_contexts() -> Iterator[Any]:
    """The contexts to compile in, best first.

    LLVM 22's verifier refuses the debug declarations of some functions that TVM's common-subexpression pass
    rewrote ("location of #dbg_declare must be a pointer or int"); without that pass they build and run as fast.
    """
    yield tvm.transform.PassContext(opt_level=3)
    yield tvm.transform.PassContext(opt_level=3, config={"tir.disable_cse_tir": True})


def is_verifier_bug(error: Exception) -> bool:
    return _VERIFIER_BUG in str(error)


@contextmanager
def dispatch(records: list[Any]) -> Iterator[None]:
    """Use ``records`` and nothing else: any context of our own keeps TVM from asking TopHub."""
    with autotvm.task.ApplyHistoryBest(records):
        yield


def compile_model(imported: importing.Imported, target: Any, records: list[Any], out_dir: str) -> list[str]:
    """Build with ``records`` and write the files; returns their names. Raises EngineFailure ``compile_failed``."""
    speedups.use_threads(1)
    library = _build(imported, target, records)
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    # Not over a file that this process may have mapped into memory.
    (folder / LIBRARY).unlink(missing_ok=True)
    library.get_lib().export_library(str(folder / LIBRARY))
    graph = json.loads(library.get_graph_json())
    # Graph executors skip this key when it comes last; without it outputs have no names.
    graph["metadata"] = {"outputs": list(imported.outputs)}
    (folder / GRAPH).write_text(json.dumps(graph))
    (folder / PARAMS).write_bytes(relay.save_param_dict(library.get_params()))
    return [LIBRARY, GRAPH, PARAMS]


def _build(imported: importing.Imported, target: Any, records: list[Any]) -> Any:
    failure: Exception | None = None
    for context in pass_contexts():
        try:
            with dispatch(records), context:
                return relay.build(imported.module, target=target, params=imported.params)
        except Exception as error:  # noqa: BLE001 - relay.build raises whatever a pass, a schedule or LLVM raised
            failure = error
            if not is_verifier_bug(error):
                break
    message = f"TVM cannot compile the model: {type(failure).__name__}: {str(failure)[-1500:]}"
    raise EngineFailure("compile_failed", message) from failure
