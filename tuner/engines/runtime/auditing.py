"""Which records make an operator compute something else than an untuned build does.

Each record's operator runs alone, in a process that may crash, beside the same operator without it. What that process
is asked is up to the engine; it compares with ``fill``, ``compare`` and ``worst``, whose arrays are numpy's.
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
"""For two builds and two runs of one operator, one of them without any schedule."""
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
"""Of the largest value of the output: how far sums in another order may be apart. Integers are exact."""
UNWRITTEN = 77
"""What outputs hold beforehand, so that an element which nobody writes is wrong."""
_LARGEST = 1e308


@dataclass(frozen=True, kw_only=True)
class Check:
    """One record and the call that answers ``{max_abs, max_rel, wrong}``, ``{failed: why}`` or ``{skipped: why}``."""

    line: str
    """As the request's file has it."""
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
    """As ``audit``, in a process of the engine's module ``comparing``, for the parameters of a request.

    Where there is a ``hindrance``, or what is built runs on another machine, every record is ``skipped``.
    """
    if Runner.of(params) or compiling.tools(release, target).triple:
        hindrance = "it runs on another machine"
    if hindrance:
        return skip([check.line for check in checks], hindrance)
    child = processes.Child(f"{release.package}.comparing", environment.settings(params["threads"]))
    try:
        return audit(checks, child, on_progress)
    finally:
        child.kill()


def audit(checks: Iterable[Check], child: processes.Child, on_progress: Callable[[], None] = lambda: None) -> Json:
    """``{checked, wrong: [{line, max_abs, max_rel}], failed: [{line, message}], skipped: [{line, message}]}``.

    ``on_progress`` is called before each check. Whatever wrote beside its arrays takes the process with it, so that
    no later check suffers.
    """
    checked, wrong, failed, skipped = 0, [], [], []
    for check in checks:
        on_progress()
        child.submit(check.function, check.arguments, SECONDS)
        outcome = child.fetch()
        found: Json = outcome.value or {"failed": faults.told(str(outcome.error))}
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


def skip(lines: Iterable[str], reason: str) -> Json:
    """The answer where nothing can be run."""
    return {
        "checked": 0,
        "wrong": [],
        "failed": [],
        "skipped": [{"line": line, "message": reason} for line in lines],
    }


def fill(generator: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Random input: within [-1, 1], or small whole numbers, of which sums overflow in no order.

    Wide integers are indices as a rule: 0 and 1, which are within any axis worth one.
    """
    if dtype.startswith(("float", "bfloat")):
        return generator.uniform(-1, 1, shape).astype(dtype)
    return generator.integers(0, 8 if dtype in ("int8", "uint8", "int16") else 2, shape).astype(dtype)


def compare(expected: Any, actual: Any) -> Json:
    """``{max_abs, max_rel, wrong}`` of two arrays of one shape; ``max_rel`` is the share of the largest value."""
    tolerance = TOLERANCES.get(str(expected.dtype), 0.0)
    wanted, found = (array.astype("float64") for array in (expected, actual))
    apart = abs(wanted - found)
    # Where both are the same infinity, or neither is a number, they agree.
    apart[(wanted == found) | ((wanted != wanted) & (found != found))] = 0.0
    apart[apart != apart] = _LARGEST
    furthest = min(float(apart.max(initial=0.0)), _LARGEST)
    finite = abs(wanted[abs(wanted) < _LARGEST])
    largest = float(finite.max(initial=0.0))
    share = min(furthest / largest, _LARGEST) if largest else furthest
    return {"max_abs": furthest, "max_rel": share, "wrong": share > tolerance}


def worst(comparisons: list[Json]) -> Json:
    """Of several outputs."""
    return max(comparisons, key=lambda each: (each["wrong"], each["max_rel"]))
