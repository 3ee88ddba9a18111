"""What commands do on this machine, with the server's own packages: there in a checkout only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunesmith import connection, errors

if TYPE_CHECKING:
    from domain.ports import Engine
    from tuner.manifest import Manifest
    from tunesmith.cli.published import Published

_SAME_MACHINE = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64", "arm64")}
"""How triples write the machines that Linux names so."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    outputs: list[dict[str, Any]]
    samples: list[float]
    """Seconds per run."""
    number: int
    """Runs a sample, of which it is the mean."""
    threads: int
    published: Published | None
    """None where nothing was measured when it was built."""

    def statistics(self) -> dict[str, float]:
        """TVMC's columns."""
        import statistics

        ordered = sorted(self.samples)
        return {
            "mean": statistics.fmean(ordered),
            "median": statistics.median(ordered),
            "max": ordered[-1],
            "min": ordered[0],
            "std": statistics.pstdev(ordered),
        }


@contextmanager
def translated() -> Iterator[None]:
    """The domain's errors as the client's, so that they look alike. Raises ConfigurationError outside a checkout."""
    try:
        from domain import errors as domain_errors
    except ModuleNotFoundError as error:
        raise errors.ConfigurationError(
            "this installation holds the client only; engines, and what looks after a service, are part of a checkout",
            hint="Run it from a checkout. A bundle runs without one, too: unpack it and call its example.py.",
        ) from error
    try:
        yield
    except domain_errors.TunesmithError as error:
        raise _as_ours(error, domain_errors) from error


def _as_ours(error: Any, domain_errors: Any) -> errors.TunesmithError:
    kind = errors.TunesmithError
    if isinstance(error, domain_errors.InvalidRequest):
        kind = errors.InvalidInput
    elif isinstance(error, domain_errors.EngineNotInstalled | domain_errors.ConfigurationError):
        kind = errors.ConfigurationError
    elif isinstance(error, domain_errors.Unavailable):
        kind = errors.NetworkError
    return kind(error.message, code=error.code, hint=error.hint, details=error.details)


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
) -> RunResult:
    """Run once, and time ``repeat`` samples, as the published time was. Raises InvalidInput for what does not fit,
    ConfigurationError.

    Without ``number`` a sample is of as many runs as there. ``named`` are outputs that must exist; ``outputs`` gets
    all of them.
    """
    import tempfile

    _check_files([bundle, inputs], outputs)
    with translated(), tempfile.TemporaryDirectory(prefix="tunesmith-run-") as scratch:
        from domain.errors import EngineRequestFailed
        from tuner import bundle as bundles
        from tuner import catalogue, environments, failures
        from tuner.session import EngineSession, Limits

        _check_npz(inputs)
        folder = Path(scratch).absolute()
        manifest = bundles.open_bundle(bundle, folder / "bundle")
        _check_machine(manifest.target)
        _check_names(named, [spec.name for spec in manifest.outputs])
        spec = catalogue.get(manifest.engine)
        given = str(inputs.absolute()) if inputs else _filled(folder, manifest, fill)
        params = {"bundle": str(folder / "bundle"), "inputs": given, "threads": threads or manifest.threads}
        written = str(outputs.absolute()) if outputs else None
        python = environments.interpreter(spec, connection.home())
        log, limits = folder / "engine.log", Limits(offline=True)
        with EngineSession.start(spec, python, log_path=log, home=connection.home(), limits=limits) as session:
            try:
                answer = session.request("run", {**params, "outputs": written}, timeout=None)
                counted, samples = _timed(session, params, repeat, number)
            except EngineRequestFailed as error:
                raise failures.explain(error) from error
        return RunResult(
            outputs=answer["outputs"],
            samples=samples,
            number=counted,
            threads=threads or manifest.threads,
            published=_published(folder / "bundle", manifest),
        )


def _filled(folder: Path, manifest: Manifest, fill: str) -> str | None:
    """A file of inputs; None where the engine makes them, at random."""
    from tunesmith.cli import arrays

    if fill == "random":
        return None
    path = folder / "inputs.npz"
    arrays.write_constant(path, manifest.inputs, {"zeros": 0, "ones": 1}[fill])
    return str(path)


def _timed(engine: Engine, params: dict[str, Any], repeat: int, number: int | None) -> tuple[int, list[float]]:
    from tuner import timing

    if not repeat:
        return number or 1, []
    return timing.alone(timing.Timed(name="bundle", engine=engine, params=params), samples=repeat, number=number)


def _published(folder: Path, manifest: Manifest) -> Published | None:
    from tuner import bundle, hostinfo
    from tunesmith.cli import published

    key, threads = manifest.device_key, manifest.threads
    if key.startswith("cuda/"):
        same = key in {device.key for device in hostinfo.accelerators(threads)}
    else:
        same = key == hostinfo.device(threads).key and threads <= hostinfo.usable_cores()
    return published.read(folder / bundle.EVIDENCE, device_key=key, threads=threads, same_device=same)


def _check_files(read: Sequence[Path | None], written: Path | None) -> None:
    for path in read:
        if path is not None and not path.is_file():
            raise errors.unreadable(path)
    if written is not None and not written.absolute().parent.is_dir():
        raise errors.InvalidInput(f"there is no folder {written.absolute().parent}", code="unwritable_file")


def _check_npz(inputs: Path | None) -> None:
    """Before numpy, which takes anything else for a pickle."""
    import zipfile

    from domain import errors as domain_errors

    if inputs is not None and not zipfile.is_zipfile(inputs):
        raise domain_errors.InvalidInputs(f"{inputs} is no .npz file")


def _check_names(named: Sequence[str], known: Sequence[str]) -> None:
    for name in named:
        if name not in known:
            hint = f"Its outputs are {', '.join(known)}."
            raise errors.InvalidInput(f"the bundle has no output {name!r}", code="unknown_output", hint=hint)


def _check_machine(target: str) -> None:
    """Raises InvalidInput for code of another kind of machine, which could not be loaded."""
    import platform

    _, named, triple = target.partition("-mtriple=")
    theirs, ours = triple.partition("-")[0], platform.machine()
    if named and theirs not in _SAME_MACHINE.get(ours, (ours,)):
        raise errors.InvalidInput(
            f"the bundle is for {theirs} ({target}), and this machine is {ours}",
            code="invalid_bundle",
            hint="Run it there: unpack it and call its example.py.",
        )
