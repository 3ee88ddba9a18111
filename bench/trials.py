"""Trial throughput of stock TVM and the engine, alternating task by task on the same tasks, and what each found.

Prints JSON. Each side's seconds are those of whole searches including start-up; its CPU time includes all of its
processes. The best schedules of both sides are finally built by one program and timed there, alternately.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, geometric_mean
from types import TracebackType
from typing import Any, Self

from bench import engines, note, show, zoo
from domain.jobs import MeasureOptions, Tuner
from tuner.host import catalogue, environments, hardware
from tuner.host.catalogue import ROOT, EngineSpec
from tuner.host.session import EngineSession, Limits
from tuner.search.planning import ROUND_TRIALS

Json = dict[str, Any]
_OPTIONS: Json = {"keep_layout": False, "rewrite": False}
"""The search space of stock TVM: any layout (an option of AutoTVM only), and TVM's own templates."""
_TIMED = 30
"""Number of timings of each side's best schedule."""
_TRIAL_SECONDS = 60.0


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-trials-") as scratch:
        setting = _setting(options, home, Path(scratch))
        tasks = extract(setting, options.tasks, options.trials)
        stock, ours = Stock(setting), Ours(setting)
        with stock, ours:
            for number, task in enumerate(tasks):
                for side in (stock, ours) if number % 2 == 0 else (ours, stock):
                    note(f"{task['description']}: {side.name}")
                    side.tune(task, options.trials)
        latencies = compare(setting, tasks, stock, ours, _TIMED)
    report = {
        "device": hardware.device(setting.threads).key,
        "target": setting.target,
        "threads": setting.threads,
        "load_before": before,
        "tuner": setting.tuner,
        "model": options.model,
        "trials": options.trials * len(tasks),
        "trials_per_task": options.trials,
        "options": setting.options,
        "stock": stock.report,
        "ours": ours.report,
        "ratio_trials_per_s": ours.report["trials_per_s"] / stock.report["trials_per_s"],
        "ratio_cpu_s": ours.report["cpu_s"] / stock.report["cpu_s"],
        "ratio_best_latency": geometric_mean([ours_s / stock_s for stock_s, ours_s in latencies]),
        "breakdown": ours.breakdown,
        "tasks": [
            {**_named(task), "stock_ms": stock_s * 1e3, "ours_ms": ours_s * 1e3}
            for task, (stock_s, ours_s) in zip(tasks, latencies, strict=True)
        ],
    }
    show(report)
    return 0


def _setting(options: argparse.Namespace, home: Path, folder: Path) -> Setting:
    model, engine = zoo.MODELS[options.model], catalogue.get(options.tuner.engine)
    prepared = engines.inspector(home).prepare(zoo.fetch(model, home), model.input_shapes, folder / "model.onnx")
    return Setting(
        tuner=options.tuner,
        engine=engine,
        python=environments.interpreter(engine, home),
        home=home,
        folder=folder,
        model=prepared.path,
        mcpu=options.mcpu,
        threads=options.threads,
        options=_OPTIONS,
    )


def _named(task: Json) -> dict[str, Any]:
    return {name: task[name] for name in ("name", "description", "weight", "space_size")}


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench trials", description=__doc__)
    parser.add_argument("--tuner", type=Tuner, choices=Tuner.AUTO.considered, default=Tuner.AUTOTVM)
    parser.add_argument("--model", choices=sorted(zoo.MODELS), default="squeezenet")
    parser.add_argument("--trials", type=int, default=64, help="of each task (default: 64)")
    parser.add_argument("--tasks", type=int, default=3, help="the heaviest (default: 3)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--mcpu", help="default: this machine's")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What both sides tune, and for which target."""

    tuner: str
    engine: EngineSpec
    python: Path
    home: Path
    folder: Path
    model: Path
    mcpu: str | None
    threads: int
    options: Json

    @cached_property
    def target(self) -> str:
        if self.mcpu:
            return f"llvm -mcpu={self.mcpu}"
        with self.start("target") as engine:
            return f"llvm -mcpu={engine.hello['mcpu']}"

    @property
    def build(self) -> Json:
        return {
            "model": str(self.model), "target": self.target, "threads": self.threads,
            "precision": "f32", "tuner": self.tuner, "options": self.options,
        }  # fmt: skip

    @property
    def definitions(self) -> Path:
        return self.folder / "definitions"

    def start(self, name: str) -> EngineSession:
        log, limits = self.folder / f"{name}.log", Limits(writable=(str(self.folder.absolute()),))
        return EngineSession.start(self.engine, self.python, log_path=log, home=self.home, limits=limits)


def extract(setting: Setting, count: int, trials: int) -> list[Json]:
    """Return the heaviest tasks that have at least twice as many candidates as trials."""
    with setting.start("extract") as engine:
        params = {**setting.build, "out_dir": str(setting.definitions)}
        found = engine.request("extract", params, timeout=engines.BUILD_SECONDS)["tasks"]
    wide = [task for task in found if task["space_size"] >= 2 * trials][:count]
    if len(wide) < count:
        raise SystemExit(f"the model has {len(wide)} tasks with more than {2 * trials} candidates, not {count}")
    for task in wide:
        if task.get("definition"):
            task["definition"] = str(setting.definitions / task["definition"])
    return wide


class _Side:
    """Tunes tasks and counts the cost."""

    name: str

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._seconds = 0.0
        self._cpu = 0.0
        self._counts: Counter[str] = Counter()
        self.best: dict[str, str | None] = {}

    def _end(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        before = _cpu_of_children()
        self._end()
        self._cpu = _cpu_of_children() - before

    @property
    def report(self) -> Json:
        return {
            "seconds": self._seconds,
            "cpu_s": self._cpu,
            "trials": self._counts["trials"],
            "valid": self._counts["valid"],
            "trials_per_s": self._counts["trials"] / self._seconds,
        }


class Stock(_Side):
    name = "stock"
    _process: subprocess.Popen[str] | None = None

    def tune(self, task: Json, trials: int) -> None:
        started = time.perf_counter()
        if self._process is None:
            self._process = _stock(self._setting)
        answer = _ask(self._process, {"do": "tune", "task": task, "trials": trials})
        self._seconds += time.perf_counter() - started
        self.best[task["workload_key"]] = answer["best"]
        self._counts.update(trials=answer["trials"], valid=answer["valid"])

    def _end(self) -> None:
        if self._process is not None:
            _end(self._process)


class Ours(_Side):
    name = "ours"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._engine: EngineSession | None = None
        self._spent: Counter[str] = Counter()
        self.calibrations: list[float] = []

    def tune(self, task: Json, trials: int) -> None:
        """Tune in rounds, as the pipeline does."""
        key, started = task["workload_key"], time.perf_counter()
        if self._engine is None:
            self._engine = self._setting.start("engine")
            self._spent["start"] += time.perf_counter() - started
        measured: list[Json] = []
        while len(measured) < trials:
            answer = self._round(task, len(measured), min(ROUND_TRIALS, trials - len(measured)), measured)
            self._spent.update(answer.get("spent") or {})
            if answer["exhausted"]:
                break
        self._seconds += time.perf_counter() - started
        valid = [trial for trial in measured if trial["error"] is None]
        best = min(valid, key=lambda trial: fmean(trial["latencies"]), default=None)
        self.best[key] = best["schedule"] if best else None
        self._counts.update(trials=len(measured), valid=len(valid))
        self.calibrations += [trial["calibration"] for trial in measured if trial.get("calibration")]

    def _round(self, task: Json, first: int, count: int, measured: list[Json]) -> Json:
        assert self._engine is not None  # noqa: S101 - started by ``tune``

        def on_event(kind: str, data: Json) -> None:
            if kind == "trial":
                measured.append(data)

        params = {
            **self._setting.build,
            "workload_key": task["workload_key"],
            "task": task.get("definition"),
            "trials": count, "first_trial": first, "history": None, "seconds": None, "runner": None,
            "measure": asdict(MeasureOptions()),
            "spool": str(self._setting.folder / f"spool-{task['position']}-{first}.jsonl"),
        }  # fmt: skip
        timeout = count * _TRIAL_SECONDS + engines.BUILD_SECONDS
        return self._engine.request("tune", params, timeout=timeout, on_event=on_event)

    def _end(self) -> None:
        if self._engine is not None:
            self._engine.close()

    @property
    def report(self) -> Json:
        calibration = {"calibration_s": [min(self.calibrations), max(self.calibrations)]} if self.calibrations else {}
        return {**super().report, **calibration}

    @property
    def breakdown(self) -> Json:
        """Seconds and shares of the wall time; ``idle`` is the time not accounted for by any step."""
        seconds = {**self._spent, "idle": max(0.0, self._seconds - sum(self._spent.values()))}
        return {name: {"seconds": spent, "share": spent / self._seconds} for name, spent in seconds.items()}


def compare(
    setting: Setting, tasks: Sequence[Json], stock: Stock, ours: Ours, repeat: int
) -> list[tuple[float, float]]:
    """Return the seconds per run of each task's best schedule of both sides, built and timed by one program."""
    process = _stock(setting)
    seconds = []
    for task in tasks:
        lines = [side.best[task["workload_key"]] for side in (stock, ours)]
        if None in lines:
            raise SystemExit(f"no valid trial of {task['description']}: stock, ours: {lines}")
        answer = _ask(process, {"do": "time", "task": task, "lines": lines, "repeat": repeat})
        seconds.append((answer["seconds"][0], answer["seconds"][1]))
    _end(process)
    return seconds


def _stock(setting: Setting) -> subprocess.Popen[str]:
    command = [setting.python, "-m", f"bench.stock.tune_{setting.tuner}", setting.target, str(setting.threads)]
    log = (setting.folder / "stock.log").open("ab")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**kept, "TVM_NUM_THREADS": str(setting.threads)}
    with log:
        return subprocess.Popen(
            [*command, str(setting.folder)],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip


def _ask(process: subprocess.Popen[str], request: Json) -> Json:
    assert process.stdin is not None  # noqa: S101 - asked for
    assert process.stdout is not None  # noqa: S101 - asked for
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"stock TVM ended with status {process.wait()}; its log is stock.log")
    answer: Json = json.loads(line)
    return answer


def _end(process: subprocess.Popen[str]) -> None:
    # Closes the pipes and waits.
    process.communicate(timeout=60)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
