"""Entry point of the relay engine, TVM 0.19 with AutoTVM and Ansor: ``python -m tuner.engines.relay --event-fd N``."""

from __future__ import annotations

import sys
import time

from tuner.engines.runtime import environment

environment.apply()

# ruff: noqa: E402 - TVM, which these load, reads the environment
from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.relay import compiling, corrections, importing, mixed_precision, plugins, targets, templates, tuners
from tuner.engines.relay.ansor import mixing
from tuner.engines.relay.release import RELEASE
from tuner.engines.relay.running import BUNDLES
from tuner.engines.runtime.compiling import tools_for
from tuner.engines.runtime.program import Program

PROGRAM = Program("relay", RELEASE, BUNDLES, resolve=targets.resolve, start=tuners.start, build=tuners.build)


def _hello() -> Json:
    corrections.install()
    templates.install()
    mixing.install()
    return PROGRAM.describe(plugins.install(), kinds=["llvm"], tuners=sorted(tuners.TUNERS))


def _check(params: Json, _: serving.Emitter) -> Json:
    return PROGRAM.check(params, importing.load(params["model"]).operators, targets.lanes, mixed_precision.of_target)


def _compile(params: Json, emitter: serving.Emitter) -> Json:
    started = time.monotonic()
    target = targets.resolve(params["target"], params["threads"])
    form = params.get("format") or "shared"
    tools_for(RELEASE, target, form)
    tuner = tuners.of(params)
    emitter.emit("progress", {"step": "import"})
    imported, schedules = tuner.prepare(params, target)
    emitter.emit("progress", {"step": "build"})
    with mixed_precision.blamed(params.get("precision")):
        facts = PROGRAM.facts(params, target)
        out_dir, is_part = params["out_dir"], bool(params.get("part"))
        files = compiling.compile_model(imported, target, schedules, out_dir, form, facts, is_part=is_part)
    return {"files": files, "records": schedules.lines(), "seconds": time.monotonic() - started}


def _choose(params: Json, emitter: serving.Emitter) -> Json:
    target = targets.resolve(params["target"], params["threads"])
    tuner = tuners.of(params)
    emitter.emit("progress", {"step": "choose"})
    return {"lines": tuner.choose(params, target)}


def _audit(params: Json, emitter: serving.Emitter) -> Json:
    target = targets.resolve(params["target"], params["threads"])
    return tuners.audit(params, target, lambda: emitter.emit("progress", {"step": "audit"}))


def _extract(params: Json, emitter: serving.Emitter) -> Json:
    target = targets.resolve(params["target"], params["threads"])
    tuner = tuners.of(params)
    emitter.emit("progress", {"step": "import"})
    tuner.load(params)
    emitter.emit("progress", {"step": "extract"})
    with mixed_precision.blamed(params.get("precision")):
        return {"tasks": tuner.extract(params, target)}


HANDLERS: dict[str, serving.Handler] = {
    "audit": _audit,
    "check": _check,
    "choose": _choose,
    "compile": _compile,
    "extract": _extract,
}

if __name__ == "__main__":
    sys.exit(PROGRAM.serve(HANDLERS, _hello))
