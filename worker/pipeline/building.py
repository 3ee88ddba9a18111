"""Compiling one build into a folder that is there wholly or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from worker.engines import replace_folder
from worker.pipeline.builds import Build
from worker.pipeline.work import COMPILE_SECONDS, Work


@dataclass(frozen=True, kw_only=True)
class Compiled:
    files: list[str]
    """Relative to the work folder."""
    records: list[str]
    """Native lines of the schedules that the engine chose."""


def untuned(work: Work, engine: str, folder: str) -> Compiled:
    """Raises EngineError and the caller's errors."""
    return _compile(work, engine, folder, {**work.build_params(None), "records": None})


def tuned(work: Work, build: Build, lines: Sequence[str]) -> Compiled:
    """With the best of the records in ``lines``; what an attempt that was killed has built is not built again.

    Raises EngineError and the caller's errors.
    """
    params = build.params(work)
    note = work.folder / f"{build.folder}.json"
    basis = [params, list(lines), work.toolchains[build.engine].identity]
    identity = hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()
    known = _known(work, note, identity)
    if known is not None:
        return known
    note.unlink(missing_ok=True)
    records = work.folder / f"{build.folder}-candidates.jsonl"
    write(records, lines)
    compiled = _compile(work, build.engine, build.folder, {**params, "records": str(records) if lines else None})
    write(work.folder / build.records_file, compiled.records)
    write(note, [json.dumps({"identity": identity, **asdict(compiled)})])
    return compiled


def write(path: Path, lines: Sequence[str]) -> None:
    """All of the lines, or none."""
    partial = path.with_suffix(".partial")
    partial.write_text("".join(line.rstrip("\n") + "\n" for line in lines))
    partial.replace(path)


def _known(work: Work, note: Path, identity: str) -> Compiled | None:
    if not note.is_file():
        return None
    told = json.loads(note.read_text())
    if told.pop("identity") != identity or not all((work.folder / file).is_file() for file in told["files"]):
        return None
    return Compiled(**told)


def _compile(work: Work, engine: str, folder: str, params: dict[str, Any]) -> Compiled:
    partial = work.folder / f"partial-{folder}"
    shutil.rmtree(partial, ignore_errors=True)
    asked = {**params, "format": str(work.request.bundle_format), "out_dir": str(partial)}
    compiled = work.ask(work.compiler(engine), "compile", asked, timeout=COMPILE_SECONDS)
    replace_folder(partial, work.folder / folder)
    files = [f"{folder}/{file}" for file in compiled["files"]]
    return Compiled(files=files, records=compiled["records"])
