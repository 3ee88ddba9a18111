"""Compilation of Relay modules to graph executor files, named as by TVMC, and to linkable objects."""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import autotvm, relay

from tuner.engines.relay import corrections, importing, plans, prefetching, simplifying
from tuner.engines.relay.release import RELEASE
from tuner.engines.runtime import compiling, environment, faults, libraries, progress
from tuner.engines.runtime.library.plan import Plan
from tuner.engines.runtime.library.source import Facts
from tuner.engines.runtime.workspaces import Workspaces

GRAPH, PARAMS = "mod.json", "mod.params"
_LIST_MAGIC, _TENSOR_MAGIC = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F
_CPU = (1, 0)
"""Type and number of the device."""


def load_records(path: str | None) -> list[Any]:
    """Return the ``(MeasureInput, MeasureResult)`` pairs of a file's AutoTVM lines; empty without a file."""
    return [pair for _, pair in read_records(path)]


def read_records(path: str | None) -> list[tuple[str, Any]]:
    """Return the AutoTVM lines of a file, each with its pair; the file may have lines of Ansor, too."""
    lines = Path(path).read_text(encoding="utf-8").splitlines() if path else []
    own = [line for line in lines if line.strip() and not line.startswith("#") and "input" in json.loads(line)]
    return [(line, pair) for line in own if (pair := autotvm.record.decode(line)) is not None]


@contextmanager
def dispatch(records: list[Any]) -> Iterator[None]:
    """Apply ``records`` and nothing else: an explicit context keeps TVM from querying TopHub."""
    with autotvm.task.ApplyHistoryBest(records):
        yield


@dataclass(frozen=True, kw_only=True)
class Schedules:
    """Source of the schedules of a build."""

    dispatch: Callable[[], AbstractContextManager[None]]
    """Context in which TVM finds the schedules."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Options of the ``PassContext``."""
    lines: Callable[[], list[str]] = list
    """Returns the native records that the build used."""


def compile_model(
    imported: importing.Imported,
    target: Any,
    schedules: Schedules,
    out_dir: str,
    form: str,
    facts: Facts,
    *,
    is_part: bool = False,
) -> list[str]:
    """Build with ``schedules``, write the files of the format and the library, and return their names.

    ``is_part`` as in ``libraries.write``. Raises EngineFailure ``compile_failed``, and as ``compiling.tools_for``.
    """
    programs = compiling.tools_for(RELEASE, target, form)
    corrections.use_threads(1)
    workspaces = Workspaces(RELEASE)
    compiled = _build(imported, target, schedules, form, workspaces)
    environment.release()
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    graph = json.loads(compiled.get_graph_json())
    # Graph executors skip this key when it comes last; without it the output names would be lost.
    graph["metadata"] = {"outputs": list(imported.outputs)}
    (folder / GRAPH).write_text(json.dumps(graph))
    weights = _save(compiled.get_params(), folder / PARAMS)
    module = compiled.get_lib()
    # The weights are now in the file.
    del compiled
    environment.release()

    def plan() -> Plan:
        return workspaces.add_to(plans.read(graph, weights, imported.outputs))

    with compiling.exported(module) as objects:
        written = compiling.write_libraries(objects, folder, form, programs)
        library = libraries.write(plan, objects, facts, folder, programs, form, imported.operators, is_part=is_part)
    return [*written, GRAPH, PARAMS, *library]


def _save(params: Mapping[str, Any], path: Path) -> dict[str, memoryview]:
    """Write weights in the format of ``relay.save_param_dict``, which copies all of them three times.

    Return the content of each, mapped from the file.
    """
    places: dict[str, slice] = {}
    # An earlier file may still be mapped.
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.write(struct.pack("<QQQ", _LIST_MAGIC, 0, len(params)))
        for encoded in map(str.encode, sorted(params)):
            file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.write(struct.pack("<Q", len(params)))
        for name, array in sorted(params.items()):
            dtype, content = tvm.DataType(array.dtype), array.numpy().tobytes()
            kind = (dtype.type_code, dtype.bits, dtype.lanes)
            file.write(struct.pack("<QQiiiBBH", _TENSOR_MAGIC, 0, *_CPU, len(array.shape), *kind))
            file.write(struct.pack(f"<{len(array.shape) + 1}q", *map(int, array.shape), len(content)))
            places[name] = slice(file.tell(), file.tell() + len(content))
            file.write(content)
    with path.open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return {name: mapped[place] for name, place in places.items()}


def optimized(imported: importing.Imported, target: Any) -> Any:
    """Return the module with fused functions that a build lowers, in a ``dispatch`` that lowering needs as well: it
    gets the records of operators in their final layouts.

    Raises EngineFailure ``compile_failed``.
    """
    corrections.use_threads(1)
    with faults.reported("compile_failed", "TVM cannot compile the model"):
        network = simplifying.simplified(imported, target)

        def make() -> Any:
            return relay.optimize(network.module, target=target, params=network.params)[0]

        return compiling.build(RELEASE, make, instruments=[simplifying.Folding()], disabled=simplifying.DONE)


def _build(imported: importing.Imported, target: Any, schedules: Schedules, form: str, workspaces: Workspaces) -> Any:
    # Functions of a system library register themselves when it is loaded; they can still be looked up by name.
    runtime = relay.backend.Runtime("cpp", {"system-lib": True} if form == "system-lib" else None)

    environment.release()
    progress.begin("fold")
    hint = faults.sizes_hint(imported.operators)
    with faults.reported("compile_failed", "TVM cannot compile the model", hint=hint):
        network = simplifying.simplified(imported, target)

        def make() -> Any:
            with schedules.dispatch():
                return relay.build(network.module, target=target, params=network.params, runtime=runtime)

        return compiling.build(
            RELEASE,
            make,
            assertions=compiling.needs_assertions(form),
            instruments=[simplifying.Folding(), _Fused(), workspaces.instrument],
            disabled=simplifying.DONE,
            **prefetching.options(target),
            **schedules.config,
        )


@tvm.instrument.pass_instrument
class _Fused:
    """Counts the operators that are built one by one once they are fused."""

    def run_after_pass(self, module: Any, info: Any) -> None:
        if info.name == "FuseOps":
            progress.begin("build", sum(len(operators(function)) for function, _ in fused(module)))


def fused(module: Any) -> list[tuple[Any, int]]:
    """Return the fused functions of a module, with the number of calls of each; equal functions are built once."""
    found: dict[int, tuple[Any, int]] = {}

    def visit(node: Any) -> None:
        function = node.op if isinstance(node, relay.Call) else None
        if isinstance(function, relay.Function) and function.attrs and "Primitive" in function.attrs:
            same = tvm.ir.structural_hash(function)
            found[same] = (function, found[same][1] + 1 if same in found else 1)

    for function in module.functions.values():
        if isinstance(function, relay.Function):
            relay.analysis.post_order_visit(function, visit)
    return [*found.values()]


def operators(function: Any) -> list[str]:
    """Return the names of the operators that a fused function calls."""
    names: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
            names.append(node.op.name)

    relay.analysis.post_order_visit(function.body, visit)
    return names
