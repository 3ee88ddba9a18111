"""``python -m tests.support.topology.scripted_engine NAME --event-fd N``: the scripted engine as a process.

For faults in which it does not matter what an engine computes: it speaks the real protocol. The size of a job's input
chooses what it does, so that jobs differ without settings: every size has tuning tasks of its own, and ``POISON`` kills
each engine that measures it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.topology import witness
from tests.support.worker.scripted import HELLO, SPEC, Script, ScriptedEngine
from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import Emitter

POISON = 13
_TRIAL_SECONDS = 0.15
_METHODS = (
    "check",
    "quantize",
    "rewrite",
    "make_inputs",
    "run",
    "run_perturbed",
    "time",
    "profile",
    "choose",
    "compare",
    "compile",
    "audit",
    "extract",
    "tune",
)
_MARK = b"\nsize="
_SHAPE = {"name": SPEC.name, "dtype": SPEC.dtype}


class WatchedEngine(ScriptedEngine):
    def _measure(self, key: str, *given: Any) -> None:
        if f'size {POISON}"' in key:
            os.kill(os.getpid(), signal.SIGKILL)
        with witness.watched():
            super()._measure(key, *given)

    def _time(self, params: Json) -> Json:
        with witness.watched():
            return super()._time(params)


def inspect(params: Json, _: Emitter) -> Json:
    spec = {**_SHAPE, "shape": ["n", 3, "h", "w"]}
    return {
        "inputs": [spec],
        "outputs": [spec],
        "opset": 13,
        "ir_version": 8,
        "operators": {"Conv": 2},
        "parameters": 10,
    }


def prepare(params: Json, _: Emitter) -> Json:
    """The model's bytes and the size that was asked for."""
    shape = list(params["input_shapes"][SPEC.name])
    Path(params["out_path"]).write_bytes(Path(params["path"]).read_bytes() + _MARK + str(shape[-1]).encode())
    spec = {**_SHAPE, "shape": shape}
    return {"inputs": [spec], "outputs": [spec], "operators": {"Conv": 2}, "folded": True, "memory_bytes": 1}


def extract(engine: WatchedEngine, script: Script, params: Json) -> Json:
    size = Path(params["model"]).read_bytes().rpartition(_MARK)[2].decode()
    script.tasks = (f"conv of size {size}", f"dense of size {size}")
    return engine.request("extract", params, timeout=None)


def serve(engine: ScriptedEngine, own: Mapping[str, serving.Handler]) -> int:
    """Answer requests as an engine's process does, by ``own`` handlers or else as the script has it."""

    def ask(method: str) -> serving.Handler:
        return lambda params, emitter: engine.request(method, params, timeout=None, on_event=emitter.emit)

    return serving.serve({**{method: ask(method) for method in _METHODS}, **own}, lambda: engine.hello)


def main() -> int:
    name = sys.argv.pop(1)
    print(f"the scripted {name} engine", file=sys.stderr, flush=True)  # noqa: T201 - as TVM does, for the job's log
    script = Script(seconds_per_trial=_TRIAL_SECONDS)
    engine = WatchedEngine(script, {**HELLO, "engine": name, "host": {}, "methods": []})
    return serve(
        engine, {"inspect": inspect, "prepare": prepare, "extract": lambda params, _: extract(engine, script, params)}
    )


if __name__ == "__main__":
    sys.exit(main())
