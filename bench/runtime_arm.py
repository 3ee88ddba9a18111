"""A model in a Python process, for ``bench.runtime``: ``python runtime_arm.py KIND FOLDER INPUTS OUTPUTS THREADS``.

KIND is ``python`` (the library, by ``tunesmith.runtime``), ``operator`` (the library in ONNX Runtime), ``onnxruntime``,
``relay`` or ``relax`` (TVM's own executors). INPUTS is an ``.npz`` file. ``runtime_arm.c`` describes the rest.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np


class Library:
    """The library without TVM."""

    def __init__(self, folder: Path, feeds: dict[str, Any], threads: int) -> None:
        from tunesmith.runtime import InferenceSession

        self.session = InferenceSession(folder / "libmodel.so", threads=threads)
        self._feeds = {info.name: _aligned(feeds[info.name]) for info in self.session.get_inputs()}

    def run(self) -> list[Any]:
        return self.session.run(None, self._feeds)

    def seconds(self, number: int) -> float:
        return _looped(self.run, number)

    def overhead(self, number: int) -> float:
        """Return the median time of ``run`` that is not spent in kernels."""
        library = self.session._model
        api, count = library._api, len(library._kernels)
        times = (ctypes.c_uint64 * count)()
        outside = []
        library._api = _Profiling(api, times, count)
        try:
            for _ in range(number):
                started = time.perf_counter()
                self.run()
                outside.append(time.perf_counter() - started - sum(times) * 1e-9)
        finally:
            library._api = api
        return median(outside)


class _Profiling:
    """The library's interface, whose runs tell the times of kernels."""

    def __init__(self, api: Any, times: Any, count: int) -> None:
        self.run = lambda *arguments: api.profile(*arguments, times, count)
        self.error, self.close = api.error, api.close


class Onnx:
    def __init__(self, path: Path, feeds: dict[str, Any], threads: int, library: Path | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        if library:
            options.register_custom_ops_library(str(library))
        self._open = lambda: onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._options = options
        self.session = self._open()
        self._feeds = {given.name: _aligned(feeds[given.name]) for given in self.session.get_inputs()}

    def run(self) -> list[Any]:
        return self.session.run(None, self._feeds)

    def seconds(self, number: int) -> float:
        return _looped(self.run, number)

    def overhead(self, number: int) -> float:
        """Return the median time of ``run`` outside ONNX Runtime's own C++ function, by its profiler."""
        with tempfile.TemporaryDirectory() as folder:
            self._options.enable_profiling = True
            self._options.profile_file_prefix = f"{folder}/profile"
            session = self._open()
            walls = []
            for _ in range(number):
                started = time.perf_counter()
                session.run(None, self._feeds)
                walls.append(time.perf_counter() - started)
            events = json.loads(Path(session.end_profiling()).read_text())
        inside = [event["dur"] * 1e-6 for event in events if event["name"] == "model_run"]
        return median(wall - run for wall, run in zip(walls[-len(inside) :], inside, strict=True))


class Relay:
    """TVM's graph executor."""

    def __init__(self, folder: Path, feeds: dict[str, Any], threads: int) -> None:
        import tvm
        from tvm.contrib import graph_executor

        tvm.get_global_func("runtime.config_threadpool")(1, threads)
        self._device = tvm.cpu(0)
        library = tvm.runtime.load_module(str(folder / "mod.so"))
        self._executor = graph_executor.create((folder / "mod.json").read_text(), library, self._device)
        self._executor.load_params((folder / "mod.params").read_bytes())
        for name, array in feeds.items():
            self._executor.set_input(name, array)

    def run(self) -> list[Any]:
        self._executor.run()
        return [self._executor.get_output(place).numpy() for place in range(self._executor.get_num_outputs())]

    def seconds(self, number: int) -> float:
        return float(self._executor.module.time_evaluator("run", self._device, number=number)().mean)


class Relax:
    """TVM's virtual machine."""

    def __init__(self, folder: Path, feeds: dict[str, Any], threads: int) -> None:
        import tvm
        from tvm import relax

        tvm.get_global_func("runtime.config_threadpool")(1, threads)
        self._device = tvm.cpu(0)
        self._machine = relax.VirtualMachine(tvm.runtime.load_module(str(folder / "mod.so")), self._device)
        specs = json.loads((folder / "mod.json").read_text())["inputs"]
        self._arguments = [tvm.runtime.tensor(feeds[spec["name"]], self._device) for spec in specs]

    def run(self) -> list[Any]:
        answer = self._machine["main"](*self._arguments)
        return [value.numpy() for value in ([answer] if hasattr(answer, "numpy") else list(answer))]

    def seconds(self, number: int) -> float:
        return float(self._machine.time_evaluator("main", self._device, number=number)(*self._arguments).mean)


def _make(kind: str, folder: Path, feeds: dict[str, Any], threads: int) -> Any:
    if kind == "python":
        return Library(folder, feeds, threads)
    if kind == "operator":
        return Onnx(folder / "operator.onnx", feeds, threads, folder / "libtunesmith_ort.so")
    if kind == "onnxruntime":
        return Onnx(folder / "prepared.onnx", feeds, threads)
    return {"relay": Relay, "relax": Relax}[kind](folder, feeds, threads)


def _aligned(array: Any) -> Any:
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    made = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def _looped(run: Any, number: int) -> float:
    # As TVM's time_evaluator does: it wakes threads and fills caches.
    run()
    started = time.perf_counter()
    for _ in range(number):
        run()
    return (time.perf_counter() - started) / number


def _paced(run: Any, number: int, rate: float) -> float:
    """Return the process's CPU time of ``number`` runs, ``rate`` a second."""
    started = time.process_time()
    for _ in range(number):
        run()
        time.sleep(1 / rate)
    return time.process_time() - started


def _crowd(make: Any, sessions: int, seconds: float) -> dict[str, Any]:
    """Run so many sessions at once for so long, each in a thread of its own."""
    times: list[float] = []
    ready = threading.Barrier(sessions)

    def work() -> None:
        # TVM's threads belong to the thread that makes the session.
        mine = make()
        mine.run()
        ready.wait()
        end = time.perf_counter() + seconds
        found = []
        while (started := time.perf_counter()) < end:
            mine.run()
            found.append(time.perf_counter() - started)
        times.extend(found)

    threads = [threading.Thread(target=work) for _ in range(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.sort()
    return {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "runs": len(times)}


def _memory() -> dict[str, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    [kilobytes] = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
    return {"rss_bytes": kilobytes * 1024}


def main() -> None:
    kind, folder, inputs, outputs, threads = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:5], int(sys.argv[5])
    os.environ["TVM_NUM_THREADS"] = str(threads)
    feeds = dict(np.load(inputs))
    arm = _make(kind, folder, feeds, threads)
    results = arm.run()
    _say({})
    Path(outputs).write_bytes(b"".join(np.ascontiguousarray(each).tobytes() for each in results))
    if kind == "python":
        ordered = [feeds[info.name] for info in arm.session.get_inputs()]
        Path(inputs).with_suffix(".bin").write_bytes(b"".join(np.ascontiguousarray(each).tobytes() for each in ordered))
    for line in sys.stdin:
        command, *values = line.split()
        if command == "time":
            _say({"seconds": arm.seconds(int(values[0]))})
        elif command == "overhead":
            _say({"seconds": arm.overhead(int(values[0]))})
        elif command == "paced":
            _say({"cpu_seconds": _paced(arm.run, int(values[0]), float(values[1]))})
        elif command == "crowd":
            _say(_crowd(lambda: _make(kind, folder, feeds, 1), int(values[0]), float(values[1])))
        elif command == "memory":
            _say(_memory())


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
