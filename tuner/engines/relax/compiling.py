"""Compilation of models to shared libraries for the Relax virtual machine, with weights inside, and audits."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tuner.engines.protocol.messages import Json
from tuner.engines.relax import cuda, importing, kernels, open_sizes, plans, records, schedules, targets
from tuner.engines.relax.graph import lowering
from tuner.engines.relax.modules import reading
from tuner.engines.relax.release import RELEASE
from tuner.engines.runtime import auditing, compiling, faults, libraries
from tuner.engines.runtime.auditing import Check
from tuner.engines.runtime.library import elf
from tuner.engines.runtime.library.plan import NotStandalone, Plan
from tuner.engines.runtime.library.source import Facts
from tuner.engines.runtime.workspaces import Workspaces

SIGNATURE = "mod.json"
_EXECUTABLE, _BLOB = "devc.o", "__tvm_ffi__library_bin"
"""Object file with the virtual machine's code and weights, and its symbol."""
_KERNELS = "lib0.o"
"""Object file that TVM writes first."""
_TRIES = 3


@dataclass(frozen=True)
class _Memory:
    """What is known of the memory that a build's kernels need, once it is built."""

    workspaces: Workspaces = field(default_factory=lambda: Workspaces(RELEASE))
    largest: dict[int, int] = field(default_factory=dict)
    """As ``open_sizes.largest`` returns it."""


def tools(target: Any, form: str) -> compiling.Tools:
    """Return the tools as ``compiling.tools_for`` does; also raises EngineFailure ``compiler_missing``."""
    programs = compiling.tools_for(RELEASE, target, form)
    if targets.is_gpu(target):
        cuda.require_compiler()
    return programs


def compile_model(
    imported: importing.Imported,
    build: lowering.Lowering,
    known: Sequence[records.Record],
    out_dir: str,
    form: str,
    facts: Facts,
    *,
    is_part: bool = False,
) -> tuple[list[str], list[str]]:
    """Build with the best of ``known`` and write the files of the format and the library.

    Returns the names of the files, and the lines of the records that were used, one for each workload.
    ``is_part`` as in ``libraries.write``. Raises EngineFailure ``compile_failed``, and as ``tools``.
    """
    programs = tools(build.target, form)
    with faults.reported("compile_failed", "TVM cannot compile the model"):
        module, lines = use_records(lowering.lower(imported, build), known)
        # Schedules may rearrange the weights, so that those as imported serve nothing.
        imported = replace(imported, module=None)
        module = lowering.finish(schedules.apply(module, build.target), build.target)
        memory = _Memory()
        executable = _build(module, build.target, form, memory)
    device = "cuda" if targets.is_gpu(build.target) else "cpu"
    folder = Path(out_dir)
    with compiling.exported(executable, None if form == "system-lib" else _packer(programs)) as objects:
        del executable, module
        files = _write(objects, imported, folder, form, programs, device)
        files += _write_library(objects, imported, folder, form, programs, facts, device, memory, is_part=is_part)
    return files, lines


def compile_plain(imported: importing.Imported, out_dir: str) -> list[str]:
    """Build tensor functions unscheduled, for any CPU of this machine's kind, as the reference for their other builds.

    No schedule, no vectors, no optimization by LLVM. Returns the names of the files. Raises EngineFailure
    ``compile_failed``.
    """
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0, "num-cores": 1})
    programs = tools(target, "shared")
    options = tvm.transform.PassContext(opt_level=0, config={"tirx.disable_vectorize": True})
    with faults.reported("compile_failed", "TVM cannot compile the plain model"), target, options:
        executable = relax.build(imported.module, target, relax_pipeline=_lower_calls(target))
    with compiling.exported(executable, _packer(programs)) as objects:
        return _write(objects, imported, Path(out_dir), "shared", programs, "cpu")


def _packer(programs: compiling.Tools) -> Callable[..., str]:
    """Return what writes the executable's object file. TVM's code generator would copy the weights three times more."""

    def pack(module: Any, _is_system_lib: bool, _prefix: str, folder: str) -> str:
        kernels = Path(folder) / _KERNELS
        if not kernels.exists():  # A model without kernels, such as one whose outputs are its inputs.
            programs.compile_nothing(kernels)
        packed = tvm.get_global_func("runtime.ModulePackImportsToTensor")(module)
        path = Path(folder) / _EXECUTABLE
        elf.write(path, _BLOB, memoryview(np.from_dlpack(packed)).cast("B"), like=kernels)
        return str(path)

    return pack


def _write(
    objects: compiling.Objects,
    imported: importing.Imported,
    folder: Path,
    form: str,
    programs: compiling.Tools,
    device: str,
) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    written = compiling.write_libraries(objects, folder, form, programs)
    signature = {
        "executor": "relax-vm",
        "device": device,
        "inputs": list(imported.inputs),
        "outputs": list(imported.outputs),
    }
    (folder / SIGNATURE).write_text(json.dumps(signature))
    return [*written, SIGNATURE]


def _write_library(
    objects: compiling.Objects,
    imported: importing.Imported,
    folder: Path,
    form: str,
    programs: compiling.Tools,
    facts: Facts,
    device: str,
    memory: _Memory,
    *,
    is_part: bool,
) -> list[str]:
    """Write the library or why there is none. The executable's object file is read, not linked."""
    # A module without kernels is an empty C file.
    kernels = [path for path in objects.paths if Path(path).suffix == ".o" and Path(path).name != _EXECUTABLE]
    executable = next((Path(path) for path in objects.paths if Path(path).name == _EXECUTABLE), None)

    def plan() -> Plan:
        if device != "cpu" or executable is None:
            raise NotStandalone("CUDA" if device == "cuda" else "its executable")
        blob = elf.content(executable, _BLOB)
        symbols = {symbol for path in kernels for symbol in elf.symbols(Path(path))}
        plan = plans.read(blob, symbols, imported.inputs, imported.outputs, memory.largest)
        return memory.workspaces.add_to(plan)

    kept = replace(objects, paths=kernels)
    return libraries.write(plan, kept, facts, folder, programs, form, imported.operators, is_part=is_part)


@dataclass(frozen=True, kw_only=True)
class Applied:
    """A function of a module and the record that schedules it."""

    variable: Any
    function: Any
    work: Any
    record: records.Record
    scheduled: Any
    """``PrimFunc``."""


def applicable(module: Any, known: Sequence[records.Record]) -> Iterator[Applied]:
    """Yield each function that has a record, with the fastest record of its workload that still applies."""
    best = records.by_workload(known)
    for variable, function in module.functions_items():
        if not best or not isinstance(function, tirx.PrimFunc):
            continue
        work = records.workload(function)
        key = records.key_of(work)
        for record in best.get(key, ())[:_TRIES]:
            try:
                scheduled = records.replay(record, work).mod["main"]
            except Exception as error:  # noqa: BLE001 - a record of another TVM may fail anywhere
                logging.getLogger(__name__).warning("a record of %s does not apply: %s", key, faults.text_of(error))
                continue
            yield Applied(variable=variable, function=function, work=work, record=record, scheduled=scheduled)
            break


def use_records(module: Any, known: Sequence[records.Record]) -> tuple[Any, list[str]]:
    """Schedule each function by its ``applicable`` record; return the module and the lines of the records."""
    used: dict[str, str] = {}
    for each in list(applicable(module, known)):
        attributes = {**dict(each.scheduled.attrs), **dict(each.function.attrs), "tirx.is_scheduled": True}
        module[each.variable] = each.scheduled.without_attr("global_symbol").with_attr(attributes)
        used[records.key_of(each.work)] = each.record.line
    return module, list(used.values())


def _build(module: Any, target: Any, form: str, memory: _Memory) -> Any:
    @tvm.transform.module_pass(opt_level=0)
    def note(lowered: Any, _: Any) -> Any:
        if not targets.is_gpu(target):
            memory.largest.update(open_sizes.largest(lowered))
        return lowered

    def make() -> Any:
        with target:
            # Passes over the network look into functions as they were scheduled.
            pipeline = tvm.transform.Sequential([_lower_calls(target), note, kernels.finishing(target)])
            return relax.build(
                module,
                target,
                relax_pipeline=pipeline,
                tir_pipeline=kernels.pipeline(target),
                system_lib=form == "system-lib",
            )

    assertions = compiling.needs_assertions(form)
    return compiling.build(RELEASE, make, assertions=assertions, instruments=[memory.workspaces.instrument])


def _lower_calls(target: Any) -> Any:
    """Return the passes that remain of TVM's own pipelines once functions are scheduled: memory and calls."""
    transform = relax.transform
    return tvm.transform.Sequential(
        [
            transform.RewriteDataflowReshape(),
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
            *([transform.RewriteCUDAGraph()] if targets.is_gpu(target) else []),
            transform.LowerAllocTensor(),
            transform.KillAfterLastUse(),
            transform.LowerRuntimeBuiltin(),
            transform.ComputePrimValue(),
            transform.VMShapeLower(),
            transform.AttachGlobalSymbol(),
        ]
    )


def audit(params: Json, on_progress: Callable[[], None]) -> Json:
    """Audit the records of ``params``, as ``compile`` accepts them. What this machine cannot run is ``skipped``."""
    build = lowering.Lowering.of(params)
    known = records.load(params.get("records"))
    lowered = lowering.lower(reading.load(params["model"]), build)
    chosen = {records.key_of(each.work): each for each in applicable(lowered, known)}
    place = (params["target"], params["threads"])
    checks = [
        Check(
            line=each.record.line,
            function="compare",
            arguments=(records.definition(each.work), each.record.line, *place),
        )
        for each in chosen.values()
    ]
    missing = targets.is_gpu(build.target) and not cuda.device_exists()
    hindrance = "this machine has no CUDA GPU" if missing else None
    return auditing.audit_apart(RELEASE, params, build.target, checks, on_progress, hindrance=hindrance)
