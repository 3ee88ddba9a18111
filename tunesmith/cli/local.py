"""Local execution of bundles with the server's packages, which exist in a checkout only."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunesmith import connection, errors

if TYPE_CHECKING:
    from domain.models import TensorSpec
    from domain.ports import Engine
    from tuner.host.catalogue import EngineSpec
    from tuner.host.session import EngineSession, Limits
    from tuner.results.manifest import Manifest

_SAME_MACHINE = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64", "arm64")}
"""Machine names of Linux, and their spellings in target triples."""
_MOST_BYTES = 64 * 1024**2
BASE_BYTES, COPIES = 4 * 1024**3, 8
"""Memory of a run: for TVM itself, and copies of inputs, outputs and files, as intermediate results may be larger."""
MAX_SECONDS = 600.0
"""Duration of a run with all its samples."""
_MORE_FILE_BYTES = 64 * 1024**2
_AGREEING = 1.1
"""Times within this factor agree; medians on an idle machine are closer than that."""


@dataclass(frozen=True, kw_only=True)
class Published:
    median: float
    """Seconds per run."""
    device: str
    threads: int
    same_device: bool
    """Whether this machine has the same processor, vector features and threads."""
    noisy: bool
    """Whether the machine was busy during the measurement."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    outputs: list[dict[str, Any]]
    samples: list[float]
    """Seconds per run."""
    number: int
    """Runs per sample, which is their mean."""
    threads: int
    published: Published | None
    """None for a bundle that was never measured."""
    runtime: str = "library"
    """What ran it: ``library``, ``TVM``, or ``onnxruntime`` or ``openvino`` and its version."""
    reason: str = ""
    """Why that did; empty for a bundle that only the compiled files can run."""

    def statistics(self) -> dict[str, float]:
        """Return the columns of TVMC's summary, in seconds."""
        import statistics

        ordered = sorted(self.samples)
        return {
            "mean": statistics.fmean(ordered),
            "median": statistics.median(ordered),
            "max": ordered[-1],
            "min": ordered[0],
            "std": statistics.pstdev(ordered),
        }


def is_checkout() -> bool:
    """Return whether the server's packages are there."""
    return importlib.util.find_spec("domain") is not None


@contextmanager
def translated() -> Iterator[None]:
    """Convert errors of the server's packages to the client's. Raises ConfigurationError outside a checkout."""
    try:
        from domain import errors as domain_errors
    except ModuleNotFoundError as error:
        raise errors.ConfigurationError(
            "only the client is installed; engines and the commands for a service need a checkout",
            hint="Run the command from a checkout.",
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
    memory_mb: int | None = None,
    max_seconds: float = MAX_SECONDS,
    runtime: str | None = None,
) -> RunResult:
    """Run a bundle once, then time ``repeat`` samples by the method of the published time.

    Without ``number``, a sample has as many runs as in the benchmark. ``named`` are outputs that must exist; all
    outputs are written to ``outputs``. ``memory_mb`` limits the memory of the process, in MiB; without it, the limit
    follows from the sizes in the manifest. ``max_seconds`` limits the time. ``runtime``, ``library`` or the one that
    the manifest recommends, insists on it; otherwise the recommended one is used if it is installed. Outside a
    checkout, ``alone.run_bundle`` runs it. Raises InvalidInput for unsuitable files and names and if memory or time
    are not enough, and ConfigurationError.
    """
    import tempfile

    _check_files([bundle, inputs], outputs)
    if not is_checkout():
        from tunesmith.cli import alone

        return alone.run_bundle(
            bundle, inputs=inputs, outputs=outputs, seconds=max_seconds, memory_mb=memory_mb, threads=threads,
            repeat=repeat, number=number, fill=fill, named=named, runtime=runtime,
        )  # fmt: skip
    with translated(), tempfile.TemporaryDirectory(prefix="tunesmith-run-") as scratch:
        from domain.errors import EngineCrashed, EngineRequestFailed
        from tuner.host import environments, failures
        from tuner.host.session import EngineSession
        from tuner.results import bundle as bundles

        _check_npz(inputs)
        folder = Path(scratch).absolute()
        manifest = bundles.open_bundle(bundle, folder / "bundle")
        check_machine(manifest.target)
        check_names(named, [spec.name for spec in manifest.outputs])
        chosen = _runtime(manifest, runtime)
        spec, python = chosen.engine, environments.interpreter(chosen.engine, connection.home())
        given = str(inputs.absolute()) if inputs else _filled(folder, manifest, fill)
        params = {
            "bundle": str(folder / "bundle"),
            "inputs": given,
            "threads": threads or manifest.threads,
            **chosen.params,
        }
        # The code of the bundle can write in this folder only.
        (folder / "written").mkdir()
        written = folder / "written" / "outputs.npz" if outputs else None
        log, limits = folder / "engine.log", limits_of(folder, manifest, memory_mb)
        with (
            EngineSession.start(spec, python, log_path=log, home=connection.home(), limits=limits) as session,
            _ended_after(max_seconds, session),
        ):
            try:
                asked = {**params, "outputs": str(written) if written else None}
                answer = session.request("run", asked, timeout=None)
                counted, samples = _timed(session, params, repeat, number)
            except (EngineCrashed, EngineRequestFailed) as error:
                if failures.needs_memory(error):
                    raise _too_large(limits) from error
                if isinstance(error, EngineRequestFailed):
                    raise failures.explain(error) from error
                raise
        if written and outputs:
            keep(written, outputs)
        return RunResult(
            outputs=answer["outputs"],
            samples=samples,
            number=counted,
            threads=threads or manifest.threads,
            published=_published(folder / "bundle", manifest, chosen),
            runtime=answer["runtime"],
            reason=chosen.reason,
        )


@dataclass(frozen=True, kw_only=True)
class _Runtime:
    engine: EngineSpec
    params: dict[str, str]
    """Of its requests."""
    reason: str


def _runtime(manifest: Manifest, wanted: str | None) -> _Runtime:
    """Choose what runs the bundle. Raises EngineNotInstalled if ``wanted`` is not there, and InvalidInput."""
    from domain.errors import EngineNotInstalled
    from tuner.host import catalogue, environments

    other, why = manifest.runtime, ""
    if wanted in catalogue.RUNNING and (other is None or other.name != wanted):
        raise errors.InvalidInput(
            f"the bundle has no model for {wanted}", code="invalid_bundle", hint="Run it without --runtime."
        )
    if other is not None and other.name in catalogue.RUNNING and wanted != "library":
        engine = catalogue.get(catalogue.RUNNING[other.name])
        why = f"{other.name} {other.version} was faster than the library in the benchmark"
        try:
            environments.interpreter(engine, connection.home())
        except EngineNotInstalled:
            if wanted:
                raise
            why += ", but is not installed"
        else:
            return _Runtime(engine=engine, params={"runtime": other.name}, reason=why)
    return _Runtime(engine=catalogue.get(manifest.engine), params={}, reason=why)


def limits_of(folder: Path, manifest: Manifest, memory_mb: int | None) -> Limits:
    """Return limits for the code of the bundle in ``folder/bundle``, which can write in ``folder/written`` only."""
    from tuner.host.session import Limits
    from tuner.sandbox.limits import memory_of_host

    files = sum(path.stat().st_size for path in (folder / "bundle").rglob("*"))
    outputs = sum(map(_size, manifest.outputs))
    needed = BASE_BYTES + COPIES * (files + outputs + sum(map(_size, manifest.inputs)))
    return Limits(
        data_bytes=memory_mb * 1024**2 if memory_mb else min(needed, memory_of_host() * 3 // 4),
        file_bytes=files + outputs + _MORE_FILE_BYTES,
        offline=True,
        writable=(str(folder / "written"),),
    )


def _size(spec: TensorSpec) -> int:
    """Return the bytes of a tensor; 8 for an element of unknown type."""
    import math

    digits = "".join(filter(str.isdigit, spec.dtype))
    return math.prod(size for size in spec.shape if isinstance(size, int)) * max(1, int(digits or 64) // 8)


@contextmanager
def _ended_after(seconds: float, session: EngineSession) -> Iterator[None]:
    """Kill the engine if the block takes longer. Raises InvalidInput then."""
    ended = threading.Event()

    def end() -> None:
        ended.set()
        # The session, which waits for an answer, notices.
        os.killpg(session.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield
    except Exception as error:
        if ended.is_set():
            raise too_slow(seconds) from error
        raise
    finally:
        timer.cancel()


def too_slow(seconds: float) -> errors.InvalidInput:
    return errors.InvalidInput(
        f"the bundle ran for more than {seconds:g} s", code="run_time_limit", hint="Allow more with --max-seconds."
    )


def _too_large(limits: Limits) -> errors.InvalidInput:
    allowed = (limits.data_bytes or 0) // 1024**2
    return errors.InvalidInput(
        f"the bundle needs more than {allowed} MiB of memory",
        code="memory_limit",
        hint="Allow more with --memory-mb if you trust the bundle.",
    )


def keep(written: Path, outputs: Path) -> None:
    """Copy the outputs to the user's file; a link or another special file is not followed."""
    import shutil

    if written.is_symlink() or not written.is_file():
        raise errors.InvalidInput("the bundle wrote no outputs", code="invalid_bundle")
    try:
        shutil.copyfile(written, outputs)
    except OSError as error:
        raise errors.InvalidInput(f"cannot write {outputs}: {error.strerror}", code="unwritable_file") from error


def _filled(folder: Path, manifest: Manifest, fill: str) -> str | None:
    """Write constant inputs, of the first of several sizes, and return their file.

    Returns None for random inputs, which the engine generates.
    """
    from tunesmith.cli import arrays

    if fill == "random":
        return None
    path = folder / "inputs.npz"
    shapes = manifest.sizes[0].input_shapes if manifest.sizes else {}
    specs = [replace(spec, shape=shapes.get(spec.name, spec.shape)) for spec in manifest.inputs]
    arrays.write_constant(path, specs, {"zeros": 0, "ones": 1}[fill])
    return str(path)


def _timed(engine: Engine, params: dict[str, Any], repeat: int, number: int | None) -> tuple[int, list[float]]:
    from tuner.results import timing

    if not repeat:
        return number or 1, []
    return timing.alone(timing.Timed(name="bundle", engine=engine, params=params), samples=repeat, number=number)


def _published(folder: Path, manifest: Manifest, ran: _Runtime) -> Published | None:
    from tuner.host import hardware
    from tuner.results import bundle

    key, threads = manifest.device_key, manifest.threads
    if key.startswith("cuda/"):
        same = key in {device.key for device in hardware.accelerators(threads)}
    else:
        same = key == hardware.device(threads).key and threads <= hardware.usable_cores()
    evidence, is_other = folder / bundle.EVIDENCE, bool(ran.params)
    return published(evidence, device_key=key, threads=threads, same_device=same, is_other=is_other)


def _check_files(read: Sequence[Path | None], written: Path | None) -> None:
    for path in read:
        if path is not None and not path.is_file():
            raise errors.unreadable(path)
    if written is not None and not written.absolute().parent.is_dir():
        raise errors.InvalidInput(f"folder not found: {written.absolute().parent}", code="unwritable_file")


def _check_npz(inputs: Path | None) -> None:
    """Reject other files before numpy reads them, which would treat them as pickles."""
    import zipfile

    from domain import errors as domain_errors

    if inputs is not None and not zipfile.is_zipfile(inputs):
        raise domain_errors.InvalidInputs(f"{inputs} is not an .npz file")


def check_names(named: Sequence[str], known: Sequence[str]) -> None:
    """Raise InvalidInput for an output that the bundle does not have."""
    for name in named:
        if name not in known:
            hint = f"Its outputs: {', '.join(known)}."
            raise errors.InvalidInput(f"the bundle has no output {name!r}", code="unknown_output", hint=hint)


def check_machine(target: str) -> None:
    """Raise InvalidInput for code of another architecture, which could not be loaded."""
    import platform

    _, named, triple = target.partition("-mtriple=")
    theirs, ours = triple.partition("-")[0], platform.machine()
    if named and theirs not in _SAME_MACHINE.get(ours, (ours,)):
        raise errors.InvalidInput(
            f"the bundle is for {theirs} ({target}), but this machine is {ours}",
            code="invalid_bundle",
            hint="Run it on such a machine.",
        )


def published(
    evidence: Path, *, device_key: str, threads: int, same_device: bool, is_other: bool = False
) -> Published | None:
    """Read the time of what was compiled, or of the other runtime, from a bundle's evidence; None without one.

    The file is untrusted.
    """
    try:
        if evidence.stat().st_size > _MOST_BYTES:
            return None
        document = json.loads(evidence.read_bytes())
        if document.get("sizes"):
            # Its times are means over the sizes, and none is a run's.
            return None
        # Bundles of earlier releases can run with the reference alone.
        variant = document.get("runtime_variant", "reference") if is_other else document["published"]
        median = float(document["benchmark"][variant]["median"])
        conditions = document.get("conditions") or {}
        device, noisy = str(conditions.get("device", device_key)), bool(conditions.get("noisy"))
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not 0 < median < float("inf"):
        return None
    # Control characters could reprogram the terminal.
    device = "".join(filter(str.isprintable, device))
    return Published(median=median, device=device, threads=threads, same_device=same_device, noisy=noisy)


def compared(published: Published, samples: Sequence[float], threads: int) -> list[str]:
    """Describe the published median and, if it differs, that of ``samples`` (seconds) measured here, with a reason."""
    import statistics

    place = "a device like this one" if published.same_device else "another device"
    device = f"{published.device}, {_counted(published.threads)}"
    sentences = [f"Published: {published.median * 1000:.3f} ms on {place} ({device})."]
    median = statistics.median(samples)
    ratio = median / published.median
    if not 1 / _AGREEING <= ratio <= _AGREEING:
        disturbed = ratio > 1 and median > min(samples) * _AGREEING
        sentences.append(f"Here it took {ratio:.2f} times as long: {_why(published, threads, disturbed=disturbed)}.")
    return sentences


def _why(published: Published, threads: int, *, disturbed: bool) -> str:
    if threads != published.threads:
        return f"it ran with {_counted(threads)}"
    if not published.same_device:
        return "the devices differ"
    if disturbed:
        return "the samples vary as if other programs were running"
    if published.noisy:
        return "the machine was busy when it was published, so that time is imprecise"
    return "other programs ran during one of the two measurements, or the clock frequencies differed"


def _counted(threads: int) -> str:
    return f"{threads} thread{'s' if threads != 1 else ''}"
