"""Entry point of ``./run bench NAME``; each benchmark is a module of this package whose ``main()`` prints JSON."""

from __future__ import annotations

import importlib
import signal
import sys

BENCHMARKS = {
    "demo": "one real model tuned end to end: what the job published, and its latencies",
    "coverage": "which engine imports, verifies and tunes which model of the zoo, in what time and memory",
    "operators": "which operators of ONNX the engines import and compute as ONNX Runtime does",
    "trials": "trials per second and best latencies: stock TVM and the engines, on the same tasks",
    "latency": "tuned models beside untuned ones, ONNX Runtime and OpenVINO, in turns",
    "runtime": "the library of a model in C, in Python and in ONNX Runtime, beside TVM's executors and ONNX Runtime",
    "equality": "whether libraries of models compute, bit for bit, what TVM's executors do",
    "layers": "where the time goes: a compiled model's operators beside ONNX Runtime's",
    "scale": "tuning one job with 1, 2, 4 and 8 workers whose measuring takes a fixed, simulated time",
    "service": "latency, memory and cost of a crowd of watchers while a job tunes; large transfers",
    "planted": "wrong builds that verification must catch, and right ones that it must accept",
    "outcomes": "whether real models bear bf16 and int8, judged by data and by seeded inputs, beside NNCF",
    "sizes": "one library for several sizes on a mix of requests, beside runtimes with open dimensions",
    "large": "models with gigabytes of weights: uploaded, tuned and run, and the memory of every kind of process",
    "hostile": "malicious and damaged files: uploaded, read, run; how each ended, and the state of the service after",
}


def main() -> int:
    name, arguments = (sys.argv[1:2] or ["list"])[0], sys.argv[2:]
    if name not in BENCHMARKS:
        if name != "list":
            sys.stderr.write(f"there is no benchmark {name!r}; these there are:\n")
        width = max(map(len, BENCHMARKS))
        sys.stderr.write("".join(f"{known:{width}}  {what}\n" for known, what in BENCHMARKS.items()))
        return 0 if name == "list" else 2
    signal.signal(signal.SIGTERM, _stop)
    try:
        status: int = importlib.import_module(f"bench.{name}").main(arguments)
    except KeyboardInterrupt as stopped:
        # Ctrl-C, which Python itself reports, has no number.
        return 128 + (stopped.args[0] if stopped.args else signal.SIGINT)
    return status


def _stop(number: int, _: object) -> None:
    """End as Ctrl-C does: the service and its engines end, and no row takes it for a failure of its model."""
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    sys.exit(main())
