"""Simulated engine: ``python -m bench.scale_engine SECONDS LOG -m tuner.engines.NAME --event-fd N``.

Runs the scripted engine of the tests as a process. A trial sleeps for ``SECONDS``; every trial and every start of a
round adds a line to ``LOG``. All other requests are answered at once.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from domain.ports import OnEvent
from tests.support.topology import scripted_engine
from tests.support.worker.scripted import HELLO, SPEC, Script, ScriptedEngine
from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json

TASKS = 24
ROUND = "round"
"""Log line at the start of each round."""
_SPACE = 100_000


class LoggingEngine(ScriptedEngine):
    def __init__(self, script: Script, hello: Json, log: Path) -> None:
        super().__init__(script, hello)
        self._log = log

    def _extract(self, params: Json) -> Json:
        """Return tasks whose workloads are unique to this model, so that no records cover them."""
        model = hashlib.sha256(Path(params["model"]).read_bytes()).hexdigest()[:16]
        self._script.tasks = [f"conv2d {number} of {model}" for number in range(TASKS)]
        return super()._extract(params)

    def _tune(self, params: Json, on_event: OnEvent, *others: object) -> Json:
        self._write(ROUND)
        return super()._tune(params, on_event, *others)

    def _measure(self, key: str, index: int, *given: Any) -> None:
        self._script.on_trial = lambda _: self._write(f"{key} {index}")
        super()._measure(key, index, *given)

    def _write(self, line: str) -> None:
        with self._log.open("a") as file:
            file.write(line + "\n")


def _prepare(params: Json, _: serving.Emitter) -> Json:
    Path(params["out_path"]).write_bytes(Path(params["path"]).read_bytes())
    spec = {"name": SPEC.name, "dtype": SPEC.dtype, "shape": list(SPEC.shape)}
    return {"inputs": [spec], "outputs": [spec], "operators": {"Conv": 1}, "folded": True, "memory_bytes": 1}


def main() -> int:
    seconds, log, _, module = sys.argv[1:5]
    del sys.argv[1:5]
    script = Script(seconds_per_trial=float(seconds), space_size=_SPACE)
    hello = {**HELLO, "engine": module.rpartition(".")[2], "host": {}, "methods": []}
    return scripted_engine.serve(LoggingEngine(script, hello, Path(log)), {"prepare": _prepare})


if __name__ == "__main__":
    sys.exit(main())
