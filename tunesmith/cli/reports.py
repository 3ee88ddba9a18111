"""What a job came to, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tunesmith.cli import output

if TYPE_CHECKING:
    from tunesmith.resources import Job

_VARIANTS = {"reference": "ONNX Runtime", "untuned": "untuned", "tuned": "tuned"}
_STATISTICS = ("mean", "median", "p90", "max", "min", "std")


def comparison(report: Mapping[str, Any]) -> None:
    """The table in the spirit of TVMC's ``Execution time summary``, and the summary line."""
    output.line("Execution time summary (ms; errors against ONNX Runtime):")
    headers = ["", *_STATISTICS, "max error", ""]
    rows = [
        [
            label,
            *(_milliseconds(report["timings"][variant][name]) for name in _STATISTICS),
            _error(report["verifications"].get(variant)),
            "published" if report["published"] == variant else "",
        ]
        for variant, label in _VARIANTS.items()
        if variant in report["timings"]
    ]
    lines = output.table(headers, rows, right=True)
    if max(map(len, lines)) + 2 > output.width():
        columns = list(zip(headers, *rows, strict=True))
        lines = output.table(list(columns[0]), [list(column) for column in columns[1:]], right=True)
    for text in lines:
        output.line(f"  {text}")
    output.line()
    output.line(str(report["summary"]))


def statistics(samples: Mapping[str, float]) -> list[str]:
    """One row of TVMC's summary; seconds in, milliseconds out."""
    names = [f"{name} (ms)" for name in samples]
    return output.table(names, [[_milliseconds(value) for value in samples.values()]])


def job(found: Job) -> None:
    """Everything ``status`` tells of a job."""
    data = found.data
    placement = data["placement"] or {}
    facts = {
        "job": data["id"],
        "state": data["state"] + (f", {data['stage']} stage" if data["stage"] and not found.is_finished else ""),
        "model": f"{data['model_name']}  {data['model']}",
        "target": placement.get("target", data["target"]),
        "device": placement.get("device", "not yet known"),
        "toolchain": placement.get("toolchain", "not yet known"),
        "trials": f"{data['trials_done']} of {data['trials_planned']}" + _failures(data["failures"]),
        "time": f"{output.duration(data['queue_seconds'])} queued, {output.duration(data['run_seconds'])} running",
        "stages": "  ".join(f"{stage['stage']} {stage['seconds']:.1f} s" for stage in data["timeline"]),
        "labels": " ".join(f"{name}={value}" for name, value in data["labels"].items()),
        "artifact": data["artifact_id"] or "",
    }
    for name, value in facts.items():
        if value:
            output.line(textwrap.fill(value, output.width(), initial_indent=f"{name:<10}", subsequent_indent=" " * 10))
    _tasks(data["tasks"])
    if data["failure"]:
        output.line(f"{'failure':<10}[{data['failure']['code']}] {data['failure']['message']}")
        if data["failure"]["hint"]:
            output.line(f"{'hint':<10}{data['failure']['hint']}")
    if data["state"] == "succeeded":
        output.line()
        comparison(found.report())


def _tasks(tasks: list[dict[str, Any]]) -> None:
    if not tasks:
        return
    rows = [
        [
            f"{task['trials_done']}/{task['trials_planned']}",
            output.latency(task["best_latency"]) if task["best_latency"] else "-",
            f"{task['best_gflops']:.1f}" if task["best_gflops"] else "-",
            f"{task['weight']}×",
            task["description"] or task["name"],
        ]
        for task in tasks
    ]
    output.line()
    for text in output.table(["TRIALS", "BEST", "GFLOPS", "TIMES", "TASK"], rows, optional=["TIMES", "GFLOPS"]):
        output.line(text[: output.width()])


def _failures(failures: Mapping[str, int]) -> str:
    shown = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in failures.items())
    return f"; failed: {shown}" if shown else ""


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3f}"


def _error(verification: Mapping[str, Any] | None) -> str:
    if not verification or not verification["outputs"]:
        return "-"
    worst = max(output_["max_abs"] for output_ in verification["outputs"])
    return f"{worst:.2e}" + ("" if verification["passed"] else " wrong")
