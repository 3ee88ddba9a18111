"""A job's profile as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tunesmith.cli import output

_HEADERS = ("", "LOSS", "MS", "ONNX RT", "OPENVINO", "ALONE", "OF PEAK")
_OPENVINO = _HEADERS.index("OPENVINO")
_LEAST_NAME = 20
_Row = list[str]


def show(profile: Mapping[str, Any], rows: int) -> None:
    """Print the ``rows`` operators that lose most, the sum of the others, what is outside of operators, and the sum."""
    operators = profile["operators"]
    lines = [_operator(each) for each in operators[:rows]]
    if operators[rows:]:
        lines.append(_sum(f"{len(operators) - rows} others", operators[rows:]))
    outside = (profile["outside"], profile["reference_outside"], profile.get("openvino_outside"))
    lines.append(_times("outside of operators", *outside))
    whole = (profile["seconds"], profile["reference_seconds"], profile.get("openvino_seconds"))
    lines.append(_times("whole network", *whole))
    names = [line[0] for line in lines]
    headers = list(_HEADERS)
    if profile.get("openvino_seconds") is None:
        for line in (headers, *lines):
            del line[_OPENVINO]
    figures = output.table(headers, [["", *line[1:]] for line in lines], right=True)
    room = max(_LEAST_NAME, output.width() - max(map(len, figures)) - 1)
    wide = min(room, max(map(len, names)))
    for name, text in zip(["", *names], figures, strict=True):
        output.line(f"{_cut(name, wide):<{wide}}{text}")
    output.line()
    for note in _notes(profile):
        output.paragraph(note)


def _operator(operator: Mapping[str, Any]) -> _Row:
    alone, share = operator["alone_seconds"], operator["share"]
    times = (operator["seconds"], operator["reference_seconds"], operator.get("openvino_seconds"))
    row = _times(_name(operator), *times)
    row[-2:] = [_ms(alone), "-" if share is None else f"{share:.0%} {operator['bound']}"]
    return row


def _name(operator: Mapping[str, Any]) -> str:
    kernels, nodes = operator["kernels"], operator["nodes"]
    alone = kernels or nodes or operator.get("layers", ())
    times = f" ×{len(alone)}" if len(alone) > 1 and not (kernels and nodes) else ""
    if not kernels and not nodes:
        return f"{operator['name']}{times} (OpenVINO alone)"
    if not kernels:
        return f"{operator['name']}{times} (no kernel)"
    return str(nodes[0]) if nodes else f"{operator['name']}{times} (no node)"


def _sum(name: str, operators: Sequence[Mapping[str, Any]]) -> _Row:
    sides = ("seconds", "reference_seconds", "openvino_seconds")
    ours, theirs, openvino = (math.fsum(each.get(key) or 0.0 for each in operators) for key in sides)
    return _times(name, ours, theirs, openvino)


def _times(name: str, ours: float, theirs: float, openvino: float | None) -> _Row:
    return [name, f"{(ours - theirs) * 1e3:+.3f}", _ms(ours), _ms(theirs), _ms(openvino), "-", "-"]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3f}"


def _cut(text: str, width: int) -> str:
    """Shorten a name in the middle: both ends tell layers apart."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _notes(profile: Mapping[str, Any]) -> list[str]:
    threads, peak = profile["threads"], profile["peak"]
    sides = f"the {profile['variant']} build and of {profile['compared_with']}"
    if profile.get("openvino_seconds") is not None:
        sides = f"the {profile['variant']} build, of {profile['compared_with']} and of OpenVINO"
    count = f"{threads} thread{'s' if threads != 1 else ''}"
    legend = f"Milliseconds of {sides}, in place, with {count}; ALONE is the best time of the tuning task by itself."
    speeds = [f"{each['speed'] / 1e9:.0f} GB/s from {output.size(each['size'])}" for each in peak["bandwidths"]]
    if peak["flops"]:
        speeds.insert(0, f"{peak['flops'] / 1e9:.0f} GFLOPS")
    return [legend, f"Measured peak: {', '.join(speeds)}."] if speeds else [legend]
