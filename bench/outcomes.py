"""What becomes of real models in bf16 and int8, with data and without: ``./run bench outcomes --json``.

Each model of ``bench.samples`` is tuned twice in precision ``auto`` by a service without records: judged by 200 rows of
its own (``data``), and by seeded inputs. A precision ``passes`` if a build of it met the default accuracy gate; ``ms``
is the median of the fastest one, beside ``f32_ms`` of the same benchmark. ``nncf`` is OpenVINO's own int8, calibrated
and judged by the same rows. Rows are kept by commit, so that an interrupted run continues.
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
from domain.jobs import Precision
from tuner.host import environments, hardware
from tuner.host.catalogue import EngineSpec
from tunesmith import errors as client_errors
from tunesmith.client import Client

_ROOT = Path(__file__).parents[1]
_REQUIREMENTS = _ROOT / "requirements"
_SAMPLES = EngineSpec(name="samples", module="bench.samples", requirements=_REQUIREMENTS / "samples.txt")
_NNCF = EngineSpec(name="nncf", module="bench.nncf", requirements=_REQUIREMENTS / "nncf.txt")
_ROWS = _ROOT / "docs" / "reference" / "outcomes.json"
_MODELS = ("opennsfw", "ppocr-cls", "ppocr-rec", "ppocr-det", "crnn-ocr", "yolox-det", "magika", "basic-pitch")
"""Those that ``bench.samples`` has rows for."""
_NARROW = (Precision.BF16, Precision.INT8)
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
        if not any(row["model"] == name and _has(row, facts) for row in kept):
            kept.append({"model": name, **_row(zoo.MODELS[name], options, home), **facts})
            note(json.dumps(kept[-1]))
            rows.save(options.rows, kept)
    table = [row for row in kept if _has(row, facts)]
    show({**facts, "summary": summary(table), "rows": table})
    return 0


def _has(row: Row, facts: Mapping[str, Any]) -> bool:
    return all(row.get(name) == value for name, value in facts.items())


def summary(table: Sequence[Row]) -> dict[str, Any]:
    """Count the models that pass, of those that were judged, and how often a narrower build was faster than f32."""
    told: dict[str, Any] = {}
    for judged in ("data", "seeds"):
        for precision in _NARROW:
            found = [row[judged][precision] for row in table if precision in row.get(judged, {})]
            passing = [each for each in found if each["passes"]]
            told[f"{precision} by {judged}"] = {
                "models": len(found),
                "pass": len(passing),
                "faster": sum(bool(each["ms"] and each["f32_ms"] and each["ms"] < each["f32_ms"]) for each in passing),
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
                data = client.add_data_set(samples, name=model.name)
                for judged, given in (("data", data.id), ("seeds", None)):
                    row[judged] = _outcomes(client, model, path, given, options)
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


def _outcomes(
    client: Client, model: zoo.ZooModel, path: Path, data: str | None, options: argparse.Namespace
) -> dict[str, Any]:
    job = client.tune(
        client.upload(path, name=model.name), precision="auto", seconds=options.seconds, threads=options.threads,
        input_shapes=model.input_shapes, data=data, runtimes=["tvm"],
    )  # fmt: skip
    job.wait()
    return of_report(job.report())


def of_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outcome of each narrower precision that was built, the published one and why int8 was not built."""
    portfolio = report["portfolio"]
    f32 = _fastest([each for each in portfolio if each["precision"] == Precision.F32])
    told: dict[str, Any] = {
        "published": report["precision"],
        "quantized": next((each for each in report["choice"] if each.startswith(("For int8", "int8 was"))), None),
    }
    for precision in _NARROW:
        builds = [each for each in portfolio if each["precision"] == precision]
        if builds:
            told[precision] = {
                "passes": any(each["verified"] for each in builds),
                "ms": _fastest(builds),
                "f32_ms": f32,
                "said": next((each["verdict"] for each in builds if each["verdict"]), ""),
            }
    return told


def _fastest(builds: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the least median in milliseconds of builds that were timed."""
    return min((1000 * each["seconds"] for each in builds if each["seconds"] and each["verified"]), default=None)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench outcomes", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=_MODELS, default=_MODELS, metavar="NAME")
    parser.add_argument("--seconds", type=float, default=120.0, help="of tuning, for each job")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=_ROWS, help="the file that keeps finished rows")
    parser.add_argument("--again", action="store_true", help="measure also what has a row")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
