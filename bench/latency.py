"""Latency of tuned models compared to untuned ones, ONNX Runtime and OpenVINO: ``./run bench latency --json``.

Each model is tuned by a job of a service with its own home folder; then all builds are timed alternately, in one run
per model. Prints JSON: milliseconds, verification results, and geometric means of the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import engines, hosting, note, show, zoo
from domain import errors
from domain.artifacts import Timing, Variant
from tuner.host import catalogue, environments, hardware
from tuner.host.catalogue import EngineSpec
from tuner.host.session import EngineSession, Limits
from tuner.results import conditions, timing, verification
from tuner.results.timing import Timed
from tunesmith import errors as client_errors
from tunesmith.client import Client

MODELS = (
    "ppocr-cls", "ppocr-det", "ppocr-rec", "magika", "yolox-det", "minilm", "squeezenet", "shufflenet", "resnet50",
    "densenet121", "inception-v1",
)  # fmt: skip
OPENVINO = EngineSpec(
    name="openvino", module="bench.openvino", requirements=catalogue.ROOT / "requirements" / "openvino.txt"
)
_UNTUNED = ("relay", "relax")
_BENCHMARK_SECONDS = 90.0
_SHOWN = ("published", "summary", "speedup_over_untuned", "precision", "portfolio", "conditions")
"""Fields kept from a job's report."""


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    paths = {name: zoo.fetch(zoo.MODELS[name], home) for name in options.models}
    environments.install(OPENVINO, home, on_progress=note)
    pythons = Pythons.of(home)
    measured: list[dict[str, Any]] = []
    with _folder(options.keep) as folder:
        _tune(paths, options, home, folder)
        for name, path in paths.items():
            model = Model(name=name, path=path, shapes=zoo.MODELS[name].input_shapes)
            row = measure(model, bundles(folder, name), pythons, folder / name, threads=options.threads)
            measured.append(row)
            note(f"{name}: {row}")
    device = hardware.device(options.threads)
    report = {
        "device": device.key, "threads": options.threads, "seconds": options.seconds, "tuner": options.tuner,
        "models": measured, **summary(measured),
    }  # fmt: skip
    show(report)
    return 0


def _tune(paths: dict[str, Path], options: argparse.Namespace, home: Path, folder: Path) -> None:
    wanted = [
        (name, precision) for name in paths for precision in options.precisions if not is_tuned(folder, name, precision)
    ]
    if not wanted:
        return
    for spec in catalogue.ENGINES.values():
        # The jobs use a home folder without records, but the engines of the usual one.
        os.environ[environments.variable(spec)] = str(environments.interpreter(spec, home))
    os.environ["TUNESMITH_HOME"] = str(folder)
    with hosting.running(folder, say=note):
        for name, precision in wanted:
            job = _tune_one(
                folder, name, paths[name], precision=precision, shapes=zoo.MODELS[name].input_shapes,
                tuner=options.tuner, seconds=options.seconds, threads=options.threads,
            )  # fmt: skip
            note(f"{name} {precision}: {job}")


def summary(models: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Return geometric means of ratios, over 1 where the tuned model is faster; None if nothing can be compared."""
    pairs = {
        "geomean_vs_untuned": ("untuned_ms", "tuned_ms"),
        "geomean_vs_ort": ("ort_ms", "tuned_ms"),
        "geomean_vs_openvino": ("openvino_ms", "tuned_ms"),
        "geomean_bf16_vs_openvino_default": ("openvino_default_ms", "tuned_bf16_ms"),
        "geomean_bf16_vs_ort": ("ort_ms", "tuned_bf16_ms"),
    }
    return {name: _geomean(models, *columns) for name, columns in pairs.items()}


def _geomean(models: Sequence[dict[str, Any]], slower: str, faster: str) -> float | None:
    ratios = [row[slower] / row[faster] for row in models if row.get(slower) and row.get(faster)]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="tunesmith-latency-") as scratch:
        yield Path(scratch)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench latency", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=sorted(zoo.MODELS), default=list(MODELS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=300.0, help="of tuning, for each model and precision")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tuner", default="auto")
    parser.add_argument("--precisions", nargs="+", default=["f32"], choices=["f32", "bf16", "int8", "auto"])
    parser.add_argument(
        "--keep", type=Path, help="folder of jobs, records and bundles; what it has is timed and not tuned again"
    )
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)


@dataclass(frozen=True, kw_only=True)
class Pythons:
    home: Path
    of_engine: Mapping[str, Path]

    @classmethod
    def of(cls, home: Path) -> Pythons:
        specs = [*catalogue.ENGINES.values(), OPENVINO]
        return cls(home=home, of_engine={spec.name: environments.interpreter(spec, home) for spec in specs})


@dataclass(frozen=True, kw_only=True)
class Model:
    name: str
    path: Path
    shapes: Mapping[str, tuple[int, ...]]


Bundles = Mapping[str, tuple[Path | None, dict[str, Any]]]


def measure(model: Model, bundles: Bundles, pythons: Pythons, folder: Path, *, threads: int) -> dict[str, Any]:
    """Return a row of the table; unavailable values are left out and explained in ``problems``."""
    with ExitStack() as stack:
        return _Measurement(model, bundles, pythons, folder / "timed", threads, stack).row()


class _Measurement:
    def __init__(
        self, model: Model, bundles: Bundles, pythons: Pythons, folder: Path, threads: int, stack: ExitStack
    ) -> None:
        self._bundles, self._pythons, self._folder, self._threads = bundles, pythons, folder, threads
        self._stack, self._name = stack, model.name
        self._problems: list[str] = []
        self._timed: list[Timed[str]] = []
        self._verified: dict[str, bool] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._reference = self._engine("onnx", "onnx")
        prepared = engines.inspector(pythons.home).prepare(model.path, dict(model.shapes), folder / "prepared.onnx")
        self._prepared = prepared.path
        self._seeds = verification.SEEDS if set(bundles) <= {"f32"} else verification.NARROW_SEEDS
        self._inputs = verification.seed_inputs(
            self._reference, prepared.inputs, folder / "inputs", model=prepared.path, seeds=self._seeds
        ).paths
        self._expected = verification.run_reference(
            self._reference, prepared.path, self._inputs, folder / "expected", threads=threads
        )

    def row(self) -> dict[str, Any]:
        self._timed.append(timing.reference(self._reference, self._prepared, self._inputs[0], threads=self._threads))
        self._add_openvino()
        for engine in _UNTUNED:
            self._add_untuned(engine)
        for precision, (bundle, job) in self._bundles.items():
            self._add_tuned(precision, bundle, job)
        timings, seen = conditions.until_quiet(
            lambda watch: timing.interleave(self._timed, seconds=_BENCHMARK_SECONDS, between=watch.look),
            hardware.device(self._threads),
        )
        return self._report(timings) | {"noisy": seen.noisy, "reasons": seen.reasons, "load": seen.load}

    def _report(self, timings: Mapping[str, Timing]) -> dict[str, Any]:
        shown = {name: round(each.median * 1e3, 4) for name, each in timings.items()}
        untuned = {name: shown[f"untuned {name}"] for name in _UNTUNED if f"untuned {name}" in shown}
        best = min(untuned, key=lambda name: untuned[name], default=None)
        row: dict[str, Any] = {
            "name": self._name, "ort_ms": shown.get(Variant.REFERENCE), "openvino_ms": shown.get("openvino f32"),
            "openvino_default_ms": shown.get("openvino default"), "untuned_ms": untuned.get(best or ""),
            "untuned_engine": best, "untuned": untuned, "tuned_ms": shown.get("tuned f32"),
        }  # fmt: skip
        for precision in self._bundles:
            if precision != "f32":
                row[f"tuned_{precision}_ms"] = shown.get(f"tuned {precision}")
        jobs = {precision: job for precision, (_, job) in self._bundles.items()}
        return row | {
            "verified": self._verified.get("tuned f32", False), "verifications": self._verified, "jobs": jobs,
            "intervals_ms": {name: _interval(each) for name, each in timings.items()}, "problems": self._problems,
        }  # fmt: skip

    def _add_openvino(self) -> None:
        for precision in ("f32", "default"):
            engine = self._engine("openvino", f"openvino {precision}")
            params = {
                "path": str(self._prepared), "inputs": str(self._inputs[0]), "threads": self._threads,
                "precision": precision,
            }  # fmt: skip
            try:
                engine.request("time", {**params, "number": 1, "repeat": 1}, timeout=300)
            except errors.EngineError as error:
                self._problems.append(f"openvino {precision}: {error.message[:200]}")
                continue
            self._timed.append(Timed(name=f"openvino {precision}", engine=engine, params=params))

    def _add_untuned(self, name: str) -> None:
        folder = self._folder / f"untuned-{name}"
        try:
            if not folder.exists():
                self._build(name, folder)
            self._add(f"untuned {name}", name, folder, "f32")
        except errors.EngineError as error:
            self._problems.append(f"untuned {name}: {error.message[:200]}")

    def _build(self, name: str, folder: Path) -> None:
        with self._start(name, f"build-{name}") as engine:
            partial = engines.build_untuned(
                engine, self._prepared, folder.with_suffix(".partial"), threads=self._threads
            )
            partial.rename(folder)

    def _add_tuned(self, precision: str, bundle: Path | None, job: dict[str, Any]) -> None:
        if bundle is None:
            self._problems.append(f"tuned {precision}: {json.dumps(job.get('failure'))[:300]}")
            return
        manifest = json.loads((bundle / "manifest.json").read_text())
        name = f"tuned {precision}"
        try:
            self._add(name, manifest["toolchain"]["engine"], bundle, manifest["precision"])
        except errors.EngineError as error:
            self._problems.append(f"{name}: {error.message[:200]}")

    def _add(self, name: str, engine_name: str, bundle: Path, precision: str) -> None:
        """Verify a build, and add it to those timed if its results are right."""
        engine = self._engine(engine_name, name)
        found = verification.verify(
            self._reference, engine, variant=Variant.TUNED, bundle=bundle, inputs=self._inputs,
            expected=self._expected, folder=self._folder / "actual", place={"threads": self._threads},
            precision=precision, seeds=self._seeds, model=self._prepared,
        )  # fmt: skip
        self._verified[name] = found.passed
        if not found.passed:
            worst = max((output.max_rel for output in found.outputs), default=math.inf)
            self._problems.append(f"{name}: wrong by {worst:.2g}")
            return
        place = {"threads": self._threads}
        self._timed.append(timing.compiled(name, engine, bundle, self._inputs[0], place=place))

    def _engine(self, name: str, role: str) -> EngineSession:
        return self._stack.enter_context(self._start(name, role))

    def _start(self, name: str, role: str) -> EngineSession:
        spec = OPENVINO if name == "openvino" else catalogue.get(name)
        log = self._folder / f"{role.replace(' ', '-')}.log"
        limits = Limits(writable=(str(self._folder.absolute()),))
        return EngineSession.start(
            spec, self._pythons.of_engine[name], log_path=log, home=self._pythons.home, limits=limits
        )


def _interval(measured: Timing) -> Sequence[float] | None:
    if measured.ci_low is None or measured.ci_high is None:
        return None
    return round(measured.ci_low * 1e3, 4), round(measured.ci_high * 1e3, 4)


def is_tuned(folder: Path, name: str, precision: str) -> bool:
    return _facts(folder, name, precision).exists()


def _tune_one(
    folder: Path,
    name: str,
    path: Path,
    *,
    precision: str,
    shapes: Mapping[str, Sequence[int]],
    tuner: str,
    seconds: float,
    threads: int,
) -> dict[str, Any]:
    """Tune a model and return facts about the job; its bundle is unpacked beside them."""
    with Client() as client:
        model = client.upload(path, name=name)
        job = client.tune(
            model, tuner=tuner, seconds=seconds, threads=threads, precision=precision, input_shapes=shapes
        )
        with contextlib.suppress(client_errors.JobFailed):
            job.wait()
        facts: dict[str, Any] = {
            "state": job.data["state"], "run_seconds": job.data["run_seconds"],
            "trials": job.data["trials_done"], "failure": job.data.get("failure"),
        }  # fmt: skip
        if job.data["state"] == "succeeded":
            report = job.report()
            facts["report"] = {field: report.get(field) for field in _SHOWN}
            _unpack(job, _bundle(folder, name, precision))
    _facts(folder, name, precision).parent.mkdir(parents=True, exist_ok=True)
    _facts(folder, name, precision).write_text(json.dumps(facts, indent=1))
    return facts


def bundles(folder: Path, name: str) -> dict[str, tuple[Path | None, dict[str, Any]]]:
    """Return by precision the unpacked bundle (None for a failed job) and the facts about the job."""
    found = {}
    for facts in sorted((folder / name).glob("job-*.json")):
        precision = facts.stem.removeprefix("job-")
        unpacked = _bundle(folder, name, precision)
        found[precision] = (unpacked if unpacked.is_dir() else None, json.loads(facts.read_text()))
    return found


def _unpack(job: Any, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    packed = into.with_suffix(".tar")
    job.artifact.download(packed)
    with tarfile.open(packed) as archive:
        archive.extractall(into, filter="data")


def _facts(folder: Path, name: str, precision: str) -> Path:
    return folder / name / f"job-{precision}.json"


def _bundle(folder: Path, name: str, precision: str) -> Path:
    return folder / name / f"bundle-{precision}"
