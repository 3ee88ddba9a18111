"""Comparison of a bundle with ONNX Runtime, in the sandboxes of engines; needs a checkout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunesmith import connection, errors
from tunesmith.cli import local

if TYPE_CHECKING:
    from domain.artifacts import RowsCompared, Verification
    from domain.models import TensorSpec
    from tuner.host.inspection import Inspector
    from tuner.host.session import EngineSession, Limits
    from tuner.results.manifest import Manifest
    from tuner.results.verification import Rows

_REFERENCE = "onnx"
_MODELS = ("original.onnx", "prepared.onnx")
"""Files of bundles whose runtime runs a model; a rewritten one is no reference."""
_SPLIT_SECONDS = 600.0


def with_reference(bundle: Path, model: Path) -> list[dict[str, Any]]:
    """Run a bundle and its ONNX file on seeded inputs, as a job does, and return the errors of each output.

    Raises InvalidInput with the code ``wrong_outputs`` if they disagree, and as ``local.run_bundle`` does.
    """
    with _opened(bundle) as (folder, manifest):
        found = [each for size in _sizes(manifest) for each in _verified(folder, size, model, None)]
    for error in (error for verification in found for error in verification.outputs):
        if not error.passed:
            raise errors.InvalidInput(
                f"output {error.output} differs from ONNX Runtime's by {error.max_rel:.3g} of its largest magnitude",
                code="wrong_outputs",
                hint="Do not use it: it does not compute what the model does.",
            )
    return [asdict(error) for error in found[0].outputs]


def on_rows(bundle: Path, data: Path, model: Path | None) -> dict[str, Any]:
    """Run a bundle on the rows of an ``.npz`` file, and its ``model`` in ONNX Runtime, if there is one.

    Without ``model``, the one in the bundle is the reference; a bundle that has none is compared with labels alone.
    Returns the verification of what was compiled, as in a job's report, and whether it ``passed``, in every runtime
    that the bundle may run with, else that of the first which fails; without a reference only its ``rows``. Raises
    InvalidInput with the code ``data_mismatch`` or ``no_reference``, and as ``local.run_bundle`` does.
    """
    for file in filter(None, (data, model)):
        if not file.is_file():
            raise errors.unreadable(file)
    with _opened(bundle) as (folder, manifest):
        manifest = _fitting(manifest, data)
        inside = [folder / "bundle" / name for name in _MODELS if (folder / "bundle" / name).exists()]
        known = model or next(iter(inside), None)
        if known is None:
            return {"precision": manifest.precision, "passed": None, "rows": asdict(_labelled(folder, manifest, data))}
        found = _verified(folder, manifest, known, data)
    told = next((each for each in found if not each.passed), found[0])
    return {**asdict(told), "passed": told.passed}


@contextmanager
def _opened(bundle: Path) -> Iterator[tuple[Path, Manifest]]:
    import tempfile

    with local.translated(), tempfile.TemporaryDirectory(prefix="tunesmith-verify-") as scratch:
        from tuner.results import bundle as bundles

        folder = Path(scratch).absolute()
        manifest = bundles.open_bundle(bundle, folder / "bundle")
        local.check_machine(manifest.target)
        # The code of the bundle can write in this folder only.
        (folder / "written").mkdir()
        yield folder, manifest


def _sizes(manifest: Manifest) -> list[Manifest]:
    """Return the manifest as it would be for each of its sizes alone."""
    if not manifest.sizes:
        return [manifest]

    def fixed(specs: Sequence[TensorSpec], values: dict[str, int]) -> tuple[TensorSpec, ...]:
        return tuple(
            replace(spec, shape=tuple(values.get(size, size) if isinstance(size, str) else size for size in spec.shape))
            for spec in specs
        )

    return [
        replace(manifest, inputs=fixed(manifest.inputs, size.values), outputs=fixed(manifest.outputs, size.values))
        for size in manifest.sizes
    ]


def _fitting(manifest: Manifest, data: Path) -> Manifest:
    """Return the manifest for the first size that the rows fit. Raises DataMismatch of the last one if none does."""
    from domain import data_sets
    from domain.errors import DataMismatch

    if not manifest.sizes:
        return manifest
    facts, sizes = _inspector().inspect_rows(data), _sizes(manifest)
    for each in sizes[:-1]:
        with suppress(DataMismatch):
            data_sets.fit(facts, each.inputs, each.outputs)
            return each
    data_sets.fit(facts, sizes[-1].inputs, sizes[-1].outputs)
    return sizes[-1]


def _verified(folder: Path, manifest: Manifest, model: Path, data: Path | None) -> list[Verification]:
    """Verify what was compiled and, if the bundle has one and it is installed, its model in another runtime.

    Each by the limits of the precision that it computes in. With ``data``, on its rows beside seeded inputs, as a job
    does.
    """
    from domain.artifacts import Variant
    from domain.errors import EngineNotInstalled
    from domain.jobs import AccuracyGate, Precision
    from tuner.host import catalogue, environments
    from tuner.results import verification
    from tuner.search import precisions

    shapes = {spec.name: [size for size in spec.shape if isinstance(size, int)] for spec in manifest.inputs}
    prepared = _inspector().prepare(model, shapes, folder / "prepared.onnx")
    runs: dict[str, tuple[Precision, dict[str, Any]]] = {manifest.engine: (Precision(manifest.precision), {})}
    if manifest.runtime is not None and manifest.runtime.name in catalogue.RUNNING:
        with suppress(EngineNotInstalled):
            name = catalogue.RUNNING[manifest.runtime.name]
            environments.interpreter(catalogue.get(name), connection.home())
            runs[name] = Precision(manifest.runtime.precision), {"runtime": manifest.runtime.name}
    seeds = max((verification.seeds_for(each, with_data=data is not None) for each, _ in runs.values()), key=len)
    with _engines(folder, manifest, list(runs)) as (reference, engines):
        seeded = verification.seed_inputs(
            reference, prepared.inputs, folder / "inputs", model=prepared.path, seeds=seeds
        )

        def referred(inputs: Sequence[Path], to: str) -> list[Path]:
            return verification.run_reference(reference, prepared.path, inputs, folder / to, threads=1)

        expected = referred(seeded.paths, "expected")
        rows = _rows(folder, reference, data, prepared.inputs, prepared.outputs) if data else None
        if rows:
            rows = replace(rows, expected=tuple(referred(rows.inputs, "expected-of-rows")))
        few = rows.some(verification.MOST_ROWS_OF_F32) if rows else None
        verification.run_perturbed(
            reference, prepared.path, [*seeded.paths, *(few.inputs if few else ())],
            [*expected, *(few.expected if few else ())], threads=1,
        )  # fmt: skip
        judged = AccuracyGate(top1=precisions.LEAST_TOP1) if data is not None else AccuracyGate()
        return [
            verification.verify(
                reference, engines[name], variant=Variant(manifest.variant), bundle=folder / "bundle",
                inputs=seeded.paths, expected=expected, folder=folder / "written",
                place={"threads": manifest.threads, **place}, precision=str(precision),
                gate=AccuracyGate() if precision is Precision.F32 else judged,
                model=prepared.path, kinds=seeded.kinds, seeds=seeds, rows=rows,
            )
            for name, (precision, place) in runs.items()
        ]  # fmt: skip


def _labelled(folder: Path, manifest: Manifest, data: Path) -> RowsCompared:
    """Compare a bundle with the labels of the rows alone."""
    from domain.artifacts import Variant
    from tuner.results import verification

    with _engines(folder, manifest, [manifest.engine]) as (reference, engines):
        rows = _rows(folder, reference, data, manifest.inputs, manifest.outputs)
        if not rows.labels:
            raise errors.InvalidInput(
                "the bundle has no model, and the rows have no labels: there is nothing to compare with",
                code="no_reference",
                hint="Name the ONNX file that it was compiled from: --model MODEL.onnx. Or add labels to the rows.",
            )
        return verification.on_labels(
            reference, engines[manifest.engine], variant=Variant(manifest.variant), bundle=folder / "bundle",
            folder=folder / "written", place={"threads": manifest.threads}, rows=rows,
        )  # fmt: skip


def _rows(
    folder: Path, reference: EngineSession, data: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Rows:
    """Write the runs of the rows that judge; the reference's outputs are made later."""
    from domain import data_sets
    from tuner.results import verification

    facts = _inspector().inspect_rows(data)
    fit = data_sets.fit(facts, inputs, outputs)
    runs = data_sets.split(facts, fit, calibrates=False).judging
    params = {
        "path": str(data.absolute()), "inputs": [asdict(spec) for spec in inputs], "rows": fit.rows,
        "runs": list(runs), "out_dir": str(folder / "rows"),
    }  # fmt: skip
    made = reference.request("split_rows", params, timeout=_SPLIT_SECONDS)
    return verification.Rows(
        first=tuple(run * fit.rows for run in runs),
        each=fit.rows,
        inputs=tuple(map(Path, made["paths"])),
        expected=(),
        labels=tuple(map(Path, made["labels"])),
    )


def _inspector() -> Inspector:
    from domain.models import ModelFormat
    from tuner.host.inspection import Inspector
    from tuner.host.settings import TunerSettings

    return Inspector.installed(ModelFormat.ONNX, connection.home(), TunerSettings())


@contextmanager
def _engines(
    folder: Path, manifest: Manifest, names: Sequence[str]
) -> Iterator[tuple[EngineSession, dict[str, EngineSession]]]:
    """Start the reference and these engines; failures that a user caused are raised as such."""
    from domain.errors import EngineRequestFailed
    from tuner.host import failures
    from tuner.host.session import Limits

    files = Limits(offline=True, writable=(str(folder),))
    with ExitStack() as stack:
        reference = stack.enter_context(_started(_REFERENCE, folder, files))
        limits = local.limits_of(folder, manifest, None)
        engines = {name: stack.enter_context(_started(name, folder, limits)) for name in names}
        try:
            yield reference, engines
        except EngineRequestFailed as error:
            raise failures.explain(error) from error


def _started(name: str, folder: Path, limits: Limits) -> EngineSession:
    from tuner.host import catalogue, environments
    from tuner.host.session import EngineSession

    spec, home = catalogue.get(name), connection.home()
    python, log = environments.interpreter(spec, home), folder / f"{name}.log"
    return EngineSession.start(spec, python, log_path=log, home=home, limits=limits)
