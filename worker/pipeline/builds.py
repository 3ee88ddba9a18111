"""Builds: their parameters and folders, compilation, and the two that become the job's variants."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from domain import errors
from domain.artifacts import Variant
from domain.jobs import Precision, Tuner
from domain.ports import Engine
from domain.stage_results import Build, Strategy, VerifyResult
from tuner.host import catalogue
from tuner.results import bundle, timing
from tuner.results.timing import Name, Timed
from tuner.search import precisions
from worker.engines import replace_folder
from worker.pipeline.context import COMPILE_SECONDS, UNTUNED, JobContext
from worker.pipeline.search import strategies

REWRITTEN = "rewritten"
"""Name of the build of the rewritten network without records."""


def path(context: JobContext, build: Build) -> Path:
    return context.folder / build.folder


def view(context: JobContext, build: Build) -> JobContext:
    """The context as if this were the job's only build."""
    tuner = build.tuner or _any_tuner(build.engine)
    return strategies.view(context, Strategy(tuner=tuner, layout=build.layout, precision=build.precision))


def params(context: JobContext, build: Build) -> dict[str, Any]:
    """The parameters of the engines' methods."""
    as_built = view(context, build)
    found = as_built.build_params(as_built.tuner)
    if build.graph_layout:
        found["options"] = {**found["options"], "graph_layout": build.graph_layout}
    return found if build.tuner else {**found, "tuner": None}


def _any_tuner(engine: str) -> Tuner:
    """Any tuner of the engine: engines rewrite only builds that have a tuner."""
    return next(tuner for tuner in Tuner.AUTO.considered if tuner.engine == engine)


def rewritten(context: JobContext, engine: str, precision: Precision) -> Build:
    """The engine's build of the rewritten network without records; of the network as it is, if none is rewritten."""
    name = f"{REWRITTEN if context.rewrites else UNTUNED} {engine}"
    usual = precision is precisions.first(context.request)
    return Build(
        name=name if usual else f"{name} {precision}", engine=engine, precision=precision, rewritten=context.rewrites
    )


@dataclass(frozen=True, kw_only=True)
class Compiled:
    files: list[str]
    """Relative to the work folder."""
    records: list[str]
    """Native lines of the schedules that the engine chose."""


def untuned(context: JobContext, engine: str, folder: str, *, timeout: float = COMPILE_SECONDS) -> Compiled:
    """Raises EngineError and the caller's errors."""
    return _compile(context, engine, folder, {**context.build_params(None), "records": None}, timeout=timeout)


def tuned(context: JobContext, build: Build, lines: Sequence[str]) -> Compiled:
    """Build with the best of the records in ``lines``; a build that an earlier attempt finished is reused.

    Raises EngineError and the caller's errors.
    """
    asked = params(context, build)
    note = context.folder / f"{build.folder}.json"
    basis = [asked, list(lines), context.toolchains[build.engine].identity]
    identity = hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()
    known = _known(context, note, identity)
    if known is not None:
        return known
    note.unlink(missing_ok=True)
    records = context.folder / f"{build.folder}-candidates.jsonl"
    write(records, lines)
    compiled = _compile(context, build.engine, build.folder, {**asked, "records": str(records) if lines else None})
    write(context.folder / build.records_file, compiled.records)
    write(note, [json.dumps({"identity": identity, **asdict(compiled)})])
    return compiled


def write(path: Path, lines: Sequence[str]) -> None:
    """Write the file atomically."""
    partial = path.with_suffix(".partial")
    partial.write_text("".join(line.rstrip("\n") + "\n" for line in lines))
    partial.replace(path)


def _known(context: JobContext, note: Path, identity: str) -> Compiled | None:
    try:
        stored = json.loads(note.read_text())
    except (FileNotFoundError, ValueError):
        # A power failure may have left an empty file.
        return None
    if stored.pop("identity") != identity or not all((context.folder / file).is_file() for file in stored["files"]):
        return None
    return Compiled(**stored)


def _compile(
    context: JobContext, engine: str, folder: str, params: dict[str, Any], *, timeout: float = COMPILE_SECONDS
) -> Compiled:
    partial = context.folder / f"partial-{folder}"
    shutil.rmtree(partial, ignore_errors=True)
    asked = {
        **params,
        "model_digest": context.model.digest,
        "format": str(context.request.bundle_format),
        "out_dir": str(partial),
        "part": context.job.part_of is not None,
    }
    compiled = context.ask(context.compiler(engine), "compile", asked, timeout=timeout)
    if asked["part"] and bundle.PART not in compiled["files"]:
        need = (partial / bundle.NEEDS_TVM).read_text().strip()
        raise errors.InvalidOption(
            f"a library of several sizes has no place for {need}",
            hint="Tune one size a job.",
        )
    replace_folder(partial, context.folder / folder)
    files = [f"{folder}/{file}" for file in compiled["files"]]
    return Compiled(files=files, records=compiled["records"])


def chosen(context: JobContext) -> Build | None:
    """The tuned build that stage ``verify`` chose."""
    return context.results.verify.tuned


def compiled(context: JobContext) -> list[Variant]:
    return [Variant.UNTUNED, Variant.TUNED] if chosen(context) else [Variant.UNTUNED]


def untuned_folder(engine: str) -> str:
    """Within the work folder."""
    return f"{UNTUNED}-{engine}"


def folder(context: JobContext, variant: Variant) -> Path:
    build = _build(context, variant)
    return path(context, build) if build else context.folder / untuned_folder(engine_name(context, variant))


def engine_name(context: JobContext, variant: Variant) -> str:
    """The untuned build is that of the fastest engine whose build is correct."""
    build, verified = _build(context, variant), context.results.find(VerifyResult)
    if build:
        return build.engine
    return (verified.untuned if verified else None) or context.results.baseline.engine


@dataclass(frozen=True, kw_only=True)
class Process:
    """The process that runs a build; each has its own, so that crashes and thread pools are separate.

    On this machine a build's library runs by itself, as its users run it; anything else needs the build's engine.
    """

    context: JobContext
    engine: str
    folder: str
    """Within the work folder."""

    @property
    def is_library(self) -> bool:
        return self.context.runner is None and (self.context.folder / self.folder / bundle.MODEL).is_file()

    @property
    def _name(self) -> str:
        return catalogue.LIBRARY if self.is_library else self.engine

    def get(self) -> Engine:
        """Start it unless it runs. Raises like ``EngineSource.start``."""
        return self.context.engines.get(self._name, role=self.folder)

    def is_alive(self) -> bool:
        return self.context.engines.is_alive(self._name, role=self.folder)

    def close(self) -> None:
        """End it; ``get`` starts a new one."""
        self.context.engines.close(self._name, role=self.folder)

    def timed(self, name: Name, inputs: Path) -> Timed[Name]:
        return timing.compiled(name, self.get(), self.context.folder / self.folder, inputs, place=self.context.place)


def process(context: JobContext, build: Build) -> Process:
    return Process(context=context, engine=build.engine, folder=build.folder)


def untuned_process(context: JobContext, engine: str) -> Process:
    return Process(context=context, engine=engine, folder=untuned_folder(engine))


def process_of(context: JobContext, variant: Variant) -> Process:
    build = _build(context, variant)
    return process(context, build) if build else untuned_process(context, engine_name(context, variant))


def _build(context: JobContext, variant: Variant) -> Build | None:
    return chosen(context) if variant is Variant.TUNED else None
