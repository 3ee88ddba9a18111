"""The library of a compiled model in C, in Python and in ONNX Runtime, beside TVM's executors and ONNX Runtime.

``./run bench runtime`` builds each model untuned with each engine, or takes the unpacked bundles of the format ``onnx``
in ``--bundles FOLDER/MODEL/ENGINE``. All ways run the same object files on the same inputs, each in a process of its
own, and are timed in turns. Times are in milliseconds unless their names say otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

from bench import engines, note, show, zoo
from domain import errors
from tuner.engines.runtime.library import linking, operators
from tuner.host import catalogue, environments
from tuner.host.inspection import Prepared
from tuner.results import verification

_HERE = Path(__file__).parent
_ENGINES = ("relay", "relax")
_MODELS = ("ppocr-cls", "ppocr-det", "squeezenet", "shufflenet", "magika")
_SLICE_SECONDS, _PAUSE_SECONDS = 0.05, 0.03
"""A way runs for so long at a time, and the next one begins when its process used no CPU for the pause."""
_LONGEST_PAUSE_SECONDS = 2.0
_LEAST_SLICES = 5
_OVERHEAD_RUNS = 300
_SESSIONS = 4
_CROWDED = ("c", "python", "onnxruntime", "tvm")
_PROGRAMS = ("python", "operator", "onnxruntime", "tvm")
"""Ways that are Python programs."""
_OPERATOR = "operator.onnx"
"""The model that the way of this name loads."""
_SET_THREADS = """
import sys, onnx
model = onnx.load(sys.argv[1])
model.graph.node[0].attribute.append(onnx.helper.make_attribute("threads", int(sys.argv[3])))
onnx.save(model, sys.argv[2])
"""
_PACED_RUNS, _PACED_RATE = 40, 10
_MILLI, _MICRO = 1e3, 1e6
Facts = dict[str, Any]


@dataclass(kw_only=True)
class Arm:
    """A process that runs the model in one way; the last line of each answer is JSON."""

    name: str
    process: subprocess.Popen[str]
    first_seconds: float = 0.0
    """From the start of the process to the first result."""
    samples: list[float] = field(default_factory=list)
    """Seconds per run, each the mean of a slice."""
    runs: int = 1
    """Runs in a slice."""

    @classmethod
    def start(cls, name: str, command: Sequence[str | Path], threads: int) -> Self:
        environment = {**os.environ, "TVM_NUM_THREADS": str(threads), "PYTHONPATH": str(_HERE.parent)}
        started = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        arm = cls(name=name, process=process)
        arm._answer()
        arm.first_seconds = time.perf_counter() - started
        return arm

    def ask(self, command: str) -> Facts:
        """Raises RuntimeError if the process ended."""
        assert self.process.stdin  # noqa: S101 - for mypy
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self._answer()

    def rest(self) -> None:
        """Wait until the process is idle: threads of TVM keep looking for work for a tenth of a second and longer."""
        last, end = self._cpu_ticks(), time.monotonic() + _LONGEST_PAUSE_SECONDS
        while time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)
            before, last = last, self._cpu_ticks()
            if last == before:
                return

    def _cpu_ticks(self) -> int:
        """CPU time of all threads, in hundredths of a second."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def _answer(self) -> Facts:
        assert self.process.stdout  # noqa: S101 - for mypy
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.name} ended with status {self.process.wait()}")
        return dict(json.loads(line))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    report: Facts = {"load_before": round(os.getloadavg()[0], 2), "models": {}}
    with tempfile.TemporaryDirectory(prefix="tunesmith-runtime-") as scratch:
        program = harness(Path(scratch))
        for name in options.models.split(","):
            folder = Path(scratch) / name
            folder.mkdir()
            report["models"][name] = _model(zoo.MODELS[name], folder, program, home, options)
    report["load_after"] = round(os.getloadavg()[0], 2)
    show(report)
    return 0


def _model(model: zoo.ZooModel, folder: Path, harness: Path, home: Path, options: argparse.Namespace) -> Facts:
    note(f"{model.name}: preparing")
    threads = [int(count) for count in options.threads.split(",")]
    path = zoo.fetch(model, home)
    prepared = engines.inspector(home).prepare(path, model.input_shapes, folder / "prepared.onnx")
    with engines.start("onnx", home, folder) as reference:
        seeded = verification.seed_inputs(reference, prepared.inputs, folder / "inputs", model=prepared.path, seeds=[0])
    found: Facts = {}
    for engine in options.engines.split(","):
        bundle = folder / engine
        try:
            _build(engine, model, prepared, bundle, home, options.bundles, max(threads))
        except errors.EngineError as error:
            found[engine] = {"not_built": error.message}
            continue
        shutil.copyfile(prepared.path, bundle / "prepared.onnx")
        found[engine] = measure(engine, bundle, seeded.paths[0], harness, home, threads, options.seconds)
    return found


def _build(
    engine: str, model: zoo.ZooModel, prepared: Prepared, bundle: Path, home: Path, bundles: Path | None, threads: int
) -> None:
    """Raises EngineError, also for models that need TVM."""
    if bundles is not None:
        shutil.copytree(bundles / model.name / engine, bundle)
        return
    note(f"{model.name}: building with {engine}")
    with engines.start(engine, home, bundle.parent) as session:
        engines.build_untuned(session, prepared.path, bundle, threads=threads, bundle_format="onnx")


def measure(
    engine: str, bundle: Path, inputs: Path, harness: Path, home: Path, threads: Sequence[int], seconds: float
) -> Facts:
    """Run the files of a build of the format ``onnx``, and ``prepared.onnx`` beside them, in all ways.

    ``inputs`` is an ``.npz`` file, beside which files are written; ``harness`` is the C program; ``seconds`` are those
    of timing for each number of threads. Raises RuntimeError if a process fails.
    """
    by_threads: Facts = {}
    facts: Facts = {}
    for count in threads:
        note(f"{bundle.parent.name}: {engine}, {count} threads")
        with arms_of(engine, bundle, inputs, harness, home, count) as arms:
            by_threads[str(count)] = _timed(arms, seconds)
            equal = equal_to_tvm(arms, bundle)
            facts |= {"equal_to_tvm": all(equal.values()), "equal_by_way": equal}
            if count == min(threads):
                facts |= _sizes(arms, bundle)
                facts["four_sessions_ms"] = {name: _crowd(arms[name], seconds) for name in _CROWDED}
            if count == max(threads):
                command = f"paced {_PACED_RUNS} {_PACED_RATE}"
                facts["cpu_seconds_of_40_runs_at_10_per_second"] = {
                    name: round(arms[name].ask(command)["cpu_seconds"], 4) for name in ("c", "tvm", "onnxruntime")
                }
    return {**facts, "threads": by_threads}


@contextmanager
def arms_of(
    engine: str,
    bundle: Path,
    inputs: Path,
    harness: Path,
    home: Path,
    threads: int,
    programs: Sequence[str] = _PROGRAMS,
) -> Iterator[dict[str, Arm]]:
    """Start C and ``programs``, of which Python writes the inputs for C. Raises RuntimeError if a process fails."""
    if "operator" in programs:
        # It has its own threads, as many as it was tuned for, whatever ONNX Runtime is told.
        onnx = environments.interpreter(catalogue.get("onnx"), home)
        files = (bundle / operators.MODEL, bundle / _OPERATOR)
        subprocess.run([onnx, "-c", _SET_THREADS, *files, str(threads)], check=True)
    with ExitStack() as stack:
        arms: dict[str, Arm] = {}
        for name in programs:
            kind = engine if name == "tvm" else name
            spec = catalogue.get(kind if kind in _ENGINES else "onnx")
            program = [environments.interpreter(spec, home), _HERE / "runtime_arm.py", kind, bundle, inputs]
            arms[name] = Arm.start(name, [*program, bundle / f"{name}.bin", str(threads)], threads)
            stack.callback(arms[name].close)
        # Its answer to any command follows the inputs.
        arms["python"].ask("memory")
        command = [harness, bundle / linking.LIBRARY, inputs.with_suffix(".bin"), bundle / "c.bin", str(threads)]
        arms["c"] = Arm.start("c", command, threads)
        stack.callback(arms["c"].close)
        yield arms


def _timed(arms: dict[str, Arm], seconds: float) -> Facts:
    for arm in arms.values():
        once = arm.ask("time 3")["seconds"]
        arm.runs = max(1, round(_SLICE_SECONDS / once))
        arm.rest()
    slices = max(_LEAST_SLICES, round(seconds / (len(arms) * (_SLICE_SECONDS + _PAUSE_SECONDS))))
    for _ in range(slices):
        for arm in arms.values():
            arm.samples.append(arm.ask(f"time {arm.runs}")["seconds"])
            arm.rest()
    medians = {name: median(arm.samples) for name, arm in arms.items()}
    overheads = {name: arms[name].ask(f"overhead {_OVERHEAD_RUNS}")["seconds"] for name in ("c", "python")}
    onnxruntime = arms["onnxruntime"].ask(f"overhead {_OVERHEAD_RUNS}")["seconds"]
    return {
        "ms": {name: round(value * _MILLI, 4) for name, value in medians.items()},
        "least_ms": {name: round(min(arm.samples) * _MILLI, 4) for name, arm in arms.items()},
        "slices": slices,
        "tvm_over_c": round(medians["tvm"] / medians["c"], 3),
        "first_result_ms": {name: round(arm.first_seconds * _MILLI) for name, arm in arms.items()},
        "outside_kernels_us": {name: round(value * _MICRO, 2) for name, value in overheads.items()},
        "python_adds_us": {
            "tunesmith": round((overheads["python"] - overheads["c"]) * _MICRO, 2),
            "onnxruntime": round(onnxruntime * _MICRO, 2),
        },
    }


def equal_to_tvm(arms: dict[str, Arm], bundle: Path) -> dict[str, bool]:
    """Return whether each way that runs the library wrote what TVM's executor wrote."""
    for arm in arms.values():
        # What it answers follows its outputs.
        arm.ask("memory")
    tvm = (bundle / "tvm.bin").read_bytes()
    libraries = ("c", "python", "operator")
    return {name: (bundle / f"{name}.bin").read_bytes() == tvm for name in libraries if name in arms}


def memory_beyond(arm: Arm) -> int:
    """Return the resident memory of the C program beyond weights, arena, and its inputs and outputs, in bytes."""
    found = arm.ask("memory")
    return int(found["rss_bytes"] - sum(found[name] for name in ("weight_bytes", "arena_bytes", "buffer_bytes")))


def _sizes(arms: dict[str, Arm], bundle: Path) -> Facts:
    memory = {name: arm.ask("memory") for name, arm in arms.items()}
    library = (bundle / linking.LIBRARY).stat().st_size
    return {
        "library_bytes": library,
        "library_beyond_weights_bytes": library - memory["c"]["weight_bytes"],
        "weight_bytes": memory["c"]["weight_bytes"],
        "arena_bytes": memory["c"]["arena_bytes"],
        "rss_bytes": {name: found["rss_bytes"] for name, found in memory.items()},
        "c_beyond_weights_and_arena_bytes": memory_beyond(arms["c"]),
        "tvm_files_bytes": sum(path.stat().st_size for path in bundle.glob("mod.*")),
    }


def _crowd(arm: Arm, seconds: float) -> Facts:
    found = arm.ask(f"crowd {_SESSIONS} {max(1.0, seconds / 3)}")
    return {name: round(found[name] * _MILLI, 4) for name in ("p50", "p99")} | {"runs": found["runs"]}


def harness(folder: Path) -> Path:
    """Compile the C program. Raises CalledProcessError."""
    compiler, program = os.environ.get("CC", "cc"), folder / "runtime_arm"
    source = [str(_HERE / "runtime_arm.c"), "-I", str(linking.DRIVER)]
    subprocess.run([compiler, "-O2", "-o", str(program), *source, "-ldl", "-lpthread"], check=True)
    return program


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench runtime", description=__doc__)
    parser.add_argument("--models", default=",".join(_MODELS), help="names of the zoo, separated by commas")
    parser.add_argument("--engines", default=",".join(_ENGINES))
    parser.add_argument("--threads", default="1,2", help="numbers of threads, separated by commas")
    parser.add_argument("--seconds", type=float, default=30, help="of timing, for each model, engine and thread count")
    parser.add_argument("--bundles", type=Path, help="folder of unpacked bundles: MODEL/ENGINE")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
