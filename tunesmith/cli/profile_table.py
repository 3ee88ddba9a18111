"""A job's profile as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tunesmith.cli import output

_HEADERS = ("", "LOSS", "MS", "ONNX RT", "ALONE", "OF PEAK")
_LEAST_NAME = 20
_Row = list[str]


def show(profile: Mapping[str, Any], rows: int) -> None:
    """Print the ``rows`` operators that lose most, the sum of the others, what is outside of operators, and the sum."""
    operators = profile["operators"]
    lines = [_operator(each) for each in operators[:rows]]
    if operators[rows:]:
        lines.append(_sum(f"{len(operators) - rows} others", operators[rows:]))
    lines.append(_times("outside of operators", profile["outside"], profile["reference_outside"]))
    lines.append(_times("whole network", profile["seconds"], profile["reference_seconds"]))
    names = [line[0] for line in lines]
    figures = output.table(_HEADERS, [["", *line[1:]] for line in lines], right=True)
    room = max(_LEAST_NAME, output.width() - max(map(len, figures)) - 1)
    wide = min(room, max(map(len, names)))
    for name, text in zip(["", *names], figures, strict=True):
        output.line(f"{_cut(name, wide):<{wide}}{text}")
    output.line()
    for note in _notes(profile):
        output.paragraph(note)


def _operator(operator: Mapping[str, Any]) -> _Row:
    alone, share = operator["alone_seconds"], operator["share"]
    row = _times(_name(operator), operator["seconds"], operator["reference_seconds"])
    row[4] = "-" if alone is None else _ms(alone)
    row[5] = "-" if share is None else f"{share:.0%} {operator['bound']}"
    return row


def _name(operator: Mapping[str, Any]) -> str:
    kernels, nodes = operator["kernels"], operator["nodes"]
    count = len(kernels or nodes)
    times = f" ×{count}" if count > 1 and not (kernels and nodes) else ""
    if not kernels:
        return f"{operator['name']}{times} (no kernel)"
    return str(nodes[0]) if nodes else f"{operator['name']}{times} (no node)"


def _sum(name: str, operators: Sequence[Mapping[str, Any]]) -> _Row:
    ours, theirs = (math.fsum(each[key] for each in operators) for key in ("seconds", "reference_seconds"))
    return _times(name, ours, theirs)


def _times(name: str, ours: float, theirs: float) -> _Row:
    return [name, f"{(ours - theirs) * 1e3:+.3f}", _ms(ours), _ms(theirs), "-", "-"]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _cut(text: str, width: int) -> str:
    """Shorten a name in the middle: both ends tell layers apart."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _notes(profile: Mapping[str, Any]) -> list[str]:
    threads, peak = profile["threads"], profile["peak"]
    sides = f"the {profile['variant']} build and of {profile['compared_with']}"
    count = f"{threads} thread{'s' if threads != 1 else ''}"
    legend = f"Milliseconds of {sides}, in place, with {count}; ALONE is the best time of the tuning task by itself."
    speeds = [f"{each['speed'] / 1e9:.0f} GB/s from {output.size(each['size'])}" for each in peak["bandwidths"]]
    if peak["flops"]:
        speeds.insert(0, f"{peak['flops'] / 1e9:.0f} GFLOPS")
    return [legend, f"Measured peak: {', '.join(speeds)}."] if speeds else [legend]
