"""Compiling one variant into a folder that is there wholly or not at all."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from domain.jobs import Tuner
from worker.engines import replace_folder
from worker.pipeline.work import COMPILE_SECONDS, Work


@dataclass(frozen=True, kw_only=True)
class Compiled:
    files: list[str]
    """Relative to the work folder."""
    records: list[str]
    """Native lines of the schedules that the engine chose."""


def untuned(work: Work, engine: str, folder: str) -> Compiled:
    """Raises EngineError and the caller's errors."""
    return _compile(work, engine, folder, tuner=None, records=None)


def tuned(work: Work, folder: str, records: Path) -> Compiled:
    """With the leading tuner's records. Raises EngineError and the caller's errors."""
    return _compile(work, work.engine, folder, tuner=work.tuner, records=records)


def _compile(work: Work, engine: str, folder: str, *, tuner: Tuner | None, records: Path | None) -> Compiled:
    partial = work.folder / f"partial-{folder}"
    shutil.rmtree(partial, ignore_errors=True)
    params = {
        **work.build_params(tuner),
        "records": str(records) if records else None,
        "format": str(work.request.bundle_format),
        "out_dir": str(partial),
    }
    compiled = work.ask(work.compiler(engine), "compile", params, timeout=COMPILE_SECONDS)
    replace_folder(partial, work.folder / folder)
    files = [f"{folder}/{file}" for file in compiled["files"]]
    return Compiled(files=files, records=compiled["records"])
