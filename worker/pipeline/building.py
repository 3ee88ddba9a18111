"""Compiling one variant into a folder that is there wholly or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

from worker.engines import replace_folder
from worker.pipeline.work import COMPILE_SECONDS, Work


def compile_variant(work: Work, name: str, *, records: Path | None) -> list[str]:
    """Returns the files, relative to the work folder. Raises EngineError and the caller's errors."""
    partial = work.folder / f"partial-{name}"
    shutil.rmtree(partial, ignore_errors=True)
    params = {**work.compile_params, "records": str(records) if records else None, "out_dir": str(partial)}
    compiled = work.ask(work.relay(), "compile", params, timeout=COMPILE_SECONDS)
    replace_folder(partial, work.folder / name)
    return [f"{name}/{file}" for file in compiled["files"]]
