"""Comparison of a bundle with ONNX Runtime, in the sandboxes of engines; needs a checkout."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunesmith import connection, errors
from tunesmith.cli import local

if TYPE_CHECKING:
    from domain.artifacts import Verification
    from tuner.host.session import EngineSession, Limits
    from tuner.results.manifest import Manifest

_REFERENCE = "onnx"


def with_reference(bundle: Path, model: Path) -> list[dict[str, Any]]:
    """Run a bundle and its ONNX file on seeded inputs, as a job does, and return the errors of each output.

    Raises InvalidInput with the code ``wrong_outputs`` if they disagree, and as ``local.run_bundle`` does.
    """
    import tempfile

    with local.translated(), tempfile.TemporaryDirectory(prefix="tunesmith-verify-") as scratch:
        from tuner.results import bundle as bundles

        folder = Path(scratch).absolute()
        manifest = bundles.open_bundle(bundle, folder / "bundle")
        local.check_machine(manifest.target)
        # The code of the bundle can write in this folder only.
        (folder / "written").mkdir()
        found = _verified(folder, manifest, model)
    for error in (error for verification in found for error in verification.outputs):
        if not error.passed:
            raise errors.InvalidInput(
                f"output {error.output} differs from ONNX Runtime's by {error.max_rel:.3g} of its largest magnitude",
                code="wrong_outputs",
                hint="Do not use it: it does not compute what the model does.",
            )
    return [asdict(error) for error in found[0].outputs]


def _verified(folder: Path, manifest: Manifest, model: Path) -> list[Verification]:
    """Verify what was compiled and, if the bundle has one and it is installed, its model in another runtime."""
    from domain.artifacts import Variant
    from domain.errors import EngineNotInstalled, EngineRequestFailed
    from domain.jobs import Precision
    from domain.models import ModelFormat
    from tuner.host import catalogue, environments, failures
    from tuner.host.inspection import Inspector
    from tuner.host.session import Limits
    from tuner.host.settings import TunerSettings
    from tuner.results import verification

    inspector = Inspector.installed(ModelFormat.ONNX, connection.home(), TunerSettings())
    shapes = {spec.name: [size for size in spec.shape if isinstance(size, int)] for spec in manifest.inputs}
    prepared = inspector.prepare(model, shapes, folder / "prepared.onnx")
    seeds = verification.seeds_for(Precision(manifest.precision))
    files = Limits(offline=True, writable=(str(folder),))
    runs: dict[str, dict[str, Any]] = {manifest.engine: {}}
    if manifest.runtime is not None and manifest.runtime.name in catalogue.RUNNING:
        with suppress(EngineNotInstalled):
            name = catalogue.RUNNING[manifest.runtime.name]
            environments.interpreter(catalogue.get(name), connection.home())
            runs[name] = {"runtime": manifest.runtime.name}
    with ExitStack() as stack:
        reference = stack.enter_context(_started(_REFERENCE, folder, files))
        limits = local.limits_of(folder, manifest, None)
        engines = {name: stack.enter_context(_started(name, folder, limits)) for name in runs}
        try:
            seeded = verification.seed_inputs(
                reference, prepared.inputs, folder / "inputs", model=prepared.path, seeds=seeds
            )
            expected = verification.run_reference(
                reference, prepared.path, seeded.paths, folder / "expected", threads=1
            )
            verification.run_perturbed(reference, prepared.path, seeded.paths, expected, threads=1)
            return [
                verification.verify(
                    reference, engine, variant=Variant(manifest.variant), bundle=folder / "bundle",
                    inputs=seeded.paths, expected=expected, folder=folder / "written",
                    place={"threads": manifest.threads, **runs[name]}, precision=manifest.precision,
                    model=prepared.path, kinds=seeded.kinds, seeds=seeds,
                )
                for name, engine in engines.items()
            ]  # fmt: skip
        except EngineRequestFailed as error:
            raise failures.explain(error) from error


def _started(name: str, folder: Path, limits: Limits) -> EngineSession:
    from tuner.host import catalogue, environments
    from tuner.host.session import EngineSession

    spec, home = catalogue.get(name), connection.home()
    python, log = environments.interpreter(spec, home), folder / f"{name}.log"
    return EngineSession.start(spec, python, log_path=log, home=home, limits=limits)
