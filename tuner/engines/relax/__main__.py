"""Entry point of the relax engine, TVM 0.27 with MetaSchedule: ``python -m tuner.engines.relax --event-fd N``."""

from __future__ import annotations

import sys
import time

from tuner.engines.runtime import environment

environment.apply()

# ruff: noqa: E402 - TVM, which these load, reads the environment
from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.relax import compiling, cuda, extracting, importing, plugins, records, searching, targets
from tuner.engines.relax.graph import lowering
from tuner.engines.relax.modules import reading
from tuner.engines.relax.release import RELEASE
from tuner.engines.relax.running import BUNDLES
from tuner.engines.runtime.program import Program

PROGRAM = Program("relax", RELEASE, BUNDLES, resolve=targets.resolve, start=searching.start, build=searching.build)


def _hello() -> Json:
    targets.leave_out_intrinsics()
    importing.install()
    gpu = cuda.device_exists()
    return PROGRAM.describe(plugins.install(), kinds=list(targets.KINDS), tuners=["metaschedule"], gpu=gpu)


def _check(params: Json, _: serving.Emitter) -> Json:
    return PROGRAM.check(params, reading.load(params["model"]).operators, targets.lanes, lowering.precisions_of)


def _compile(params: Json, emitter: serving.Emitter) -> Json:
    started = time.monotonic()
    build = lowering.Lowering.of(params)
    form = params.get("format") or "shared"
    compiling.tools(build.target, form)
    emitter.emit("progress", {"step": "import"})
    known = records.load(params.get("records"))
    facts = PROGRAM.facts(params, build.target)

    def load() -> importing.Imported:
        imported = reading.load(params["model"])
        emitter.emit("progress", {"step": "build"})
        return imported

    # Nothing else may refer to it: the build gives the weights as imported up.
    is_part = bool(params.get("part"))
    files, lines = compiling.compile_model(load(), build, known, params["out_dir"], form, facts, is_part=is_part)
    return {"files": files, "records": lines, "seconds": time.monotonic() - started}


def _choose(params: Json, _: serving.Emitter) -> Json:
    lowering.Lowering.of(params)
    return {"lines": records.best_lines(records.load(params.get("records")))}


def _compile_plain(params: Json, _: serving.Emitter) -> Json:
    return {"files": compiling.compile_plain(reading.load_module(params["model"]), params["out_dir"])}


def _audit(params: Json, emitter: serving.Emitter) -> Json:
    return compiling.audit(params, lambda: emitter.emit("progress", {"step": "audit"}))


def _extract(params: Json, emitter: serving.Emitter) -> Json:
    build = lowering.Lowering.of(params)
    emitter.emit("progress", {"step": "import"})
    imported = reading.load(params["model"])
    emitter.emit("progress", {"step": "extract"})
    return {"tasks": extracting.extract(imported, build, params["out_dir"])}


def _tune(params: Json, emitter: serving.Emitter) -> Json:
    if params["target"].startswith("cuda") and not params.get("runner") and not cuda.device_exists():
        raise serving.EngineFailure("no_device", "this machine has no CUDA GPU to measure on")
    return PROGRAM.tune(params, emitter)


HANDLERS: dict[str, serving.Handler] = {
    "audit": _audit,
    "check": _check,
    "choose": _choose,
    "compile": _compile,
    "compile_plain": _compile_plain,
    "extract": _extract,
    "inspect": lambda params, _: reading.inspect(params["path"]),
    "prepare": lambda params, _: reading.prepare(params["path"], params["out_path"]),
    "tune": _tune,
}

if __name__ == "__main__":
    sys.exit(PROGRAM.serve(HANDLERS, _hello))
