"""Tuning one model through the service, and its bundle."""

from __future__ import annotations

import contextlib
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunesmith import errors
from tunesmith.client import Client

_SHOWN = ("published", "summary", "speedup_over_untuned", "precision", "portfolio", "conditions")


def done(folder: Path, name: str, precision: str) -> bool:
    return _facts(folder, name, precision).exists()


def tune(
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
    """Returns what the job says of itself; its bundle lies unpacked beside."""
    with Client() as client:
        model = client.upload(path, name=name)
        job = client.tune(
            model, tuner=tuner, seconds=seconds, threads=threads, precision=precision, input_shapes=shapes
        )
        with contextlib.suppress(errors.JobFailed):
            job.wait()
        facts: dict[str, Any] = {
            "state": job.data["state"], "run_seconds": job.data["run_seconds"],
            "trials": job.data["trials_done"], "failure": job.data.get("failure"),
        }  # fmt: skip
        if job.data["state"] == "succeeded":
            report = job.report()
            facts["report"] = {field: report.get(field) for field in _SHOWN}
            _unpack(job, _folder(folder, name, precision))
    _facts(folder, name, precision).parent.mkdir(parents=True, exist_ok=True)
    _facts(folder, name, precision).write_text(json.dumps(facts, indent=1))
    return facts


def bundles(folder: Path, name: str) -> dict[str, tuple[Path | None, dict[str, Any]]]:
    """By precision, the unpacked bundle (None of a job that failed) and what the job said."""
    found = {}
    for facts in sorted((folder / name).glob("job-*.json")):
        precision = facts.stem.removeprefix("job-")
        unpacked = _folder(folder, name, precision)
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


def _folder(folder: Path, name: str, precision: str) -> Path:
    return folder / name / f"bundle-{precision}"
