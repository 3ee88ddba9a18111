"""Parallel builds of candidates, and their measurement on this machine, one at a time, or on RPC devices.

Replaces TVM's builders and runners, which start pools, a tracker and a server for every task and pass object files that
the serial runner links.

The engine's ``candidates`` module decides what is built and how. Its ``FUNCTIONS`` contain those named by
``trials.CandidateBuild`` and

* ``measure(path, shapes, number, repeat, min_repeat_ms, flush, best)``: seconds per run, one value per repeat, in two
  passes if the best so far is known (see ``candidates``);
* ``calibrate()``: seconds of a fixed kernel.

The ``FUNCTIONS`` of the engine's ``rpc`` module contain ``measure_remotely``, and the functions that ``rpc_pool.Slot``
calls.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

from tuner.engines.runtime import environment, faults, processes
from tuner.engines.runtime.processes import ForkServer
from tuner.engines.runtime.rpc_pool import Call, CallResult, SessionPool
from tuner.engines.runtime.trials import CandidateBuild, MeasureConditions, Measurement, MeasureOptions, Runner

_BATCHES_PER_BUILDER = 4
"""The last builds of a batch leave some builders idle."""
_BATCHES_PER_DEVICE = 4
_CALIBRATION_SECONDS = 10.0
TIMEOUT_FACTOR = 8.0
"""Multiple of the median build time. LLVM takes longer only for code blown up by unrolling, which is slow as well."""
LEAST_TIMEOUT_SECONDS = 2.0
ENOUGH_BUILDS = 5
"""Number of builds that make their median reliable; with fewer, the limit is three times as long."""
_LITTLE = 3.0
_REMEMBERED = 64


class AdaptiveTimeout:
    """Time limit of builds: the requested one, or less once most builds are known to be much faster."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)

    def observe(self, seconds: float) -> None:
        """Record the seconds of a build that succeeded or timed out."""
        self._seconds.append(seconds)

    def limit(self, timeout: float) -> float:
        if not self._seconds:
            return timeout
        caution = 1.0 if len(self._seconds) >= ENOUGH_BUILDS else _LITTLE
        return min(timeout, caution * max(LEAST_TIMEOUT_SECONDS, TIMEOUT_FACTOR * statistics.median(self._seconds)))


class Measurer:
    """Builder and measuring processes, kept for a whole engine session."""

    def __init__(self, package: str) -> None:
        """``package`` contains the engine's modules ``candidates`` and ``rpc``."""
        self._module = f"{package}.candidates"
        self._sessions = f"{package}.rpc"
        self._fork_server = ForkServer(self._module, environment.settings(1))
        self._session_pools: dict[Runner, SessionPool] = {}
        self._builders: processes.Pool | None = None
        self._builder_count = 0
        self._runner: processes.Child | None = None
        self._runner_threads = 0
        self.queue_seconds = 0.0
        """Seconds spent only waiting in trackers' queues so far."""
        self._timeouts: defaultdict[str, AdaptiveTimeout] = defaultdict(AdaptiveTimeout)
        """Adaptive timeouts by workload."""
        self.spent: defaultdict[str, float] = defaultdict(float)
        """Seconds in which this machine only built (``build``) or measured (``measure``)."""

    def start(self, conditions: MeasureConditions) -> None:
        """Start the processes that are not running, without waiting for them.

        With a runner, raises EngineFailure ``tracker_unreachable``, ``no_device`` or ``device_lost``.
        """
        self._start_builders(conditions.options)
        if conditions.runner is None:
            self._start_runner(conditions.threads)
        else:
            self._session_pool(conditions.runner).start()

    def batch(self, conditions: MeasureConditions) -> int:
        """Return the number of candidates per ``measure`` call that keeps builders or devices busy."""
        devices = self._session_pool(conditions.runner).size if conditions.runner else 0
        return max(conditions.options.builders * _BATCHES_PER_BUILDER, devices * _BATCHES_PER_DEVICE)

    def measure(
        self,
        builds: Sequence[CandidateBuild],
        conditions: MeasureConditions,
        scratch: Path,
        best: Callable[[], float] = lambda: math.inf,
    ) -> Iterator[tuple[int, Measurement]]:
        """Yield each outcome with its position in ``builds``, as soon as it is known.

        On this machine builds and measurements do not overlap, and measurements of candidates far slower than ``best``
        (seconds) are cut short. Libraries are built under ``scratch``; its owner removes what a killed engine leaves
        behind. Raises EngineFailure as ``start`` does.
        """
        with tempfile.TemporaryDirectory(prefix="trials-", dir=scratch) as folder:
            if conditions.runner is None:
                yield from self._measure_here(builds, conditions, Path(folder), best)
            else:
                yield from self._measure_there(builds, conditions, Path(folder))

    def close(self) -> None:
        self._close_builders()
        self._close_runner()
        for pool in self._session_pools.values():
            pool.close()
        self._fork_server.close()

    def _measure_here(
        self, builds: Sequence[CandidateBuild], conditions: MeasureConditions, folder: Path, best: Callable[[], float]
    ) -> Iterator[tuple[int, Measurement]]:
        options = conditions.options
        builders = self._start_builders(options)
        runner = self._start_runner(conditions.threads)
        paths, calls = _calls(builds, folder)
        with self._clock("build"):
            outcomes = self._build(builders, calls, self._timeouts[conditions.workload_key], options.timeout)
        with self._clock("measure"):
            calibration = _calibrate(runner)
        for position, outcome in enumerate(outcomes):
            failed = _build_failure(outcome)
            if failed:
                yield position, failed
                continue
            with self._clock("measure"):
                measured = _run(runner, paths[position], outcome.value[1], options, best())
            yield position, replace(measured, calibration=calibration)

    @staticmethod
    def _build(
        builders: processes.Pool, calls: Sequence[processes.Call], timeouts: AdaptiveTimeout, timeout: float
    ) -> list[processes.Outcome]:
        def saw(outcome: processes.Outcome) -> None:
            if isinstance(outcome.error, processes.ChildTimedOut):
                # It would have taken longer. If it were not counted, a limit that is too short would never grow.
                timeouts.observe(timeouts.limit(timeout))
            elif outcome.seconds is not None and outcome.error is None and outcome.value[0] is None:
                timeouts.observe(outcome.seconds)

        return builders.map(calls, lambda: timeouts.limit(timeout), saw)

    @contextmanager
    def _clock(self, step: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.spent[step] += time.monotonic() - started

    def _measure_there(
        self, builds: Sequence[CandidateBuild], conditions: MeasureConditions, folder: Path
    ) -> Iterator[tuple[int, Measurement]]:
        assert conditions.runner is not None  # noqa: S101 - what the caller looked at
        options, left = conditions.options, len(builds)
        builders, pool = self._start_builders(options), self._session_pool(conditions.runner)
        pool.on_device, pool.cooldown_seconds = conditions.on_device, options.cooldown_interval
        paths, calls = _calls(builds, folder)
        try:
            pool.make_probe(conditions.target, conditions.threads, folder / "probe.so")
            builders.submit(calls, options.timeout)
            while left:
                for position, outcome in builders.collect():
                    failed = _build_failure(outcome)
                    if failed is None:
                        pool.submit(_measuring(position, paths[position], outcome.value[1], options))
                    else:
                        left -= 1
                        yield position, failed
                for answer in pool.advance():
                    left -= 1
                    yield answer.call.position, _measurement(answer)
                if left:
                    self._wait(builders, pool)
        finally:
            pool.release()
            if left:
                builders.kill()

    def _wait(self, builders: processes.Pool, pool: SessionPool) -> None:
        started = time.monotonic()
        in_queue = pool.is_in_queue and not builders.connections
        connection.wait([*builders.connections, *pool.waits_for], min(builders.remaining, pool.wait_seconds))
        if in_queue:
            self.queue_seconds += time.monotonic() - started

    def _session_pool(self, runner: Runner) -> SessionPool:
        """Return the pool of a runner after a fresh look at the tracker; close the pools of other runners."""
        for other in self._session_pools:
            if other != runner:
                self._session_pools[other].close()
        if runner not in self._session_pools:
            self._session_pools[runner] = SessionPool(
                runner, lambda: processes.Child(self._sessions, environment.settings(1))
            )
        self._session_pools[runner].avoid = runner.avoid
        self._session_pools[runner].look()
        return self._session_pools[runner]

    def _start_builders(self, options: MeasureOptions) -> processes.Pool:
        if self._builders is None or self._builder_count != options.builders:
            self._close_builders()
            self._builders = processes.Pool(options.builders, self._module, environment.settings(1), self._fork_server)
            self._builder_count = options.builders
        self._builders.start()
        return self._builders

    def _start_runner(self, threads: int) -> processes.Child:
        if self._runner is None or self._runner_threads != threads:
            self._close_runner()
            self._runner = processes.Child(self._module, environment.settings(threads), self._fork_server)
            self._runner_threads = threads
        self._runner.start()
        return self._runner

    def _close_builders(self) -> None:
        if self._builders is not None:
            self._builders.kill()

    def _close_runner(self) -> None:
        if self._runner is not None:
            self._runner.kill()


def _calls(builds: Sequence[CandidateBuild], folder: Path) -> tuple[list[str], list[processes.Call]]:
    """Return the paths of the libraries to build, and the calls that build them."""
    paths = [str(folder / f"{position}.so") for position in range(len(builds))]
    return paths, [(build.function, (*build.arguments, path)) for build, path in zip(builds, paths, strict=True)]


def _build_failure(outcome: processes.Outcome) -> Measurement | None:
    if isinstance(outcome.error, processes.ChildTimedOut):
        return Measurement(error="build_timeout", message=f"not built in time: {outcome.error}")
    if outcome.error is not None:
        return Measurement(error="build_error", message=faults.with_trace(str(outcome.error)))
    kind, message = outcome.value
    return Measurement(error=kind, message=message) if kind else None


def _measuring(position: int, path: str, shapes: Any, options: MeasureOptions) -> Call:
    flush = options.enable_cpu_cache_flush
    arguments = (path, shapes, options.number, options.repeat, options.min_repeat_ms, flush)
    return Call(position=position, function="measure_remotely", arguments=arguments, timeout=options.timeout)


def _measurement(answer: CallResult) -> Measurement:
    if answer.error is None:
        return Measurement(latencies=tuple(answer.value), device=answer.device)
    return Measurement(error=answer.error, message=faults.with_trace(str(answer.value)), device=answer.device)


def _calibrate(runner: processes.Child) -> float | None:
    outcome = runner.ask("calibrate", (), _CALIBRATION_SECONDS)
    return None if outcome.error is not None else outcome.value


def _run(runner: processes.Child, path: str, shapes: Any, options: MeasureOptions, best: float) -> Measurement:
    flush = options.enable_cpu_cache_flush
    arguments = (path, shapes, options.number, options.repeat, options.min_repeat_ms, flush, best)
    outcome = runner.ask("measure", arguments, options.timeout)
    time.sleep(options.cooldown_interval)
    if isinstance(outcome.error, processes.ChildTimedOut):
        return Measurement(error="run_timeout", message=f"not measured within {options.timeout:g} s")
    if outcome.error is not None:
        return Measurement(error="run_error", message=faults.with_trace(str(outcome.error)))
    return Measurement(latencies=tuple(outcome.value))
