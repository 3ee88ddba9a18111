"""Execution of bundles where only the client is installed, by ``tunesmith.runtime`` and numpy.

A process of its own runs the bundle, so that it may crash and has limits of memory and time. That is no sandbox: the
bundle's code has the rights of its user (decision 0048).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunesmith import errors
from tunesmith.cli import local

_SAMPLE_SECONDS = 0.02
"""Runs of a sample last at least this long, as in the benchmark."""
_KINDS = {kind.__name__: kind for kind in (errors.InvalidInput, errors.ConfigurationError)}
_DIE_WITH_PARENT = 1
"""``PR_SET_PDEATHSIG`` of prctl(2)."""


def run_bundle(
    bundle: Path,
    *,
    inputs: Path | None,
    outputs: Path | None,
    seconds: float,
    memory_mb: int | None = None,
    **options: Any,
) -> local.RunResult:
    """Run a bundle as ``local.run_bundle`` does, but neither sandboxed nor compared with its published time.

    Raises InvalidInput, also with the code ``memory_limit`` or ``run_time_limit``, ConfigurationError if numpy is
    missing, and TunesmithError with the code ``bundle_crashed`` if the process ends otherwise.
    """
    limit = memory_mb * 1024**2 if memory_mb else _memory([bundle, *([inputs] if inputs else [])])
    with tempfile.TemporaryDirectory(prefix="tunesmith-run-") as folder:
        # The user's file is written once there is a whole one.
        written = Path(folder, "outputs.npz") if outputs else None
        asked = {"bundle": bundle, "inputs": inputs, "outputs": written, "memory": limit, **options}
        answer = _answer(json.dumps(asked, default=str).encode(), seconds)
        if "error" in answer:
            kind, message, code, hint = answer["error"]
            raise _KINDS[kind](message, code=code, hint=hint)
        if written and outputs:
            local.keep(written, outputs)
    return local.RunResult(**answer["result"], published=None)


def _memory(files: Sequence[Path]) -> int:
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(local.BASE_BYTES + local.COPIES * sum(path.stat().st_size for path in files), host * 3 // 4)


def _answer(request: bytes, seconds: float) -> dict[str, Any]:
    """Return the answer of a new process, which is ended, with all that it started."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            answer, _ = process.communicate(request, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise local.too_slow(seconds) from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise _crashed(process.returncode)
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError as error:
        raise _crashed(process.returncode) from error
    return found


def _crashed(status: int) -> errors.TunesmithError:
    """Return the error of a bundle whose process ended with that status; that of a signal is negative."""
    ending = f"exit status {status}"
    if status < 0:
        ending = f"{signal.Signals(-status).name} ({signal.strsignal(-status)})"
    return errors.TunesmithError(
        f"the bundle ended the process that ran it: {ending}",
        code="bundle_crashed",
        hint="Check the bundle: tunesmith verify BUNDLE.",
    )


def _main() -> None:
    """Read a request from standard input and write the answer to standard output."""
    # The bundle may print.
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = json.load(sys.stdin)
    _limit(request.pop("memory"))
    try:
        answer: dict[str, Any] = {"result": _run(**request)}
    except MemoryError as error:
        answer = {"error": _told(_too_large(str(error)))}
    except errors.TunesmithError as error:
        answer = {"error": _told(error)}
    with os.fdopen(answers, "w") as file:
        json.dump(answer, file)


def _told(error: errors.TunesmithError) -> tuple[str, str, str, str | None]:
    return type(error).__name__, error.message, error.code, error.hint


def _limit(memory: int) -> None:
    import ctypes
    import resource

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _too_large(reason: str) -> errors.InvalidInput:
    return errors.InvalidInput(
        f"the bundle needs more memory than it may have: {reason}",
        code="memory_limit",
        hint="Allow more with --memory-mb if you trust the bundle.",
    )


def _run(
    bundle: str,
    *,
    inputs: str | None,
    outputs: str | None,
    threads: int | None,
    repeat: int,
    number: int | None,
    fill: str,
    named: Sequence[str],
    runtime: str | None,
) -> dict[str, Any]:
    """Return the fields of the result. Raises InvalidInput, ConfigurationError and MemoryError."""
    try:
        import numpy as np

        from tunesmith.runtime import InferenceSession, LoadError, RunError
    except ModuleNotFoundError as error:
        raise errors.ConfigurationError(
            "numpy is not installed, with which the client runs bundles", hint="Install it: pip install numpy"
        ) from error
    try:
        with InferenceSession(bundle, threads=threads, runtime=runtime) as session:
            known = [info.name for info in session.get_outputs()]
            local.check_names(named, known)
            size = next(iter(session.sizes), {})
            feed = _read(inputs, np) if inputs else {i.name: _filled(i, size, fill, np) for i in session.get_inputs()}
            results = session.run(None, feed)
            if outputs:
                with Path(outputs).open("wb") as file:
                    np.savez(file, **dict(zip(known, results, strict=True)))
            if repeat and not number:
                number = max(1, round(_SAMPLE_SECONDS / min(session.time(feed, repeat=5))))
            return {
                "outputs": [
                    {"name": info.name, "dtype": info.dtype, "shape": list(result.shape)}
                    for info, result in zip(session.get_outputs(), results, strict=True)
                ],
                "samples": session.time(feed, number=number or 1, repeat=repeat) if repeat else [],
                "number": number or 1,
                "threads": session.threads,
                "runtime": session.runtime,
                "reason": session.reason,
            }
    except (LoadError, RunError) as error:
        if "memory" in str(error):
            raise _too_large(str(error)) from error
        raise errors.InvalidInput(str(error), code="invalid_bundle") from error
    except ValueError as error:
        raise errors.InvalidInput(str(error), code="invalid_input") from error


def _read(path: str, np: Any) -> dict[str, Any]:
    import zipfile

    # numpy takes other files for pickles.
    if not zipfile.is_zipfile(path):
        raise errors.InvalidInput(f"{path} is not an .npz file", code="invalid_input")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise errors.InvalidInput(f"{path} cannot be read: {error}", code="invalid_input") from error


def _filled(info: Any, size: Mapping[str, int], fill: str, np: Any) -> Any:
    """Return values as the engines generate them: random ones are the same in every run.

    ``size`` has the values of dimensions that vary.
    """
    shape = [size.get(dimension, dimension) for dimension in info.shape]
    if fill != "random":
        return np.full(shape, {"zeros": 0, "ones": 1}[fill], info.dtype)
    generator = np.random.default_rng(0)
    floating = np.issubdtype(np.dtype(info.dtype), np.floating)
    values = generator.random(shape) if floating else generator.integers(0, 2, shape)
    return values.astype(info.dtype)


if __name__ == "__main__":
    _main()
