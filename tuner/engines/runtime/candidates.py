"""Measurement of one candidate schedule.

Most candidates of a search are much slower than the best so far, so their exact times do not matter. A candidate is
therefore run once, then timed briefly, and measured as the job asks only if it may still win. A rejected candidate
keeps its brief latencies: they are real, but fewer and less exact.
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
"""Limit of the first run, whose caches are cold: ``COLD_FACTOR`` times the best plus ``COLD_SECONDS``."""
PREVIEW_FACTOR = 1.25
"""Margin for the error of a brief measurement: a candidate slower than this multiple of the best is rejected."""
PREVIEW_REPEATS = 2
PREVIEW_SECONDS = 0.001
"""Minimum duration of each preview repeat, in seconds."""

_MOST_POOL_BYTES = 512 << 20
_SIZE = 128
"""Side of three square float32 matrices, 64 KiB each, which fit in the L2 cache. One product takes 0.1 to 0.4 ms."""
_REPEATS = 5

Shapes = list[tuple[tuple[int, ...], str]]
"""Shapes and dtypes of a library's arguments."""
Arguments = tuple[str, Shapes]
"""Device kind (``cpu`` or ``cuda``), then the shapes and dtypes of the arguments."""
Product = Callable[[Sequence[Any], int], tuple[Any, str]]
"""``build_product([left, right, product], width)``: library and function name of a product in vectors of ``width``."""
Evaluate = Callable[[int, int, int], list[float]]
"""``evaluate(number, repeat, min_repeat_ms)``: seconds per run, one value per repeat of ``number`` runs, or of more
runs if a repeat would be shorter than ``min_repeat_ms``."""


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
    """Return latencies in seconds, stopping early if ``best`` is out of reach.

    ``run`` runs the candidate once and returns its seconds; ``best`` is None while unknown. ``fixed`` keeps ``number``
    runs per repeat, as needed when caches are flushed before each repeat.
    """
    if best is None or not math.isfinite(best):
        return evaluate(number, repeat, min_repeat_ms)
    cold = run()
    if cold > best * COLD_FACTOR + COLD_SECONDS:
        return [cold]
    preview = min(evaluate(number if fixed else _runs(cold, PREVIEW_SECONDS), PREVIEW_REPEATS, 0))
    if preview > best * PREVIEW_FACTOR:
        return [preview]
    # Otherwise TVM finds the number by trying smaller ones first, which takes as long as a repeat.
    enough = number if fixed else max(number, _runs(preview, min_repeat_ms / 1e3))
    return evaluate(enough, repeat, min_repeat_ms)


def _runs(seconds: float, least: float) -> int:
    """Return the number of runs that take at least ``least`` seconds together."""
    return max(1, math.ceil(least / max(seconds, 1e-9)))


class Candidates:
    """Input arrays and the calibration kernel that a measuring process reuses between candidates of one TVM release."""

    def __init__(self, release: Release, build_product: Product) -> None:
        self._release = release
        self._build_product = build_product
        self._flat: dict[tuple[Any, ...], Any] = {}
        self._flat_bytes = 0

    def linker(self, target: Any) -> Callable[..., None]:
        """Return the ``fcompile`` argument of ``tvm.runtime.Module.export_library`` for a ``tvm.target.Target``."""
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
        """Return seconds per run of a built candidate on random data, one value per repeat.

        Measures in two passes if ``best`` is given.
        """
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
        """Measure in one pass a library that is loaded in an RPC session."""
        kind, shapes = built
        device, fill = session.device(kind), session.get_function(self._release.fill)
        arrays = [self._release.empty(shape, dtype, device) for shape, dtype in shapes]
        for array in arrays:
            fill(array)
        return _evaluate(library, device, arrays, number, repeat, min_repeat_ms, flush and kind == "cpu")

    def calibrate(self) -> float:
        """Return the seconds of a fixed kernel, timed beside candidates to detect a slowed-down machine.

        The kernel is a matrix product on one CPU thread, the minimum of ``_REPEATS`` runs. It is built on the first
        call.
        """
        evaluator, arrays = self._kernel
        return min(float(cost) for cost in evaluator(*arrays).results)

    @cached_property
    def _kernel(self) -> tuple[Any, list[Any]]:
        import numpy as np  # installed in engine environments only

        te, size, cpu = self._release.tvm.te, _SIZE, self._release.tvm.cpu(0)
        left, right = (te.placeholder((size, size), name=name) for name in ("left", "right"))
        k = te.reduce_axis((0, size), name="k")
        product = te.compute((size, size), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="product")
        library, name = self._build_product([left, right, product], 16)
        arrays = [self._release.tensor(np.full((size, size), 0.5, dtype="float32"), cpu) for _ in range(3)]
        return library.time_evaluator(name, cpu, number=1, repeat=_REPEATS, min_repeat_ms=0), arrays

    def _arrays(self, shapes: Shapes, device: Any) -> list[Any]:
        """Return an array for each argument, no two sharing memory.

        The last one, the output, is never an input of another candidate. Random data is reused, because filling takes
        as long as a short measurement.
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
    """Return seconds per run on ``arrays``.

    With three or more repeats the smallest and largest are dropped, as in TVM's AutoTVM runner.
    """
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
