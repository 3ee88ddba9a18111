"""Correctness checks of records: compare each tuned operator with its untuned build.

Each operator runs alone, in a process that may crash, with and without its record. The engine supplies the function
that the process calls; that function uses ``fill``, ``compare`` and ``worst``, which work on numpy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import compiling, environment, faults, processes
from tuner.engines.runtime.compiling import Release
from tuner.engines.runtime.trials import Runner

SECONDS = 300.0
"""Time limit of one check, in seconds: two builds and two runs of one operator, one of them without any schedule."""
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2}
"""Allowed difference by dtype, relative to the largest output value, for reordered sums. Integers must be equal."""
UNWRITTEN = 77
"""Initial value of output buffers, so that an element which is never written compares as wrong."""
_LARGEST = 1e308


@dataclass(frozen=True, kw_only=True)
class Check:
    """A record and the call that checks it.

    The call returns ``{max_abs, max_rel, wrong}``, ``{failed: why}`` or ``{skipped: why}``.
    """

    line: str
    """The record as it appears in the request's file."""
    function: str
    arguments: Sequence[Any]


def audit_apart(
    release: Release,
    params: Json,
    target: Any,
    checks: Sequence[Check],
    on_progress: Callable[[], None],
    *,
    hindrance: str | None = None,
) -> Json:
    """Run ``audit`` in a process of the engine's ``comparing`` module, configured by the parameters of a request.

    Every record is ``skipped`` if a ``hindrance`` is given or if the code runs on another machine.
    """
    if Runner.of(params) or compiling.tools(release, target).triple:
        hindrance = "it runs on another machine"
    if hindrance:
        skipped = [{"line": check.line, "message": hindrance} for check in checks]
        return {"checked": 0, "wrong": [], "failed": [], "skipped": skipped}
    child = processes.Child(f"{release.package}.comparing", environment.settings(params["threads"]))
    try:
        return audit(checks, child, on_progress)
    finally:
        child.kill()


def audit(checks: Iterable[Check], child: processes.Child, on_progress: Callable[[], None] = lambda: None) -> Json:
    """Run the checks and return ``{checked, wrong, failed, skipped}``.

    ``wrong`` is a list of ``{line, max_abs, max_rel}``, ``failed`` and ``skipped`` are lists of ``{line, message}``.

    Calls ``on_progress`` before each check. The process is restarted after a wrong result or an error, since an
    out-of-bounds write could affect later checks.
    """
    checked, wrong, failed, skipped = 0, [], [], []
    for check in checks:
        on_progress()
        child.submit(check.function, check.arguments, SECONDS)
        outcome = child.fetch()
        found: Json = outcome.value or {"failed": faults.text_of(str(outcome.error))}
        if "failed" in found:
            failed.append({"line": check.line, "message": found["failed"]})
        elif "skipped" in found:
            skipped.append({"line": check.line, "message": found["skipped"]})
        elif found["wrong"]:
            wrong.append({"line": check.line, "max_abs": found["max_abs"], "max_rel": found["max_rel"]})
        checked += 1
        if outcome.error is not None or found.get("wrong"):
            child.kill()
    return {"checked": checked, "wrong": wrong, "failed": failed, "skipped": skipped}


def fill(generator: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Return random input: floats in [-1, 1], or small integers whose sums cannot overflow in any order.

    Wider integers are usually indices, so they are 0 or 1, which is valid for any axis longer than one.
    """
    if dtype.startswith("float"):
        return generator.uniform(-1, 1, shape).astype(dtype)
    return generator.integers(0, 8 if dtype in ("int8", "uint8", "int16") else 2, shape).astype(dtype)


def compare(expected: Any, actual: Any) -> Json:
    """Return ``{max_abs, max_rel, wrong}`` for two arrays; ``max_rel`` is relative to the largest value."""
    tolerance = TOLERANCES.get(str(expected.dtype), 0.0)
    wanted, found = (array.astype("float64") for array in (expected, actual))
    apart = abs(wanted - found)
    # Equal infinities agree, and so do two NaNs.
    apart[(wanted == found) | ((wanted != wanted) & (found != found))] = 0.0
    apart[apart != apart] = _LARGEST
    furthest = min(float(apart.max(initial=0.0)), _LARGEST)
    finite = abs(wanted[abs(wanted) < _LARGEST])
    largest = float(finite.max(initial=0.0))
    share = min(furthest / largest, _LARGEST) if largest else furthest
    return {"max_abs": furthest, "max_rel": share, "wrong": share > tolerance}


def worst(comparisons: list[Json]) -> Json:
    """Return the worst comparison of several outputs."""
    return max(comparisons, key=lambda each: (each["wrong"], each["max_rel"]))
