"""One model in every runtime, in turns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import engines
from domain import errors
from domain.artifacts import Timing, Variant
from tuner import catalogue, conditions, environments, hostinfo, timing, verification
from tuner.catalogue import EngineSpec
from tuner.session import EngineSession
from tuner.timing import Timed

OPENVINO = EngineSpec(
    name="openvino", module="bench.openvino", requirements=catalogue.ROOT / "requirements" / "openvino.txt"
)
_UNTUNED = ("relay", "relax")
_BUILD_SECONDS = 1800.0
_BENCHMARK_SECONDS = 90.0


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
    """A row of the table; what cannot be had is left out, and ``problems`` says why."""
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
        self._reference = self._engine("reference", "reference")
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
            hostinfo.device(self._threads),
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
            partial = folder.with_suffix(".partial")
            params = {
                "model": str(self._prepared), "target": f"llvm -mcpu={engine.hello['mcpu']}",
                "threads": self._threads, "precision": "f32", "rewrite": False, "tuner": None, "options": {},
                "format": "shared", "records": None, "out_dir": str(partial),
            }  # fmt: skip
            engine.request("compile", params, timeout=_BUILD_SECONDS)
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
        """Verify a build, and have it timed if it is right."""
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
        return EngineSession.start(spec, self._pythons.of_engine[name], log_path=log, home=self._pythons.home)


def _interval(measured: Timing) -> Sequence[float] | None:
    if measured.ci_low is None or measured.ci_high is None:
        return None
    return round(measured.ci_low * 1e3, 4), round(measured.ci_high * 1e3, 4)
