"""Error messages extracted from error texts that consist mostly of TVM stack traces."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure

_NAMED = re.compile(
    r"^(?:[A-Za-z_][\w.]*)?(?:Error|Exception|Fault|Interrupt|Exit)(?:: |:?$)|^(?:[a-z_]\w*\.)+[A-Z]\w*(?:: |:?$)"
    r"|^\s*Check failed:"
)
"""Matches a line that begins with an exception name, as at the end of a Python or TVM trace."""
_FRAME = re.compile(r"^\s*(?:\d+: |File \"|\[bt\]|Traceback |Stack trace)")
_LONGEST = 1000
_SIZED_BY_VALUES = ("Compress", "NonMaxSuppression", "NonZero", "Unique")
"""Operators of ONNX."""


def text_of(error: BaseException | str, *, longest: int = _LONGEST) -> str:
    """Return the message of an error without its trace, in at most ``longest`` characters."""
    text = str(error)
    lines, start = _lines(text)
    kept = [line for line in lines[start:] if not _FRAME.match(line)]
    message = "\n".join(kept).strip() or text.strip()[-longest:]
    if not isinstance(error, str) and not _NAMED.match(message):
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return message[:longest]


def require_known(noun: str, value: str, known: Collection[str]) -> None:
    """Raise EngineFailure ``invalid_option``, with a close match as a hint, unless ``value`` is in ``known``."""
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1) or difflib.get_close_matches(value.upper(), known, n=1)
        hint = f"Did you mean {near[0]}?" if near else None
        raise EngineFailure("invalid_option", f"{noun} {value!r} is not one of {', '.join(known)}", hint=hint)


@contextmanager
def reported(code: str, what: str, *, hint: str | None = None) -> Iterator[None]:
    """Convert any exception of converters, passes, schedules or LLVM to EngineFailure ``code``: "``what``: message".

    The end of the trace becomes ``details.trace``.
    """
    try:
        yield
    except EngineFailure:
        raise
    except Exception as error:
        raise failure(code, what, error, hint=hint) from error


def failure(
    code: str, what: str, error: Exception, *, hint: str | None = None, details: Json | None = None
) -> EngineFailure:
    """Return an EngineFailure "``what``: message" for an exception."""
    frames = trace(error)
    traced = {"trace": frames} if frames else {}
    return EngineFailure(code, f"{what}: {text_of(error)}", hint=hint, details={**(details or {}), **traced})


def sized_by_values(operators: Mapping[str, int]) -> str:
    """Return those of the operators whose outputs have sizes that depend on values: ``NonZero (2×)``; may be empty."""
    return ", ".join(f"{name} ({operators[name]}×)" for name in _SIZED_BY_VALUES if name in operators)


def sizes_hint(operators: Mapping[str, int]) -> str | None:
    """Return what to do if a model with these operators cannot be imported or built; None if nothing can be said.

    Sizes that depend on values are the usual reason: TVM computes other sizes while it imports.
    """
    found = sized_by_values(operators)
    if not found:
        return None
    return f"The sizes of its tensors depend on values: {found}. Export it without the part that selects."


def with_trace(error: BaseException | str, *, longest: int = _LONGEST) -> str:
    """Return the error message followed by the end of its trace, at most ``longest`` characters."""
    first = text_of(error, longest=longest)
    left = longest - len(first) - 1
    tail = trace(error, longest=left) if left > 0 else ""
    return f"{first}\n{tail}" if tail else first


def trace(error: BaseException | str, *, longest: int = 4000) -> str:
    """Return the last whole lines of the trace in an error text, or an empty string if it has no trace."""
    lines, start = _lines(str(error))
    lines = lines[:start] if start else lines
    if not any(_FRAME.match(line) for line in lines):
        return ""
    kept: list[str] = []
    for line in reversed(lines):
        longest -= len(line) + 1
        if longest < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept))


def _lines(text: str) -> tuple[list[str], int]:
    """Return the non-empty lines of ``text`` and the index of the line where the error message begins."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    named = [place for place, line in enumerate(lines) if _NAMED.match(line)]
    return lines, named[-1] if named else 0
