"""Build and measure one candidate schedule.

A candidate is measured in two passes: a short one for all, and a long one for those that may turn out the best. Most
candidates of a search are much slower than the best so far, and nobody needs their exact times. So a candidate is run
once, then timed briefly, and measured as the job asks only if it may still win. A candidate that was given up keeps its
brief latencies: they are real, only fewer and less exact.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from tuner.engines.runtime import compiling
from tuner.engines.runtime.compiling import Release

COLD_FACTOR, COLD_SECONDS = 4.0, 0.001
"""The first run finds its data and code in no cache, and is given up only if it takes that many times the best and that
much longer."""
PREVIEW_FACTOR = 1.25
"""A short look errs: what is this much slower than the best in it is not the best."""
PREVIEW_REPEATS = 2
PREVIEW_SECONDS = 0.001
"""For each of the repeats, at least."""

_MOST_POOL_BYTES = 512 << 20
_SIZE = 128
"""Of three square matrices of float32, 64 KiB each: in the second-level cache. One product takes 0.1 to 0.4 ms."""
_REPEATS = 5

Shapes = list[tuple[tuple[int, ...], str]]
"""Shapes and dtypes of a library's arguments."""
Arguments = tuple[str, Shapes]
"""The device that runs it, ``cpu`` or ``cuda``, first."""
Product = Callable[[Sequence[Any], int], tuple[Any, str]]
"""``build_product([left, right, product], width)``: a library that computes the product of two matrices in vectors of
that width, and the name of its function."""
Evaluate = Callable[[int, int, int], list[float]]
"""``(number, repeat, min_repeat_ms)``: seconds per run, one value per repeat of ``number`` runs, more of them where a
repeat would be shorter."""


def in_two_passes(
    run: Callable[[], float],
    evaluate: Evaluate,
    *,
    number: int,
    repeat: int,
    min_repeat_ms: int,
    best: float | None,
    fixed: bool = False,
) -> list[float]:
    """Latencies in seconds. ``run`` runs once and tells its seconds; ``best`` is None while nothing is known.

    ``fixed`` keeps the number of runs in a repeat as it was asked for: caches are flushed before each repeat.
    """
    if best is None or not math.isfinite(best):
        return evaluate(number, repeat, min_repeat_ms)
    cold = run()
    if is_hopeless_cold(cold, best):
        return [cold]
    preview = min(evaluate(number if fixed else _runs(cold, PREVIEW_SECONDS), PREVIEW_REPEATS, 0))
    if is_hopeless(preview, best):
        return [preview]
    # Else TVM finds the number by trying smaller ones first, which takes as long as a repeat.
    enough = number if fixed else max(number, _runs(preview, min_repeat_ms / 1e3))
    return evaluate(enough, repeat, min_repeat_ms)


def is_hopeless_cold(seconds: float, best: float) -> bool:
    return seconds > best * COLD_FACTOR + COLD_SECONDS


def is_hopeless(seconds: float, best: float) -> bool:
    return seconds > best * PREVIEW_FACTOR


def _runs(seconds: float, least: float) -> int:
    """Runs that last ``least`` seconds together."""
    return max(1, math.ceil(least / max(seconds, 1e-9)))


class Candidates:
    """What a process keeps from one candidate to the next, with the release of TVM that it runs."""

    def __init__(self, release: Release, build_product: Product) -> None:
        self._release = release
        self._build_product = build_product
        self._flat: dict[tuple[Any, ...], Any] = {}
        self._flat_bytes = 0

    def linker(self, target: Any) -> Callable[..., None]:
        """``fcompile`` of ``tvm.runtime.Module.export_library`` for a ``tvm.target.Target``."""
        return compiling.tools(self._release, target).link_quickly

    def measure(
        self,
        path: str,
        built: Arguments,
        number: int,
        repeat: int,
        min_repeat_ms: int,
        flush: bool,
        best: float | None = None,
    ) -> list[float]:
        """Seconds per run of a built candidate on random data, one value per repeat, in two passes if ``best`` is
        known."""
        kind, shapes = built
        device = self._release.tvm.device(kind, 0)
        library = self._release.tvm.runtime.load_module(path)
        arrays = self._arrays(shapes, device)
        flush = flush and kind == "cpu"

        def run() -> float:
            function = library[_entry(library)]
            started = time.perf_counter()
            function(*arrays)
            device.sync()
            return time.perf_counter() - started

        return in_two_passes(
            run,
            lambda runs, times, ms: _evaluate(library, device, arrays, runs, times, ms, flush),
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            best=best,
            fixed=flush,
        )

    def sample(
        self, session: Any, library: Any, built: Arguments, number: int, repeat: int, min_repeat_ms: int, flush: bool
    ) -> list[float]:
        """Likewise in one pass, of a library that is loaded in an RPC session."""
        kind, shapes = built
        device, fill = session.device(kind), session.get_function(self._release.fill)
        arrays = [self._release.empty(shape, dtype, device) for shape, dtype in shapes]
        for array in arrays:
            fill(array)
        return _evaluate(library, device, arrays, number, repeat, min_repeat_ms, flush and kind == "cpu")

    def calibrate(self) -> float:
        """Seconds of a kernel that is always the same, timed beside candidates: when it takes longer, so did they.

        One matrix product on one thread of the CPU, the least of a few. It is built at the first call.
        """
        evaluator, arrays = self._kernel
        return min(float(cost) for cost in evaluator(*arrays).results)

    @cached_property
    def _kernel(self) -> tuple[Any, list[Any]]:
        import numpy as np  # in the engines' environments only

        te, size, cpu = self._release.tvm.te, _SIZE, self._release.tvm.cpu(0)
        left, right = (te.placeholder((size, size), name=name) for name in ("left", "right"))
        k = te.reduce_axis((0, size), name="k")
        product = te.compute((size, size), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="product")
        library, name = self._build_product([left, right, product], 16)
        arrays = [self._release.tensor(np.full((size, size), 0.5, dtype="float32"), cpu) for _ in range(3)]
        return library.time_evaluator(name, cpu, number=1, repeat=_REPEATS, min_repeat_ms=0), arrays

    def _arrays(self, shapes: Shapes, device: Any) -> list[Any]:
        """One for each argument, none of which share memory; the last, which is written to, is no input of another.

        Random data is made once: filling would take as long as a short measurement.
        """
        if self._flat_bytes > _MOST_POOL_BYTES:
            self._flat.clear()
            self._flat_bytes = 0
        last = len(shapes) - 1
        return [self._array(place, place == last, *each, device) for place, each in enumerate(shapes)]

    def _array(self, place: int, is_last: bool, shape: tuple[int, ...], dtype: str, device: Any) -> Any:
        key = (place, is_last, math.prod(shape), dtype, str(device))
        if key not in self._flat:
            self._flat[key] = self._release.empty((math.prod(shape),), dtype, device)
            self._release.tvm.get_global_func(self._release.fill)(self._flat[key])
            self._flat_bytes += self._flat[key].numpy().nbytes
        return self._flat[key]._create_view(shape)


def _evaluate(
    library: Any, device: Any, arrays: Sequence[Any], number: int, repeat: int, min_repeat_ms: int, flush: bool
) -> list[float]:
    """Seconds per run on ``arrays``; from three repeats on the smallest and the largest are dropped, as TVM's AutoTVM
    runner does."""
    evaluator = library.time_evaluator(
        _entry(library),
        device,
        number=number,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        f_preproc="cache_flush_cpu_non_first_arg" if flush else "",
    )
    costs = sorted(float(cost) for cost in evaluator(*arrays).results)
    return costs[1:-1] if len(costs) > 2 else costs


def _entry(library: Any) -> str:
    return str(library.entry_name) if hasattr(library, "entry_name") else "main"
