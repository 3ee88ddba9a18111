"""Execution of bundles where only the client is installed: in this process, by ``tunesmith.runtime`` and numpy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tunesmith import errors
from tunesmith.cli.local import RunResult

_SAMPLE_SECONDS = 0.02
"""Runs of a sample last at least this long, as in the benchmark."""


def run_bundle(
    bundle: Path,
    *,
    inputs: Path | None,
    outputs: Path | None,
    threads: int | None,
    repeat: int,
    number: int | None,
    fill: str,
    named: Sequence[str] = (),
    runtime: str | None = None,
) -> RunResult:
    """Run a bundle as ``local.run_bundle`` does, but neither sandboxed nor compared with its published time.

    Raises InvalidInput, and ConfigurationError if numpy is missing.
    """
    try:
        import numpy as np

        from tunesmith.runtime import InferenceSession, LoadError, RunError
    except ModuleNotFoundError as error:
        raise errors.ConfigurationError(
            "only the client is installed, without what runs bundles", hint="Install it: pip install 'tunesmith[run]'"
        ) from error
    try:
        with InferenceSession(bundle, threads=threads, runtime=runtime) as session:
            known = [info.name for info in session.get_outputs()]
            for name in set(named) - set(known):
                hint = f"Its outputs: {', '.join(known)}."
                raise errors.InvalidInput(f"the bundle has no output {name!r}", code="unknown_output", hint=hint)
            feed = _read(inputs, np) if inputs else {i.name: _filled(i, fill, np) for i in session.get_inputs()}
            results = session.run(None, feed)
            if outputs:
                with outputs.open("wb") as file:
                    np.savez(file, **dict(zip(known, results, strict=True)))
            if repeat and not number:
                number = max(1, round(_SAMPLE_SECONDS / min(session.time(feed, repeat=5))))
            samples = session.time(feed, number=number or 1, repeat=repeat) if repeat else []
            return RunResult(
                outputs=[{"name": i.name, "dtype": i.dtype, "shape": i.shape} for i in session.get_outputs()],
                samples=samples,
                number=number or 1,
                threads=session.threads,
                published=None,
                runtime=session.runtime,
                reason=session.reason,
            )
    except LoadError as error:
        raise errors.InvalidInput(str(error), code="invalid_bundle") from error
    except RunError as error:
        raise errors.InvalidInput(str(error), code="invalid_bundle") from error
    except ValueError as error:
        raise errors.InvalidInput(str(error), code="invalid_input") from error


def _read(path: Path, np: Any) -> dict[str, Any]:
    import zipfile

    # numpy takes other files for pickles.
    if not zipfile.is_zipfile(path):
        raise errors.InvalidInput(f"{path} is not an .npz file", code="invalid_input")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise errors.InvalidInput(f"{path} cannot be read: {error}", code="invalid_input") from error


def _filled(info: Any, fill: str, np: Any) -> Any:
    """Return values as the engines generate them: random ones are the same in every run."""
    if fill != "random":
        return np.full(info.shape, {"zeros": 0, "ones": 1}[fill], info.dtype)
    generator = np.random.default_rng(0)
    floating = np.issubdtype(np.dtype(info.dtype), np.floating)
    values = generator.random(info.shape) if floating else generator.integers(0, 2, info.shape)
    return values.astype(info.dtype)
