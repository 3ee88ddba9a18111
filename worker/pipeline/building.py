"""Compiling one variant into a folder that is there wholly or not at all."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from worker.engines import replace_folder
from worker.pipeline.work import COMPILE_SECONDS, Work


@dataclass(frozen=True, kw_only=True)
class Compiled:
    files: list[str]
    """Relative to the work folder."""
    records: list[str]
    """Native lines of the schedules that the engine chose."""


def compile_variant(work: Work, name: str, *, records: Path | None) -> Compiled:
    """Raises EngineError and the caller's errors."""
    partial = work.folder / f"partial-{name}"
    shutil.rmtree(partial, ignore_errors=True)
    params = {**work.compile_params, "records": str(records) if records else None, "out_dir": str(partial)}
    compiled = work.ask(work.relay(), "compile", params, timeout=COMPILE_SECONDS)
    replace_folder(partial, work.folder / name)
    files = [f"{name}/{file}" for file in compiled["files"]]
    return Compiled(files=files, records=compiled["records"])
