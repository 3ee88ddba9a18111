"""``python -m tuner.engines.relay --event-fd N``: TVM 0.19 with AutoTVM and Ansor as an engine."""

from __future__ import annotations

import sys
import time

from tuner.engines.relay import environment

environment.apply()

# ruff: noqa: E402 - TVM reads the environment while it loads
import tvm

from tuner.engines.protocol import remote, serving, settling, trials
from tuner.engines.protocol.messages import Json
from tuner.engines.relay import (
    auditing,
    compiling,
    diagnostics,
    importing,
    measuring,
    mixed_precision,
    plugins,
    profiling,
    rounds,
    running,
    speedups,
    targets,
    tuners,
)
from tuner.engines.relay.templates import installing

ROUNDS = rounds.Rounds()
REMOTE = remote.Remote(measuring.session_child)


def _hello() -> Json:
    speedups.install()
    installing.install()
    diagnostics.install()
    registry = plugins.install()
    return {
        "engine": "relay",
        "toolchain": {
            "engine": "relay",
            "tvm": registry.version(tvm.__version__),
            "llvm": targets.llvm_version(),
        },
        "mcpu": targets.native_cpu(),
        "cpus": targets.known_cpus(),
        "foreign_cpus": targets.foreign_cpus(),
        "kinds": ["llvm"],
        "tuners": sorted(tuners.TUNERS),
        "plugins": registry.described,
        "methods": sorted(HANDLERS),
    }


def _check(params: Json, _: serving.Emitter) -> Json:
    answer: Json = {"operators": importing.load(params["model"]).operators}
    if not params.get("target"):
        return answer
    try:
        target = targets.resolve(params["target"], params["threads"])
    except serving.EngineFailure:
        # Whoever builds for it is told: the question is whether the model can be imported.
        return {**answer, "lanes": None, "precisions": []}
    return {**answer, "lanes": targets.lanes(target), "precisions": mixed_precision.of_target(target)}


def _compile(params: Json, emitter: serving.Emitter) -> Json:
    started = time.monotonic()
    target = targets.resolve(params["target"], params["threads"])
    form = params.get("format") or "shared"
    compiling.tools(target, form)
    tuner = tuners.of(params)
    mixed_precision.require(params, target)
    emitter.emit("progress", {"step": "import"})
    imported, schedules = tuner.prepare(params, target)
    emitter.emit("progress", {"step": "build"})
    with mixed_precision.blamed(params.get("precision")):
        files = compiling.compile_model(imported, target, schedules, params["out_dir"], form)
    return {"files": files, "records": schedules.lines(), "seconds": time.monotonic() - started}


def _choose(params: Json, emitter: serving.Emitter) -> Json:
    target = targets.resolve(params["target"], params["threads"])
    tuner = tuners.of(params)
    emitter.emit("progress", {"step": "choose"})
    return {"lines": tuner.choose(params, target)}


def _audit(params: Json, emitter: serving.Emitter) -> Json:
    target = targets.resolve(params["target"], params["threads"])
    tuners.of(params)
    return auditing.audit(params, target, lambda: emitter.emit("progress", {"step": "audit"}))


def _extract(params: Json, emitter: serving.Emitter) -> Json:
    target = targets.resolve(params["target"], params["threads"])
    tuner = tuners.of(params)
    mixed_precision.require(params, target)
    emitter.emit("progress", {"step": "import"})
    tuner.load(params)
    emitter.emit("progress", {"step": "extract"})
    with mixed_precision.blamed(params.get("precision")):
        return {"tasks": tuner.extract(params, target)}


def _tune(params: Json, emitter: serving.Emitter) -> Json:
    return ROUNDS.tune(params, emitter.emit)


def _run(params: Json, _: serving.Emitter) -> Json:
    runner = trials.Runner.of(params)
    if runner:
        return REMOTE.run(params, runner)
    place = (params["bundle"], params.get("inputs"))
    outputs = running.run(*place, params.get("outputs"), params["threads"])
    samples = _samples(params) if params.get("repeat") else []
    return {"outputs": outputs, "samples": samples}


def _time(params: Json, _: serving.Emitter) -> Json:
    runner = trials.Runner.of(params)
    if runner:
        timed = REMOTE.run({**params, "outputs": None}, runner)
        return {"samples": timed["samples"], "device": timed["device"]}
    samples = _samples(params)
    settling.settle()
    return {"samples": samples}


def _profile(params: Json, _: serving.Emitter) -> Json:
    place = (params["bundle"], params.get("inputs"), params["threads"])
    return {"layers": profiling.layers(*place, params["repeat"])}


def _samples(params: Json) -> list[float]:
    counts = (params.get("number") or 1, params["repeat"])
    return running.sample(params["bundle"], params.get("inputs"), params["threads"], *counts)


HANDLERS: dict[str, serving.Handler] = {
    "audit": _audit,
    "check": _check,
    "choose": _choose,
    "compile": _compile,
    "extract": _extract,
    "tune": _tune,
    "run": _run,
    "time": _time,
    "profile": _profile,
}

if __name__ == "__main__":
    try:
        status = serving.serve(HANDLERS, _hello)
    finally:
        ROUNDS.close()
        REMOTE.close()
    sys.exit(status)
