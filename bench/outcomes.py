"""What becomes of real models in bf16 and int8, with data and without: ``./run bench outcomes --json``.

Each model of ``bench.samples`` is tuned in f32 and in each narrower precision by a service without records, judged by
200 rows of its own (``data``) or by seeded inputs (``seeds``). A precision ``passes`` if its job met the default
accuracy gate. ``published`` runs the bundle, ``ms`` is its median and ``vs_ort`` that of ONNX Runtime in f32, timed
beside it, divided by ``ms``: so precisions of several jobs can be compared. ``compiled_ms`` and ``compiled_vs_ort`` are
those of the compiled build, if another runtime is faster. ``nncf`` is OpenVINO's own int8, calibrated and judged by the
same rows. Rows are kept by commit, so that an interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import latency, note, rows, show, zoo
from bench.rows import Row
from domain.artifacts import Runtime, Variant
from domain.jobs import Precision
from tuner.host import environments, hardware
from tuner.host.catalogue import EngineSpec
from tunesmith import errors as client_errors
from tunesmith.client import Client
from tunesmith.jobs import Job

_ROOT = Path(__file__).parents[1]
_REQUIREMENTS = _ROOT / "requirements"
_SAMPLES = EngineSpec(name="samples", module="bench.samples", requirements=_REQUIREMENTS / "samples.txt")
_NNCF = EngineSpec(name="nncf", module="bench.nncf", requirements=_REQUIREMENTS / "nncf.txt")
_ROWS = _ROOT / "docs" / "reference" / "outcomes.json"
_MODELS = ("opennsfw", "ppocr-cls", "ppocr-rec", "ppocr-det", "crnn-ocr", "yolox-det", "magika", "basic-pitch")
"""Those that ``bench.samples`` has rows for."""
_NARROW = (Precision.BF16, Precision.INT8)
_JUDGED = ("data", "seeds")
_SECONDS = 900.0
_REASON = 300


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    facts = {
        "commit": rows.commit(), "cpu": hardware.device(options.threads).key, "threads": options.threads,
        "seconds": options.seconds,
    }  # fmt: skip
    kept = [] if options.again else rows.read(options.rows)
    for name in options.models:
        known = [row for row in kept if row["model"] == name and rows.has(row, facts)]
        if not any(row["reason"] or row.keys() >= {*options.judged} for row in known):
            kept = [row for row in kept if row not in known]
            kept.append({"model": name, **_row(zoo.MODELS[name], options, home), **facts})
            note(json.dumps(kept[-1]))
            rows.save(options.rows, kept)
    table = [row for row in kept if rows.has(row, facts)]
    show({**facts, "summary": summary(table), "rows": table})
    return 0


def summary(table: Sequence[Row]) -> dict[str, Any]:
    """Count the models that pass, of those that were judged, and how often a narrower build was faster than f32."""
    told: dict[str, Any] = {}
    for judged in _JUDGED:
        for precision in _NARROW:
            found = [(row["f32"], row[judged][precision]) for row in table if row.get(judged)]
            passing = [(f32, each) for f32, each in found if each["passes"]]
            told[f"{precision} by {judged}"] = {
                "models": len(found),
                "pass": len(passing),
                "faster": sum((each["vs_ort"] or 0) > (f32["vs_ort"] or 0) for f32, each in passing),
            }
    return told


def _row(model: zoo.ZooModel, options: argparse.Namespace, home: Path) -> Row:
    path = zoo.fetch(model, home)
    row: Row = {"reason": None}
    with tempfile.TemporaryDirectory(prefix="tunesmith-outcomes-") as scratch:
        folder, samples = Path(scratch) / "service", Path(scratch) / "samples.npz"
        folder.mkdir()
        try:
            _call(_SAMPLES, home, [model.name, samples, "--model", path])
            with latency.service(folder, home), Client() as client:
                uploaded = client.upload(path, name=model.name)
                data = client.add_data_set(samples, name=model.name)

                def tuned(precision: Precision, given: str | None) -> dict[str, Any]:
                    job = client.tune(
                        uploaded, precision=precision, seconds=options.seconds, threads=options.threads,
                        input_shapes=model.input_shapes, data=given,
                    )  # fmt: skip
                    return _outcome(job)

                row["f32"] = tuned(Precision.F32, data.id)
                for judged, given in (("data", data.id), ("seeds", None)):
                    if judged in options.judged:
                        row[judged] = {precision: tuned(precision, given) for precision in _NARROW}
            shapes = {name: list(shape) for name, shape in model.input_shapes.items()}
            row["nncf"] = _call(
                _NNCF, home, [path, samples, "--threads", options.threads, "--shapes", json.dumps(shapes)], told=True
            )
        except (client_errors.TunesmithError, subprocess.SubprocessError, OSError, ValueError) as error:
            row["reason"] = f"{type(error).__name__}: {str(error)[:_REASON]}"
    return row


def _call(spec: EngineSpec, home: Path, arguments: Sequence[object], *, told: bool = False) -> Any:
    """Run a module in its environment; ``told``: return the JSON of its last line."""
    environments.install(spec, home, on_progress=note)
    command = [str(environments.interpreter(spec, home)), "-m", spec.module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, cwd=_ROOT, check=False)
    if done.returncode:
        raise ValueError(f"{spec.module} failed: {done.stderr[-_REASON:]}")
    return json.loads(done.stdout.splitlines()[-1]) if told else None


def _outcome(job: Job) -> dict[str, Any]:
    try:
        job.wait()
    except client_errors.JobFailed as failure:
        return {"passes": False, "said": f"{failure.code}: {str(failure)[:_REASON]}", "ms": None, "vs_ort": None}
    return of_report(job.report())


def of_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outcome of a job that succeeded, and what it says of the quantization."""
    timings = report["timings"]
    ran = report["published"] if report["runtime"] == Runtime.TVM else report["runtime_variant"] or Variant.REFERENCE
    names = (ran, report["published"], Variant.REFERENCE)
    fastest, compiled, theirs = (timings.get(name, {}).get("median") for name in names)
    precision = report["precision"] if report["runtime"] == Runtime.TVM else report["runtime_precision"]
    return {
        "passes": True,
        "said": next((each for each in report["choice"] if each.startswith("For int8")), ""),
        "published": f"{report['runtime']} {precision}",
        "ms": fastest and 1000 * fastest,
        "vs_ort": theirs / fastest if fastest and theirs else None,
        "compiled_ms": compiled and 1000 * compiled,
        "compiled_vs_ort": theirs / compiled if compiled and theirs else None,
    }


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench outcomes", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=_MODELS, default=_MODELS, metavar="NAME")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tuning, for each job")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--judged", nargs="+", choices=_JUDGED, default=_JUDGED, help="what judges narrower builds")
    parser.add_argument("--rows", type=Path, default=_ROWS, help="the file that keeps finished rows")
    parser.add_argument("--again", action="store_true", help="measure also what has a row")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
