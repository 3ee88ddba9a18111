"""Child-process side of an RPC session on a device; ``rpc_pool.Slot`` is the other side."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime.candidates import Arguments, Candidates
from tuner.engines.runtime.compiling import Release
from tuner.engines.runtime.rpc_pool import Ended
from tuner.engines.runtime.running import BIG_CORES, Bundles

Result = tuple[Ended, Any]

_PROBE_SIZE = 64


class Session:
    """The current session, at most one, and the calls that run in it."""

    def __init__(
        self,
        release: Release,
        candidates: Candidates,
        bundles: Bundles,
        build_probe: Callable[[list[Any], str, int, str], None],
    ) -> None:
        """``build_probe(tensors, target, threads, path)`` builds a library like the candidates of a target.

        The library's function ``probe`` computes the last tensor from the first.
        """
        self._release = release
        self._candidates = candidates
        self._bundles = bundles
        self._build_probe = build_probe
        self._session: Any = None
        self.functions: dict[str, Callable[..., Result]] = {
            "build_probe": self.build_probe,
            "open_session": self.open,
            "close_session": self.close,
            "measure_remotely": self.measure,
            "run_remotely": self.run,
        }

    def build_probe(self, target: str, threads: int, path: str) -> Result:
        """Build ``3·x + 1`` like the candidates of a target; for a GPU target, the code of its host."""
        te = self._release.tvm.te
        given = te.placeholder((_PROBE_SIZE,), name="given", dtype="float32")
        answer = te.compute((_PROBE_SIZE,), lambda place: given[place] * 3.0 + 1.0, name="answer")
        try:
            self._build_probe([given, answer], target, threads, path)
        except EngineFailure as failure:
            return Ended.REFUSED, failure.data
        return Ended.OK, None

    def open(
        self, host: str, port: int, match_key: str, session_timeout: float, threads: int, probe: str | None
    ) -> Result:
        self.close()
        connect = self._release.tvm.rpc.connect
        try:
            self._session = connect(host, port, match_key, session_timeout=session_timeout)
        except RuntimeError as error:
            return (Ended.STALE if "cannot find server that matches" in str(error) else Ended.LOST), _last_line(error)
        try:
            with contextlib.suppress(AttributeError, ValueError):
                # Minimal runtimes have no thread pool to configure.
                self._session.get_function("runtime.config_threadpool")(BIG_CORES, threads)
            ended = self._prove(probe) if probe else (Ended.OK, None)
        except RuntimeError as error:
            ended = self._ended(error)
        if ended[0] is not Ended.OK:
            self.close()
        return ended

    def close(self) -> Result:
        self._session = None
        # A session ends when its last reference is gone.
        gc.collect()
        return Ended.OK, None

    def measure(self, path: str, built: Arguments, number: int, repeat: int, min_repeat_ms: int, flush: bool) -> Result:
        """Measure on the device, as ``Candidates.measure``."""
        how = (built, number, repeat, min_repeat_ms, flush)
        return self._in_session(lambda: self._candidates.sample(self._session, self._upload(path), *how))

    def run(self, bundle: str, inputs: str | None, outputs: str | None, repeat: int | None, number: int) -> Result:
        """Run a bundle on the device and return ``{outputs, samples}``; ``outputs`` is the file to write."""

        def run() -> Json:
            network = self._bundles.load_remotely(bundle, self._session, self._upload)
            specs = network.run_once(inputs, outputs)
            return {"outputs": specs, "samples": network.sample(number, repeat) if repeat else []}

        return self._in_session(run)

    def _prove(self, probe: str) -> Result:
        try:
            library = self._upload(probe)
        except self._release.tvm.error.RPCError as error:
            line = _last_line(error)
            # TVM 0.19 often gives no text after this heading, and neither does the server's output.
            reason = "" if line.endswith("Error caught from RPC call:") else f": {line}"
            return Ended.WRONG_DEVICE, f"it cannot load code for this target{reason}"
        device = self._session.cpu(0)
        given = np.arange(_PROBE_SIZE, dtype="float32")
        answer = self._release.empty(given.shape, "float32", device)
        library["probe"](self._release.tensor(given, device), answer)
        if not np.array_equal(answer.numpy(), given * 3 + 1):
            return Ended.WRONG_ANSWER, "it gives a wrong result for 3·x + 1"
        return Ended.OK, None

    def _upload(self, path: str) -> Any:
        name = Path(path).name
        self._session.upload(path)
        try:
            return self._session.load_module(name)
        finally:
            with contextlib.suppress(RuntimeError):
                self._session.remove(name)

    def _in_session(self, work: Callable[[], Any]) -> Result:
        errors = self._release.tvm.error
        try:
            return Ended.OK, work()
        except EngineFailure as failure:
            cause = failure.__cause__
            if isinstance(cause, errors.RPCError | errors.InternalError):
                return self._ended(cause)
            return Ended.REFUSED, failure.data
        except self._release.session_errors as error:
            return self._ended(error)
        finally:
            gc.collect()

    def _ended(self, error: BaseException) -> Result:
        """Classify an error: one that the device reports leaves the session intact, any other means it is broken."""
        errors = self._release.tvm.error
        if isinstance(error, errors.RPCSessionTimeoutError):
            return Ended.EXPIRED, _last_line(error)
        return (Ended.RAISED if isinstance(error, errors.RPCError) else Ended.LOST), _last_line(error)


def _last_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1][-500:] if lines else type(error).__name__
