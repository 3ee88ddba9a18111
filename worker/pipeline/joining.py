"""Jobs with several sizes: what serves a size between them, and one library of the parts' builds.

Before anything is tuned, ONNX Runtime tells whether the model computes the same for a batch in several runs, and for
padded inputs. After the parts have ended, their builds are linked; the library must give, bit for bit, the outputs of
each part's own, whose verification then holds for it, and agree with ONNX Runtime in sizes between them.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from domain import errors, ids, sizes
from domain.artifacts import Artifact, OutputError, Report, SizeReport, Variant, Verification, narrowest
from domain.jobs import AccuracyGate, Job, Precision
from domain.models import TensorSpec
from domain.sizes import Size
from domain.stage_results import PublishResult
from storage import artifacts
from tuner.host import catalogue
from tuner.results import bundle, joint, verification
from tuner.results.bundle import Manifest
from tuner.search import precisions
from worker import clock
from worker.engines import ONNX
from worker.pipeline.context import COMPILE_SECONDS, INPUTS, JobContext

_COMPARE_SECONDS = 600.0
_SEEDS = verification.SEEDS[:1]
"""Of the question whether sizes compute the same."""
_JOINT = "joint"
"""Folder of the library of all sizes, and role of the process that runs it."""


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """A dimension that varies between sizes."""

    name: str
    splits: bool = False
    """Whether a size between is served by several runs: it is the first axis wherever it occurs, and rows do not depend
    on each other."""
    pads: bool = False
    """Whether inputs may be padded to the next size."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """How sizes between those of the request are served."""

    dimensions: tuple[Dimension, ...]
    choice: tuple[str, ...] = ()
    """Sentences for the report."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """An ended part, and its unpacked bundle."""

    size: Size
    job: Job
    artifact: Artifact
    folder: Path
    manifest: Manifest

    @property
    def seconds(self) -> float:
        """Median of a run."""
        report = self.artifact.report
        return report.timings[report.published].median


@dataclass(frozen=True, kw_only=True)
class Linked:
    """The library of all sizes."""

    folder: Path
    parts: tuple[Part, ...]
    served: Served
    weights: tuple[int, int]
    """Bytes in this library, and in those of the parts together."""


@dataclass(frozen=True, kw_only=True)
class Joined:
    """Likewise, verified."""

    folder: Path
    parts: tuple[Part, ...]
    manifest: Manifest
    report: Report


def examine(context: JobContext) -> Served:
    """Find how sizes between are served. Raises PaddingChangesResults, EngineError and the caller's errors."""
    axes = _axes(context)
    models = _Models(context)
    found: list[Dimension] = []
    choice: list[str] = []
    batch = sizes.batch_dimensions(context.model.facts.inputs)
    for name in context.request.sizes[0].values:
        if name in batch and not any(each.splits for each in found):
            splits, sentence = _splits(models, name)
            found.append(Dimension(name=name, splits=splits))
            choice.append(sentence)
        else:
            found.append(Dimension(name=name, pads=_pads(models, name, axes)))
    return Served(dimensions=tuple(found), choice=tuple(choice))


def _axes(context: JobContext) -> dict[str, list[str | None]]:
    """The varying dimension that each axis of each input is; None for the others."""
    values = context.request.sizes[0].values
    return {
        spec.name: [name if name in values else None for name in sizes.names_of(spec)]
        for spec in context.model.facts.inputs
    }


class _Models:
    """The model, prepared for sizes as they are needed."""

    def __init__(self, context: JobContext) -> None:
        self.context = context
        self._known: dict[tuple[int, ...], tuple[Path, tuple[TensorSpec, ...]]] = {}

    def values(self, name: str) -> list[int]:
        """The values of a dimension, ascending."""
        return sorted({size.values[name] for size in self.context.request.sizes})

    def least(self, changed: Mapping[str, int]) -> dict[str, int]:
        """The smallest value of each dimension, but for those ``changed``."""
        return {name: min(self.values(name)) for name in self.context.request.sizes[0].values} | dict(changed)

    def get(self, values: Mapping[str, int]) -> tuple[Path, tuple[TensorSpec, ...]]:
        """The prepared model's file and inputs. Raises the caller's errors."""
        key = tuple(values.values())
        if key not in self._known:
            path = self.context.folder / f"sized-{'-'.join(map(str, key))}.onnx"
            with self.context.blobs.local(self.context.model.digest) as original:
                prepared = self.context.engines.prepare(original, self._shapes(values), path)
            self._known[key] = (path, prepared.inputs)
        return self._known[key]

    def seeded(self, values: Mapping[str, int], seeds: Sequence[int]) -> list[Path]:
        """Seeded inputs of that size. Raises EngineError."""
        path, inputs = self.get(values)
        folder = self.context.folder / f"{INPUTS}-{path.stem}"
        return verification.seed_inputs(self.context.engines.get(ONNX), inputs, folder, model=path, seeds=seeds).paths

    def compare(
        self, small: Mapping[str, int], large: Mapping[str, int], padding: Mapping[str, float] | None
    ) -> Iterator[dict[str, Any]]:
        """Outputs that differ between the two sizes. Raises EngineError and the caller's errors."""
        paths = self.seeded(large if padding is None else small, _SEEDS)
        params = {
            "small": str(self.get(small)[0]), "large": str(self.get(large)[0]), "inputs": list(map(str, paths)),
            "padding": None if padding is None else dict(padding), "threads": self.context.threads,
        }  # fmt: skip
        engine = self.context.engines.get(ONNX)
        answer = self.context.ask(engine, "compare_sizes", params, timeout=_COMPARE_SECONDS)
        return (output for output in answer["outputs"] if not output["passed"])

    def _shapes(self, values: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        axes = _axes(self.context)
        return {
            name: tuple(values[each] if each else size for each, size in zip(axes[name], shape, strict=True))
            for name, shape in self.context.request.sizes[0].input_shapes.items()
        }


def _splits(models: _Models, name: str) -> tuple[bool, str]:
    first, *_, last = models.values(name)
    wrong = next(models.compare(models.least({name: first}), models.least({name: last}), None), None)
    if wrong is None:
        return True, f"Other values of {name} are served in several runs: rows do not depend on each other."
    return False, (
        f"Only the exact values of {name} are served, as rows depend on each other: in a smaller batch, "
        f"{wrong['output']} is {_off(wrong)}."
    )


def _pads(models: _Models, name: str, axes: Mapping[str, Sequence[str | None]]) -> bool:
    padding = models.context.request.padding
    if not all(given in padding for given, found in axes.items() if name in found):
        return False
    values = models.values(name)
    small, large = models.least({name: values[0]}), models.least({name: values[-1]})
    wrong = next(models.compare(small, large, padding), None)
    if wrong is None:
        return True
    given = ", ".join(f"{each}={padding[each]:g}" for each, found in axes.items() if name in found)
    raise errors.PaddingChangesResults(
        f"padding {name} from {values[0]} to {values[-1]} with {given} changes {wrong['output']}: {_off(wrong)}",
        details={"dimension": name, "output": wrong["output"]},
    )


def _off(wrong: Mapping[str, Any]) -> str:
    return str(wrong["fault"]) if wrong.get("fault") else f"off by {wrong['max_rel']:.2g} of its largest magnitude"


def opened(context: JobContext, jobs: Sequence[Job]) -> list[Part]:
    """Unpack the bundles of the ended parts. Raises ArtifactNotFound, BlobNotFound and InvalidBundle."""
    found = []
    for number, (job, size) in enumerate(zip(jobs, context.request.sizes, strict=True)):
        with context.database.reading() as session:
            artifact = artifacts.get(session, job.artifact_id or "")
        folder = context.folder / f"part-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        with context.blobs.local(artifact.digest) as path:
            manifest = bundle.open_bundle(path, folder)
        found.append(Part(size=size, job=job, artifact=artifact, folder=folder, manifest=manifest))
    return found


def link(context: JobContext, parts: Sequence[Part], served: Served) -> Linked:
    """Link the parts' builds. Raises EngineError and the caller's errors."""
    folder = context.folder / _JOINT
    shutil.rmtree(folder, ignore_errors=True)
    params = {
        "parts": [
            {
                "name": part.size.name,
                "path": str(part.folder / bundle.PART),
                "values": list(part.size.values.values()),
                "seconds": part.seconds,
            }
            for part in parts
        ],
        "dimensions": [asdict(each) for each in served.dimensions],
        "inputs": _axes(context),
        "padding": context.request.padding,
        "target": context.target.text,
        "threads": context.threads,
        "model_digest": context.model.digest,
        "format": str(context.request.bundle_format),
        "out_dir": str(folder),
    }
    engine = context.compiler(parts[0].artifact.toolchain.partition("/")[0])
    answer = context.ask(engine, "join", params, timeout=COMPILE_SECONDS)
    weights = (int(answer["weight_bytes"]), int(answer["separate_weight_bytes"]))
    return Linked(folder=folder, parts=tuple(parts), served=_without(served, answer["exact"]), weights=weights)


def _without(served: Served, exact: Sequence[str]) -> Served:
    """Leave out dimensions of which the library serves exact values alone."""
    choice = [
        f"Only the exact values of {name} are served: sizes of outputs follow from it in a way that is not known."
        for name in exact
    ]
    dimensions = (Dimension(name=each.name) if each.name in exact else each for each in served.dimensions)
    return Served(dimensions=tuple(dimensions), choice=(*served.choice, *choice))


def verify(context: JobContext, linked: Linked) -> Joined:
    """Verify the library of all sizes and describe it. Raises VerificationFailed, EngineError."""
    parts, folder, served = linked.parts, linked.folder, linked.served
    context.engines.close_all()
    models, precision = _Models(context), _narrowest(parts)
    for part in parts:
        _require_equal(models, part, folder)
    between = [error for values in _between(models, served) for error in _compared(models, values, folder, precision)]
    wrong = [error for error in between if not error.passed]
    if wrong:
        raise errors.VerificationFailed(
            f"the library of all sizes is wrong between them: {wrong[0].output}: {wrong[0].found}",
            details={"outputs": [asdict(error) for error in wrong]},
        )
    reports = [SizeReport(size=part.size, job=part.job.id, report=part.artifact.report) for part in parts]
    report = joint.report(reports, choice=(*served.choice, _shared(linked)))
    return Joined(folder=folder, parts=parts, manifest=_manifest(context, parts, report), report=report)


def _shared(linked: Linked) -> str:
    together, apart = (size / 1e6 for size in linked.weights)
    return f"The sizes share weights: {together:.1f} MB in one library, {apart:.1f} MB in {len(linked.parts)}."


def _require_equal(models: _Models, part: Part, folder: Path) -> None:
    """Raise VerificationFailed unless the joint library gives the outputs of the part's own, bit for bit."""
    context = models.context
    inputs = models.seeded(part.size.values, verification.SEEDS)
    own = context.engines.get(catalogue.LIBRARY, role=part.folder.name)
    expected = verification.run_plain(
        own, part.folder, inputs, context.folder / f"outputs-{part.folder.name}", canceled=context.canceled,
        threads=context.threads,
    )  # fmt: skip
    context.engines.close(catalogue.LIBRARY, role=part.folder.name)
    found = _verified(context, folder, inputs, expected, Precision.F32)
    unequal = [error for error in found.outputs if error.max_abs or not error.passed]
    if unequal:
        raise errors.VerificationFailed(
            f"{part.size.name}: the library of all sizes gives other results than that of this size alone: "
            f"{unequal[0].output}: {unequal[0].found}",
            details={"outputs": [asdict(error) for error in unequal]},
        )


def _between(models: _Models, served: Served) -> Iterator[dict[str, int]]:
    """Sizes between those of the request, that the library serves: of each dimension alone, and of all."""
    changed = {}
    for dimension in served.dimensions:
        values = models.values(dimension.name)
        if dimension.splits:
            # One row more than the largest run, which takes several; a single row may need spare ones.
            changed[dimension.name] = values[-1] + 1
        elif dimension.pads and values[-1] - 1 not in values:
            changed[dimension.name] = values[-1] - 1
    for name, value in changed.items():
        yield models.least({name: value})
    if len(changed) > 1:
        yield models.least(changed)


def _narrowest(parts: Sequence[Part]) -> Precision:
    """The precision whose limits hold for a size between: with ``auto``, the parts' may differ."""
    return Precision(narrowest(part.artifact.report.precision for part in parts))


def _compared(
    models: _Models, values: Mapping[str, int], folder: Path, precision: Precision
) -> tuple[OutputError, ...]:
    context, reference = models.context, models.context.engines.get(ONNX)
    path, _ = models.get(values)
    inputs = models.seeded(values, verification.SEEDS)
    threads, canceled = context.threads, context.canceled
    folder_of_expected = context.folder / f"expected-{path.stem}"
    expected = verification.run_reference(
        reference, path, inputs, folder_of_expected, threads=threads, canceled=canceled
    )
    if precision is Precision.F32:
        with contextlib.suppress(errors.EngineRequestFailed):
            # The limits are fixed ones without it.
            verification.run_perturbed(reference, path, inputs, expected, threads=threads, canceled=canceled)
    return _verified(context, folder, inputs, expected, precision).outputs


def _verified(
    context: JobContext, folder: Path, inputs: Sequence[Path], expected: Sequence[Path], precision: Precision
) -> Verification:
    gate = precisions.gate_of(context.request, precision)
    return verification.verify(
        context.engines.get(ONNX),
        context.engines.get(catalogue.LIBRARY, role=_JOINT),
        variant=Variant.TUNED,
        bundle=folder,
        inputs=inputs,
        expected=expected,
        folder=context.folder / "actual",
        place={"threads": context.threads, "target": context.target.text, "runner": None},
        precision=str(precision),
        # A few rows say nothing of shares of rows; those of every size were judged by its own job.
        gate=AccuracyGate(max_rel=gate.max_rel),
        canceled=context.canceled,
    )


def _manifest(context: JobContext, parts: Sequence[Part], report: Report) -> Manifest:
    first, axes = parts[0].manifest, _axes(context)
    inputs = tuple(
        replace(spec, shape=tuple(name or size for name, size in zip(axes[spec.name], spec.shape, strict=True)))
        for spec in first.inputs
    )
    outputs = tuple(
        replace(
            spec, shape=joint.varying([part.manifest.outputs[place].shape for part in parts], context.request.sizes)
        )
        for place, spec in enumerate(first.outputs)
    )
    return replace(
        first,
        variant=str(report.published),
        precision=report.precision,
        inputs=inputs,
        outputs=outputs,
        format=str(context.request.bundle_format),
        sizes=context.request.sizes,
        padding=dict(context.request.padding),
        tuner="",
        files={},
    )


def write(context: JobContext, joined: Joined) -> Path:
    """Write the bundle and return its path."""
    path = context.folder / "bundle.tar"
    parts = [bundle.PartEvidence(size=part.size, job=part.job.id, folder=part.folder) for part in joined.parts]
    bundle.write(path, compiled=joined.folder, manifest=joined.manifest, report=joined.report, parts=parts)
    return path


def artifact(context: JobContext, joined: Joined, result: PublishResult) -> Artifact:
    first = joined.parts[0].artifact
    axes = _axes(context)
    return replace(
        first,
        id=ids.artifact(result.digest),
        digest=result.digest,
        size_bytes=result.size_bytes,
        job_id=context.job.id,
        # 0 stands for a size that varies.
        input_shapes={
            name: tuple(0 if axes[name][axis] else size for axis, size in enumerate(shape))
            for name, shape in first.input_shapes.items()
        },
        precision=joined.report.precision,
        bundle_format=str(context.request.bundle_format),
        verified=joined.report.is_verified,
        report=joined.report,
        sizes=context.request.sizes,
        created_at=clock.now(),
    )
