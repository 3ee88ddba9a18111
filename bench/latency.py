"""Latency of tuned models compared to untuned ones, ONNX Runtime and OpenVINO: ``./run bench latency --json``.

Each model is tuned by a job of a service with its own home folder; then all sides are timed alternately, in one run
per model, each in several processes one after another. Prints JSON: milliseconds, verification results, and geometric
means of the ratios. ``--zoo`` measures the models of the zoo: see ``bench.zoo_latency``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from bench import engines, hosting, note, show, zoo
from domain import errors
from domain.artifacts import Conditions, Runtime, Timing, Variant, speedup
from domain.ports import Engine
from domain.search_parts import SearchPart
from tuner.engines.runtime.library.linking import LIBRARY
from tuner.host import catalogue, environments, hardware
from tuner.host.catalogue import EngineSpec
from tuner.host.session import EngineSession, Limits
from tuner.results import conditions, timing, verification
from tuner.results.timing import Timed
from tunesmith import errors as client_errors
from tunesmith.client import Client
from tunesmith.jobs import Job

MODELS = (
    "ppocr-cls", "ppocr-det", "ppocr-rec", "magika", "yolox-det", "minilm", "squeezenet", "shufflenet", "resnet50",
    "densenet121", "inception-v1",
)  # fmt: skip
OPENVINO = EngineSpec(name="openvino", module="bench.sides", requirements=catalogue.get("openvino").requirements)
SIDES = EngineSpec(name="sides", module="bench.sides", requirements=catalogue.get("onnx").requirements, shares="onnx")
OTHERS = (Variant.REFERENCE, "openvino f32")
"""Sides that builds are compared with."""
_UNTUNED = ("relay", "relax")
_BENCHMARK_SECONDS = 60.0
_OPEN_SECONDS = 300.0
_POLL_SECONDS = 2.0
_HUNG_AFTER = 600.0
"""Seconds that a job may run beyond its total limit."""
_ROWS = Path(__file__).parents[1] / "docs" / "reference" / "latency.json"
_SHOWN = (
    "published", "summary", "speedup_over_untuned", "precision", "portfolio", "conditions", "runtime",
    "runtime_variant", "runtime_version", "runtime_model", "runtime_precision", "runtime_options",
)  # fmt: skip
"""Fields kept from a job's report."""


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    if options.zoo:
        # It imports this module.
        from bench import zoo_latency

        return zoo_latency.main(options)
    home = Path(os.environ["TUNESMITH_HOME"])
    paths = {name: zoo.fetch(zoo.MODELS[name], home) for name in options.models or MODELS}
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
        "without": options.without, "models": measured, **summary(measured),
    }  # fmt: skip
    show(report)
    return 0


def _tune(paths: dict[str, Path], options: argparse.Namespace, home: Path, folder: Path) -> None:
    wanted = [
        (name, precision) for name in paths for precision in options.precisions if not is_tuned(folder, name, precision)
    ]
    if not wanted:
        return
    with service(folder, home, without=options.without):
        for name, precision in wanted:
            model = Model(name=name, path=paths[name], shapes=zoo.MODELS[name].input_shapes)
            order = Order(precision=precision, tuner=options.tuner, seconds=options.seconds, threads=options.threads)
            note(f"{name} {precision}: {tune(folder, model, order)}")


@contextmanager
def service(folder: Path, home: Path, *, without: Sequence[str] = ()) -> Iterator[None]:
    """Run a service without records in ``folder``, with the engines of the usual home folder.

    ``without``: parts of the search that its worker leaves out.
    """
    settings = {environments.variable(spec): str(environments.interpreter(spec, home)) for spec in _installed(home)}
    settings["TUNESMITH_HOME"] = str(folder)
    settings["TUNESMITH_SEARCH_WITHOUT"] = ",".join(without)
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        with hosting.running(folder, say=note):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _installed(home: Path) -> list[EngineSpec]:
    found = []
    for spec in (catalogue.ENGINES | catalogue.OPTIONAL).values():
        try:
            environments.interpreter(spec, home)
        except errors.EngineNotInstalled:
            continue
        found.append(spec)
    return found


def summary(models: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Return geometric means of ratios, over 1 where the tuned model is faster; None if nothing can be compared."""
    pairs = {
        "geomean_vs_untuned": ("untuned_ms", "tuned_ms"),
        "geomean_vs_ort": ("ort_ms", "tuned_ms"),
        "geomean_vs_openvino": ("openvino_ms", "tuned_ms"),
        "geomean_bf16_vs_openvino_default": ("openvino_default_ms", "tuned_bf16_ms"),
        "geomean_bf16_vs_ort": ("ort_ms", "tuned_bf16_ms"),
    }
    return {
        name: geomean([row[slower] / row[faster] for row in models if row.get(slower) and row.get(faster)])
        for name, (slower, faster) in pairs.items()
    }


def geomean(ratios: Sequence[float]) -> float | None:
    return geometric_mean(ratios) if ratios else None


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
    parser.add_argument("--models", nargs="+", choices=sorted(zoo.MODELS), metavar="NAME")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--seconds", type=float, default=300.0, help="of tuning, for each model and precision")
    budget.add_argument("--budget", choices=["default"], help="the service's default instead")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tuner", default="auto")
    parser.add_argument(
        "--without", nargs="+", choices=[part.value for part in SearchPart], default=[], metavar="PART",
        help=f"leave parts of the search out, of {', '.join(SearchPart)}",
    )  # fmt: skip
    parser.add_argument("--precisions", nargs="+", default=["f32"], choices=["f32", "bf16", "int8", "auto"])
    parser.add_argument(
        "--keep", type=Path, help="folder of jobs, records and bundles; what it has is timed and not tuned again"
    )
    parser.add_argument("--zoo", choices=zoo.PARTS, help="models of the zoo (or those of --models), f32, in rows")
    parser.add_argument("--rows", type=Path, default=_ROWS, help="with --zoo: the file that keeps finished rows")
    parser.add_argument("--again", action="store_true", help="with --zoo: measure also what has a row")
    parser.add_argument("--of", metavar="COMMIT", help="with --zoo: show the rows of this commit, and measure nothing")
    parser.add_argument("--markdown", action="store_true", help="with --zoo: print the table of a page, not JSON")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    options = parser.parse_args(arguments)
    if options.budget:
        options.seconds = None
    return options


@dataclass(frozen=True, kw_only=True)
class Pythons:
    home: Path
    of_engine: Mapping[str, Path]

    @classmethod
    def of(cls, home: Path) -> Pythons:
        """Raises EngineNotInstalled."""
        specs = [*catalogue.ENGINES.values(), OPENVINO]
        return cls(home=home, of_engine={spec.name: environments.interpreter(spec, home) for spec in specs})


@dataclass(frozen=True, kw_only=True)
class Model:
    name: str
    path: Path
    shapes: Mapping[str, tuple[int, ...]]


Bundles = Mapping[str, tuple[Path | None, dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Side:
    """What is timed, in processes of its own."""

    name: str
    engine: str
    """``sides`` or ``openvino``, or a TVM engine for builds without a library."""
    path: Path
    kind: str = ""
    """As ``bench.sides`` has it; empty for a TVM engine."""
    precision: str | None = None
    """Of a build, which is verified; None for another runtime."""


def measure(model: Model, bundles: Bundles, pythons: Pythons, folder: Path, *, threads: int) -> dict[str, Any]:
    """Return a row of the table; unavailable values are left out and explained in ``problems``.

    Raises TunesmithError if the reference cannot run the model.
    """
    with ExitStack() as stack:
        return _Measurement(model, bundles, pythons, folder / "timed", threads, stack).row()


class _Measurement:
    def __init__(
        self, model: Model, bundles: Bundles, pythons: Pythons, folder: Path, threads: int, stack: ExitStack
    ) -> None:
        self._bundles, self._pythons, self._folder, self._threads = bundles, pythons, folder, threads
        self._name = model.name
        self._problems: list[str] = []
        self._sides: list[Side] = []
        self._running: dict[str, EngineSession] = {}
        self._verified: dict[str, bool] = {}
        self._load_seconds: dict[str, list[float]] = defaultdict(list)
        self._peak_bytes: dict[str, int] = {}
        stack.callback(self._stop)
        folder.mkdir(parents=True, exist_ok=True)
        self._reference = stack.enter_context(self._start("onnx", "reference"))
        prepared = engines.inspector(pythons.home).prepare(model.path, dict(model.shapes), folder / "prepared.onnx")
        self._prepared = prepared.path
        self._seeds = verification.SEEDS if set(bundles) <= {"f32"} else verification.NARROW_SEEDS
        self._inputs = verification.seed_inputs(
            self._reference, prepared.inputs, folder / "inputs", model=prepared.path, seeds=self._seeds
        ).paths
        self._expected = verification.run_reference(
            self._reference, prepared.path, self._inputs, folder / "expected", threads=threads
        )
        verification.run_perturbed(self._reference, prepared.path, self._inputs, self._expected, threads=threads)

    def row(self) -> dict[str, Any]:
        for side in self._candidates():
            self._add(side)
        timings, seen = self._without_crashing()
        return self._report(timings) | {"noisy": seen.noisy, "reasons": seen.reasons, "load": seen.load}

    def _without_crashing(self) -> tuple[dict[str, Timing], Conditions]:
        """Time the sides, again without those that ended while they were timed. Raises EngineError."""
        while True:
            try:
                return conditions.until_quiet(self._timings, hardware.device(self._threads))
            except errors.EngineError as error:
                alive = [side for side in self._sides if self._running[side.name].alive]
                if len(alive) == len(self._sides):
                    raise
                ended = ", ".join(side.name for side in self._sides if side not in alive)
                self._problems.append(f"{ended}: {error.message[:200]}")
                self._sides = alive

    def _timings(self, watch: conditions.Watch) -> dict[str, Timing]:
        return timing.interleave(self._started(), seconds=_BENCHMARK_SECONDS, between=watch.look, restart=self._started)

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
            "published_ms": shown.get("published f32") if self._has_other_runtime("f32") else row["tuned_ms"],
            "verified": self._verified.get("tuned f32", False), "verifications": self._verified, "jobs": jobs,
            "load_ms": {name: round(median(taken) * 1e3, 1) for name, taken in self._load_seconds.items()},
            "peak_mb": {name: round(peak / 1e6, 1) for name, peak in self._peak_bytes.items()},
            "intervals_ms": {name: _interval(each) for name, each in timings.items()},
            "ratios": {name: _ratios(timings, name) for name in timings if name not in OTHERS},
            "problems": self._problems,
        }  # fmt: skip

    def _candidates(self) -> Iterator[Side]:
        yield Side(name=Variant.REFERENCE, engine="sides", kind="onnxruntime", path=self._prepared)
        narrow = [] if set(self._bundles) == {"f32"} else ["openvino default"]
        for kind in ("openvino f32", *narrow):
            yield Side(name=kind, engine="openvino", kind=kind, path=self._prepared)
        with ThreadPoolExecutor() as builders:
            folders = list(builders.map(self._untuned, _UNTUNED))
        for engine, folder in zip(_UNTUNED, folders, strict=True):
            if folder:
                yield _build(f"untuned {engine}", engine, folder, "f32")
        for precision, (bundle, job) in self._bundles.items():
            if bundle is None:
                self._problems.append(f"tuned {precision}: {json.dumps(job.get('failure'))[:300]}")
                continue
            manifest = json.loads((bundle / "manifest.json").read_text())
            yield _build(f"tuned {precision}", manifest["toolchain"]["engine"], bundle, manifest["precision"])
            if self._has_other_runtime(precision):
                engine = "openvino" if job["report"]["runtime"] == "openvino" else "sides"
                yield Side(
                    name=f"published {precision}", engine=engine, kind="session", path=bundle,
                    precision=manifest["runtime"]["precision"],
                )  # fmt: skip

    def _has_other_runtime(self, precision: str) -> bool:
        """Whether the published bundle names another runtime than what was compiled."""
        _, job = self._bundles.get(precision, (None, {}))
        return job.get("report", {}).get("runtime", Runtime.TVM) != Runtime.TVM

    def _untuned(self, name: str) -> Path | None:
        folder = self._folder / f"untuned-{name}"
        try:
            if not folder.exists():
                with self._start(name, f"build-{name}") as engine:
                    partial = engines.build_untuned(
                        engine, self._prepared, folder.with_suffix(".partial"), threads=self._threads
                    )
                    partial.rename(folder)
        except errors.EngineError as error:
            self._problems.append(f"untuned {name}: {error.message[:200]}")
            return None
        return folder

    def _add(self, side: Side) -> None:
        """Open a side, verify it if it is a build, and add it to those timed if its results are right."""
        try:
            with self._start(side.engine, side.name) as engine:
                if side.kind:
                    self._open(side, engine)
                if side.precision and not self._is_right(side, side.precision, engine):
                    return
        except errors.EngineError as error:
            self._problems.append(f"{side.name}: {error.message[:200]}")
            return
        self._sides.append(side)

    def _open(self, side: Side, engine: Engine) -> None:
        given = {"inputs": str(self._inputs[0]), "bundle": str(side.path), **self._place(side)}
        opened = engine.request("open", given, timeout=_OPEN_SECONDS)
        self._load_seconds[side.name].append(opened["seconds"])
        self._peak_bytes[side.name] = max(opened["peak_bytes"], self._peak_bytes.get(side.name, 0))

    def _is_right(self, side: Side, precision: str, engine: Engine) -> bool:
        found = verification.verify(
            self._reference, engine, variant=Variant.TUNED, bundle=side.path, inputs=self._inputs,
            expected=self._expected, folder=self._folder / "actual", place=self._place(side),
            precision=precision, seeds=self._seeds, model=self._prepared,
        )  # fmt: skip
        self._verified[side.name] = found.passed
        if not found.passed:
            worst = max((output.max_rel for output in found.outputs), default=math.inf)
            self._problems.append(f"{side.name}: wrong by {worst:.2g}")
        return found.passed

    def _place(self, side: Side) -> dict[str, Any]:
        return {"threads": self._threads, **({"kind": side.kind} if side.kind else {})}

    def _started(self) -> list[Timed[str]]:
        """Return the sides, each in a new process."""
        self._stop()
        found = []
        for side in self._sides:
            engine = self._running[side.name] = self._start(side.engine, side.name)
            if side.kind:
                self._open(side, engine)
            found.append(timing.compiled(side.name, engine, side.path, self._inputs[0], place=self._place(side)))
        return found

    def _stop(self) -> None:
        for engine in self._running.values():
            engine.close()
        self._running.clear()

    def _start(self, name: str, role: str) -> EngineSession:
        spec = {"openvino": OPENVINO, "sides": SIDES}.get(name) or catalogue.get(name)
        python = self._pythons.of_engine[spec.shares or spec.name]
        log = self._folder / f"{role.replace(' ', '-')}.log"
        limits = Limits(writable=(str(self._folder.absolute()),))
        return EngineSession.start(spec, python, log_path=log, home=self._pythons.home, limits=limits)


def _build(name: str, engine: str, folder: Path, precision: str) -> Side:
    """Return the side of a build: its library, as its users run it, or else TVM's executor."""
    library = folder / LIBRARY
    if library.exists():
        return Side(name=name, engine="sides", kind="library", path=library, precision=precision)
    return Side(name=name, engine=engine, path=folder, precision=precision)


def _interval(measured: Timing) -> Sequence[float] | None:
    if measured.ci_low is None or measured.ci_high is None:
        return None
    return round(measured.ci_low * 1e3, 4), round(measured.ci_high * 1e3, 4)


def _ratios(timings: Mapping[str, Timing], name: str) -> dict[str, dict[str, Any]]:
    """Return how many times as fast a build is as each of ``OTHERS``."""
    return {
        other: {
            "ratio": speedup(timings[name], timings[other]),
            "interval": timing.speedup_interval(timings[name], timings[other]),
        }
        for other in OTHERS
        if other in timings
    }


def is_tuned(folder: Path, name: str, precision: str) -> bool:
    return _facts(folder, name, precision).exists()


@dataclass(frozen=True, kw_only=True)
class Order:
    precision: str
    tuner: str
    seconds: float | None
    """None for the service's default budget."""
    threads: int


def tune(folder: Path, model: Model, order: Order) -> dict[str, Any]:
    """Tune a model and return facts about the job; its bundle is unpacked beside them.

    A job that does not end is canceled, and its ``state`` is ``hung``. Raises errors of ``tunesmith.client``.
    """
    with Client() as client:
        uploaded = client.upload(model.path, name=model.name)
        job = client.tune(
            uploaded, tuner=order.tuner, seconds=order.seconds, threads=order.threads, precision=order.precision,
            input_shapes=model.shapes,
        )  # fmt: skip
        _wait(job)
        facts: dict[str, Any] = {
            "state": job.state if job.is_finished else "hung", "budget": job.data["budget"],
            "run_seconds": job.data["run_seconds"], "trials": job.data["trials_done"],
            "failure": job.data.get("failure"),
        }  # fmt: skip
        if job.state == "succeeded":
            report = job.report()
            facts["report"] = {field: report.get(field) for field in _SHOWN}
            facts["profile"] = _profile(job)
            _unpack(job, _bundle(folder, model.name, order.precision))
    written = _facts(folder, model.name, order.precision)
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(json.dumps(facts, indent=1))
    return facts


def _profile(job: Job) -> dict[str, Any] | None:
    """Return the job's profile; None if another runtime or a busy device left it without one."""
    try:
        return job.profile()
    except client_errors.NotFound:
        return None


def _wait(job: Job) -> None:
    """Wait until the job has ended, or for too long."""
    deadline = time.monotonic() + job.data["budget"]["total_seconds"] + _HUNG_AFTER
    while not job.refresh().is_finished:
        if time.monotonic() > deadline:
            job.cancel()
            return
        time.sleep(_POLL_SECONDS)


def bundles(folder: Path, name: str) -> dict[str, tuple[Path | None, dict[str, Any]]]:
    """Return by precision the unpacked bundle (None for a failed job) and the facts about the job."""
    found = {}
    for facts in sorted((folder / name).glob("job-*.json")):
        precision = facts.stem.removeprefix("job-")
        unpacked = _bundle(folder, name, precision)
        found[precision] = (unpacked if unpacked.is_dir() else None, json.loads(facts.read_text()))
    return found


def _unpack(job: Job, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    packed = into.with_suffix(".tar")
    job.artifact.download(packed)
    with tarfile.open(packed) as archive:
        archive.extractall(into, filter="data")


def _facts(folder: Path, name: str, precision: str) -> Path:
    return folder / name / f"job-{precision}.json"


def _bundle(folder: Path, name: str, precision: str) -> Path:
    return folder / name / f"bundle-{precision}"
