"""One model through one engine and tuner."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import engines
from bench.zoo import ZooModel, fetch
from domain import errors
from domain.artifacts import Variant
from domain.ports import Engine
from tuner import verification

ROUTES = {"relay + autotvm": "autotvm", "relay + ansor": "ansor", "relax + metaschedule": "metaschedule"}
_ENGINES = {"autotvm": "relay", "ansor": "relay", "metaschedule": "relax"}
_BUILD_SECONDS = 1800.0
_TRIAL_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Model:
    home: Path
    folder: Path
    path: Path
    inputs: list[Path]
    expected: list[Path]


def prepare(model: ZooModel, home: Path, folder: Path) -> Model | str:
    """The model as engines take it, with the reference's outputs; or why the reference itself cannot have it."""
    folder.mkdir(parents=True)
    try:
        prepared = engines.inspector(home).prepare(fetch(model, home), model.input_shapes, folder / "prepared.onnx")
        with engines.start("reference", home, folder) as reference:
            inputs = verification.seed_inputs(reference, prepared.inputs, folder / "inputs", model=prepared.path).paths
            expected = verification.run_reference(
                reference, prepared.path, inputs, folder / "expected", threads=_threads()
            )
    except errors.TunesmithError as error:
        return f"{error.code}: {error.message.splitlines()[0][:200]}"
    return Model(home=home, folder=folder, path=prepared.path, inputs=inputs, expected=expected)


def find_out(model: Model, tuner: str, *, trials: int, tasks: int) -> dict[str, Any]:
    """How far the model gets, and what stopped it."""
    cell: dict[str, Any] = {"imports": False, "verified": False, "tuned": False, "reason": None}
    try:
        with (
            engines.start(_ENGINES[tuner], model.home, model.folder) as engine,
            engines.start("reference", model.home, model.folder) as reference,
        ):
            attempt = _Attempt(model, engine, reference, tuner)
            attempt.check()
            cell["imports"] = True
            cell["max_rel"] = attempt.verify(Variant.UNTUNED, None)
            cell["verified"] = True
            cell |= attempt.tune(trials, tasks)
            cell["tuned"] = cell["reason"] is None
    except errors.EngineRequestFailed as error:
        cell |= {"reason": f"{error.engine_code}: {_first_line(error)}", "details": error.details}
    except (errors.TunesmithError, _Wrong) as error:
        cell["reason"] = _first_line(error)
    return cell


class _Wrong(Exception):
    """The build computes something else."""


class _Attempt:
    def __init__(self, model: Model, engine: Engine, reference: Engine, tuner: str) -> None:
        self._model, self._engine, self._reference = model, engine, reference
        self._folder = model.folder / tuner
        self._folder.mkdir()
        self._build = {
            "model": str(model.path), "target": f"llvm -mcpu={engine.hello['mcpu']}", "threads": _threads(),
            "precision": "f32", "tuner": tuner, "options": {},
        }  # fmt: skip

    def check(self) -> None:
        self._engine.request("check", {"model": str(self._model.path)}, timeout=_BUILD_SECONDS)

    def verify(self, variant: Variant, records: Path | None) -> float:
        """Build and compare; returns the largest relative error over all outputs and inputs."""
        out = self._folder / variant
        build = {**self._build, "tuner": self._build["tuner"] if records else None, "format": "shared"}
        params = {**build, "records": str(records) if records else None, "out_dir": str(out)}
        self._engine.request("compile", params, timeout=_BUILD_SECONDS)
        found = verification.verify(
            self._reference, self._engine, variant=variant, bundle=out, inputs=self._model.inputs,
            expected=self._model.expected, folder=self._folder / "actual", place={"threads": _threads()},
        )  # fmt: skip
        worst = max(output.max_rel for output in found.outputs)
        if not found.passed:
            raise _Wrong(f"{variant} gives wrong results: relative error {worst:.2g}")
        return worst

    def tune(self, trials: int, count: int) -> dict[str, Any]:
        extracted = self._engine.request(
            "extract", {**self._build, "out_dir": str(self._folder / "tasks")}, timeout=_BUILD_SECONDS
        )["tasks"]
        open_tasks = [task for task in extracted if task["space_size"] > 1]
        if not open_tasks:
            return {"tasks": len(extracted), "reason": "nothing in it can be tuned"}
        measured: list[dict[str, Any]] = []
        for task in open_tasks[:count]:
            measured += self._round(task, trials)
        done = len(measured)
        lines = [trial["schedule"] for trial in measured if trial["error"] is None]
        if not lines:
            return {"tasks": len(extracted), "trials": done, "reason": why_none_worked(measured)}
        records = self._folder / "records.jsonl"
        records.write_text("".join(line.rstrip("\n") + "\n" for line in lines))
        return {"tasks": len(extracted), "trials": done, "max_rel_tuned": self.verify(Variant.TUNED, records)}

    def _round(self, task: dict[str, Any], trials: int) -> list[dict[str, Any]]:
        measured: list[dict[str, Any]] = []

        def on_event(kind: str, data: dict[str, Any]) -> None:
            if kind == "trial":
                measured.append(data)

        definition = task.get("definition")
        params = {
            **self._build,
            "workload_key": task["workload_key"],
            "task": str(self._folder / "tasks" / definition) if definition else None,
            "trials": trials, "first_trial": 0, "history": None, "seconds": None, "runner": {"kind": "local"},
            "measure": {"number": 1, "repeat": 1, "min_repeat_ms": 1, "timeout": 60.0},
            "journal": str(self._folder / f"journal-{task['position']}.jsonl"),
        }  # fmt: skip
        timeout = trials * _TRIAL_SECONDS + _BUILD_SECONDS
        self._engine.request("tune", params, timeout=timeout, on_event=on_event)
        return measured


def why_none_worked(trials: Sequence[dict[str, Any]]) -> str:
    """``every trial failed: 6 invalid_schedule, 2 run_timeout; the first: …`` of failed ``trial`` events."""
    if not trials:
        return "no trial was made"
    kinds = Counter(trial["error"] for trial in trials)
    counted = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    messages = (line for trial in trials for line in (trial["error_message"] or "").splitlines()[:1] if line)
    message = next(messages, None)
    return f"every trial failed: {counted}" + (f"; the first: {message[:300]}" if message else "")


def _threads() -> int:
    return len(os.sched_getaffinity(0))


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:300] if lines else type(error).__name__
