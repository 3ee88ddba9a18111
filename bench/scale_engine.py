"""An engine that measures nothing: ``python -m bench.scale_engine SECONDS LOG -m tuner.engines.NAME --event-fd N``.

It speaks the engines' protocol as the relay and the reference engine do. A trial takes ``SECONDS`` of sleep, and its
latency is drawn from a hash of the candidate; every trial is a line in ``LOG``. Whatever else a job asks for is
answered at once. Standard library and protocol only.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path

from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json

TASKS = 24
SPACE = 100_000
ROUND = "round"
"""The line of the log that begins each."""
_LOAD_SECONDS = 0.5
"""What starting takes, besides Python itself."""
_INPUT = {"name": "x", "dtype": "float32", "shape": [1, 3, 8, 8]}


class Simulator:
    def __init__(self, name: str, seconds: float, log: Path) -> None:
        self._name = name
        self._seconds = seconds
        self._log = log
        self._known: dict[str, set[int]] = {}

    def hello(self) -> Json:
        time.sleep(_LOAD_SECONDS)
        return {
            "engine": self._name,
            "toolchain": {"engine": self._name, "tvm": "simulated", "llvm": "simulated"},
            "mcpu": "generic",
            "cpus": ["generic"],
            "kinds": ["llvm"],
            "tuners": ["autotvm"],
            "methods": sorted(self.handlers()),
        }

    def handlers(self) -> dict[str, serving.Handler]:
        return {
            "prepare": _prepare,
            "check": lambda _params, _emitter: {"operators": {"Conv": 1}, "lanes": 16, "precisions": ["f32"]},
            "make_inputs": _make_inputs,
            "run": self._run,
            "time": self._time,
            "compare": _compare,
            "compile": _compile,
            "extract": _extract,
            "audit": lambda _params, _emitter: {"checked": 0, "wrong": [], "failed": [], "skipped": []},
            "choose": lambda _params, _emitter: {"lines": ["usual"]},
            "tune": self._tune,
        }

    def _run(self, params: Json, _: serving.Emitter) -> Json:
        Path(params["outputs"]).parent.mkdir(parents=True, exist_ok=True)
        Path(params["outputs"]).write_text(self._name)
        return {"seconds": 1e-3, "outputs": [], "samples": []}

    def _time(self, params: Json, _: serving.Emitter) -> Json:
        tuned = "tuned" in Path(params.get("bundle", "")).name.split("-")
        return {"samples": [1e-3 if tuned else 2e-3] * params["repeat"]}

    def _tune(self, params: Json, emitter: serving.Emitter) -> Json:
        key = params["workload_key"]
        if params.get("fresh"):
            self._known.pop(key, None)
        known = self._known.setdefault(key, set())
        if params["history"]:
            lines = [json.loads(line) for line in Path(params["history"]).read_text().splitlines()]
            known |= {line["index"] for line in lines if line["key"] == key}
        started = time.monotonic()
        _append(self._log, ROUND)
        for number in range(params["trials"]):
            if params["seconds"] is not None and time.monotonic() - started >= params["seconds"]:
                return {"trials": number, "exhausted": False, "reason": "seconds"}
            index = next(each for each in range(SPACE) if each not in known)
            time.sleep(self._seconds)
            known.add(index)
            event = _trial(key, index, params["first_trial"] + number)
            _append(Path(params["journal"]), json.dumps(event))
            _append(self._log, f"{key} {index}")
            emitter.emit("trial", event)
        return {"trials": params["trials"], "exhausted": False, "reason": "trials"}


def _trial(key: str, index: int, number: int) -> Json:
    drawn = int.from_bytes(hashlib.sha256(f"{key} {index}".encode()).digest()[:4]) / 2**32
    latencies = [1e-3 * (0.3 + 0.7 * drawn)]
    return {
        "workload_key": key,
        "trial_number": number,
        "schedule": json.dumps({"key": key, "index": index, "latencies": latencies}),
        "schedule_digest": hashlib.sha256(f"{key} {index}".encode()).hexdigest(),
        "latencies": latencies,
        "error": None,
        "error_message": None,
        "finished_at": time.time(),
        "default": index == 0,
    }


def _extract(params: Json, _: serving.Emitter) -> Json:
    """Tasks whose workloads are those of this model alone: nothing on record covers them."""
    model = hashlib.sha256(Path(params["model"]).read_bytes()).hexdigest()[:16]
    tasks = [
        {
            "position": number, "name": "conv2d.x86", "description": f"conv2d {number}",
            "workload_key": json.dumps([model, number]), "weight": 1, "flop": 1e6 * (1 + number / TASKS),
            "space_size": SPACE, "definition": None, "alternatives": None,
        }
        for number in range(TASKS)
    ]  # fmt: skip
    return {"tasks": tasks}


def _prepare(params: Json, _: serving.Emitter) -> Json:
    Path(params["out_path"]).write_bytes(Path(params["path"]).read_bytes())
    return {"inputs": [_INPUT], "outputs": [{**_INPUT, "name": "y"}], "operators": {"Conv": 1}, "folded": True}


def _make_inputs(params: Json, _: serving.Emitter) -> Json:
    return {"paths": [_touch(Path(params["out_dir"]) / f"{seed}.npz") for seed in params["seeds"]]}


def _compare(_params: Json, _: serving.Emitter) -> Json:
    output = {"output": "y", "dtype": "float32", "max_abs": 0.0, "max_rel": 0.0, "atol": 1e-5, "rtol": 1e-4}
    return {"outputs": [{**output, "passed": True}]}


def _compile(params: Json, _: serving.Emitter) -> Json:
    files = ["mod.so", "mod.json", "mod.params"]
    for name in files:
        _touch(Path(params["out_dir"]) / name)
    return {"files": files, "records": [], "seconds": 0.0}


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")


def _touch(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)
    return str(path)


def main() -> int:
    seconds, log, _, module = sys.argv[1:5]
    simulator = Simulator(module.rpartition(".")[2], float(seconds), Path(log))
    sys.argv[1:5] = []
    return serving.serve(simulator.handlers(), simulator.hello)


if __name__ == "__main__":
    sys.exit(main())
