"""``python -m tuner.engines.relax --event-fd N``: TVM 0.27 with MetaSchedule as an engine."""

from __future__ import annotations

import sys
import time

from tuner.engines.relax import environment

environment.apply()

# ruff: noqa: E402 - TVM reads the environment while it loads
import tvm

from tuner.engines.protocol import remote, serving, settling, trials
from tuner.engines.protocol.messages import Json
from tuner.engines.relax import (
    auditing,
    compiling,
    cuda,
    extracting,
    lowering,
    measuring,
    plugins,
    records,
    rounds,
    running,
    targets,
)
from tuner.engines.relax.modules import reading

ROUNDS = rounds.Rounds()
REMOTE = remote.Remote(measuring.session_child)


def _hello() -> Json:
    environment.leave_out_intrinsics()
    registry = plugins.install()
    return {
        "engine": "relax",
        "toolchain": {
            "engine": "relax",
            "tvm": registry.version(tvm.__version__),
            "llvm": targets.llvm_version(),
        },
        "mcpu": targets.native_cpu(),
        "cpus": targets.known_cpus(),
        "foreign_cpus": targets.foreign_cpus(),
        "kinds": list(targets.KINDS),
        "tuners": ["metaschedule"],
        "plugins": registry.described,
        "gpu": cuda.device_exists(),
        "methods": sorted(HANDLERS),
    }


def _check(params: Json, _: serving.Emitter) -> Json:
    answer: Json = {"operators": reading.load(params["model"]).operators}
    if params.get("target"):
        answer["lanes"] = targets.lanes(params["target"], params["threads"])
    return answer


def _inspect(params: Json, _: serving.Emitter) -> Json:
    return reading.inspect(params["path"])


def _prepare(params: Json, _: serving.Emitter) -> Json:
    return reading.prepare(params["path"], params["out_path"])


def _compile(params: Json, emitter: serving.Emitter) -> Json:
    started = time.monotonic()
    build = lowering.Build.of(params)
    form = params.get("format") or "shared"
    compiling.tools(build.target, form)
    emitter.emit("progress", {"step": "import"})
    imported = reading.load(params["model"])
    emitter.emit("progress", {"step": "build"})
    known = records.load(params.get("records"))
    compiled = compiling.compile_model(imported, build, known, params["out_dir"], form)
    return {"files": compiled.files, "records": compiled.lines, "seconds": time.monotonic() - started}


def _choose(params: Json, _: serving.Emitter) -> Json:
    lowering.Build.of(params)
    return {"lines": records.best_lines(records.load(params.get("records")))}


def _compile_plain(params: Json, _: serving.Emitter) -> Json:
    compiled = compiling.compile_plain(reading.load_module(params["model"]), params["out_dir"])
    return {"files": compiled.files}


def _audit(params: Json, emitter: serving.Emitter) -> Json:
    return auditing.audit(params, lambda: emitter.emit("progress", {"step": "audit"}))


def _extract(params: Json, emitter: serving.Emitter) -> Json:
    build = lowering.Build.of(params)
    emitter.emit("progress", {"step": "import"})
    imported = reading.load(params["model"])
    emitter.emit("progress", {"step": "extract"})
    return {"tasks": extracting.extract(imported, build, params["out_dir"])}


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


def _samples(params: Json) -> list[float]:
    counts = (params.get("number") or 1, params["repeat"])
    return running.sample(params["bundle"], params.get("inputs"), params["threads"], *counts)


HANDLERS: dict[str, serving.Handler] = {
    "audit": _audit,
    "check": _check,
    "choose": _choose,
    "compile": _compile,
    "compile_plain": _compile_plain,
    "extract": _extract,
    "inspect": _inspect,
    "prepare": _prepare,
    "tune": _tune,
    "run": _run,
    "time": _time,
}

if __name__ == "__main__":
    try:
        status = serving.serve(HANDLERS, _hello)
    finally:
        ROUNDS.close()
        REMOTE.close()
    sys.exit(status)
