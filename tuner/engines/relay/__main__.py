"""``python -m tuner.engines.relay --event-fd N``: TVM 0.19 with AutoTVM as an engine."""

from __future__ import annotations

import sys
import time

from tuner.engines.relay import environment

environment.apply()

# ruff: noqa: E402 - TVM reads the environment while it loads
import tvm
from tvm import autotvm

from tuner.engines.protocol import serving, settling
from tuner.engines.protocol.messages import Json
from tuner.engines.relay import choosing, compiling, extracting, importing, rounds, running, speedups, targets, tuning

ROUNDS = rounds.Rounds()


def _hello() -> Json:
    speedups.install()
    return {
        "engine": "relay",
        "toolchain": {"engine": "relay", "tvm": tvm.__version__, "llvm": targets.llvm_version()},
        "mcpu": targets.native_cpu(),
        "cpus": targets.known_cpus(),
        "methods": sorted(HANDLERS),
    }


def _check(params: Json, _: serving.Emitter) -> Json:
    return {"operators": importing.load(params["model"]).operators}


def _compile(params: Json, emitter: serving.Emitter) -> Json:
    started = time.monotonic()
    target = targets.resolve(params["target"], params["threads"])
    form = params.get("format") or "shared"
    compiling.tools(target, form)
    emitter.emit("progress", {"step": "import"})
    imported = importing.load(params["model"])
    emitter.emit("progress", {"step": "build"})
    chosen = choosing.choose(compiling.load_records(params.get("records")))
    files = compiling.compile_model(imported, target, chosen, params["out_dir"], form)
    lines = [autotvm.record.encode(*pair) for pair in chosen]
    return {"files": files, "records": lines, "seconds": time.monotonic() - started}


def _extract(params: Json, emitter: serving.Emitter) -> Json:
    target = targets.resolve(params["target"], params["threads"])
    emitter.emit("progress", {"step": "import"})
    imported = importing.load(params["model"])
    emitter.emit("progress", {"step": "extract"})
    options = tuning.Options.of(params.get("options") or {})
    return {"tasks": extracting.extract(imported, target, keep_layout=options.keep_layout)}


def _tune(params: Json, emitter: serving.Emitter) -> Json:
    return ROUNDS.tune(params, emitter.emit)


def _run(params: Json, _: serving.Emitter) -> Json:
    place = (params["bundle"], params.get("inputs"))
    outputs = running.run(*place, params.get("outputs"), params["threads"])
    samples = _samples(params) if params.get("repeat") else []
    return {"outputs": outputs, "samples": samples}


def _time(params: Json, _: serving.Emitter) -> Json:
    samples = _samples(params)
    settling.settle()
    return {"samples": samples}


def _samples(params: Json) -> list[float]:
    counts = (params.get("number") or 1, params["repeat"])
    return running.sample(params["bundle"], params.get("inputs"), params["threads"], *counts)


HANDLERS: dict[str, serving.Handler] = {
    "check": _check,
    "compile": _compile,
    "extract": _extract,
    "tune": _tune,
    "run": _run,
    "time": _time,
}

if __name__ == "__main__":
    try:
        status = serving.serve(HANDLERS, _hello)
    finally:
        ROUNDS.close()
    sys.exit(status)
