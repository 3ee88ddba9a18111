"""What a job came to, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tunesmith.cli import output
from tunesmith.progress import plan_told

if TYPE_CHECKING:
    from tunesmith.jobs import Job

_VARIANTS = ("reference", "untuned", "tuned")
_LONGEST = 20
_WORTH_A_TABLE = 3
_STATISTICS = ("mean", "median", "p90", "max", "min", "std")


def comparison(report: Mapping[str, Any], *, precision: str) -> None:
    """The table in the spirit of TVMC's ``Execution time summary``, the summary line, and why it came so."""
    _timings(report, precision)
    output.paragraph(str(report["summary"]))
    for variant, verification in report["verifications"].items():
        _fact("checked", f"{variant}: {_checked(verification)}", indent=10)
    if report.get("conditions"):
        _fact("measured", _measured(report["conditions"], report["timings"]), indent=10)
    _portfolio(report.get("portfolio", []))
    for toolchain, variants in _by_toolchain(report["engines"]).items():
        _fact(" and ".join(variants), toolchain, indent=10)
    for sentence in report["choice"]:
        _fact("why", str(sentence), indent=10)
    for task in report["failed_tasks"]:
        shown = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in task["failures"].items())
        _fact("failed", f"{task['name']}: {shown}; {task['hint']}", indent=10)


def _timings(report: Mapping[str, Any], precision: str) -> None:
    headers = ["", *_STATISTICS, "max error", ""]
    rows = [
        [
            _label(report, variant),
            *(_milliseconds(report["timings"][variant][name]) for name in _STATISTICS),
            _error(report["verifications"].get(variant)),
            "published" if report["published"] == variant else "",
        ]
        for variant in _VARIANTS
        if variant in report["timings"]
    ]
    if not rows:
        return
    output.paragraph(
        f"Execution time summary (ms; {report.get('precision', precision)}; errors against {report['compared_with']}):"
    )
    lines = [f"  {text}" for text in output.table(headers, rows, right=True)]
    for text in lines if max(map(len, lines)) <= output.width() else _upright(report, headers, rows):
        output.line(text)
    output.line()


def _upright(report: Mapping[str, Any], headers: list[str], rows: list[list[str]]) -> list[str]:
    """A column for each variant, which forty characters hold."""
    shown = [variant for variant in _VARIANTS if variant in report["timings"]]
    marks = ["✓" if variant == report["published"] else "" for variant in shown]
    between = list(zip(headers, *rows, strict=True))[1:-1]
    return output.table(["", *shown], [*(list(column) for column in between), ["published", *marks]], right=True)


def _checked(verification: Mapping[str, Any]) -> str:
    """What a build was compared on, and by which limits."""
    kinds = ", ".join(f"{name} {kind}" for name, kind in verification["inputs"].items())
    said = f"{verification['precision']} on {len(verification['seeds'])} inputs{f' ({kinds})' if kinds else ''}"
    return "; ".join([said, *(_limits(error) for error in verification["outputs"])])


def _limits(error: Mapping[str, Any]) -> str:
    if error.get("not_compared") and error["passed"]:
        return f"{error['output']} NOT COMPARED: the reference has no finite number there"
    off, allowed = _percent(error["max_rel"]), _percent(error["rtol"])
    parts = [f"{error['output']} off by {off} of its largest value, {allowed} allowed"]
    if error["top1"] is not None:
        asked = "" if error["least_top1"] is None else f", {_percent(error['least_top1'])} asked for"
        parts.append(f"top-1 agreement {_percent(error['top1'])}{asked}")
    if error["not_finite"]:
        parts.append(f"{error['not_finite']} elements not finite")
    return ", ".join(parts)


def _measured(conditions: Mapping[str, Any], timings: Mapping[str, Any]) -> str:
    """What the benchmark was measured under, and how sure its medians are."""
    count, least = conditions["threads"], min(len(timing["samples"]) for timing in timings.values())
    parts = [
        f"on {conditions['device']} with {count} thread{'s' if count != 1 else ''}, {least} samples of each",
        _certainty(timings.values()),
        _clocks(conditions),
    ]
    if conditions["load"] is not None:
        parts.append(f"{conditions['load']:.1f} other programs at work")
    if conditions["drift"] is not None:
        parts.append(f"calibration loop varied by {_percent(conditions['drift'])}")
    if conditions["attempts"] > 1:
        parts.append(f"attempt {conditions['attempts']}")
    if conditions["noisy"]:
        parts.append(f"NOISY: {', '.join(conditions['reasons'])}")
    return "; ".join(part for part in parts if part)


def _certainty(timings: Iterable[Mapping[str, Any]]) -> str:
    widths = [
        (timing["ci_high"] - timing["ci_low"]) / timing["median"]
        for timing in timings
        if timing["ci_low"] is not None and timing["ci_high"] is not None
    ]
    return f"95 % intervals of medians at most {_percent(max(widths))} wide" if widths else ""


def _clocks(conditions: Mapping[str, Any]) -> str:
    said = [f"governor {conditions['governor']}"] if conditions["governor"] else []
    if conditions["megahertz"]:
        low, high = (f"{megahertz:.0f}" for megahertz in conditions["megahertz"])
        said.append(f"{low if low == high else f'{low} to {high}'} MHz")
    return ", ".join(said)


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %" if share <= 10 else "more than 1000 %"


def _portfolio(contenders: list[dict[str, Any]]) -> None:
    """Every build that raced, where more than untuned and one tuned build did."""
    if len(contenders) < _WORTH_A_TABLE:
        return
    rows = [
        [
            contender["name"],
            _milliseconds(contender["seconds"]) if contender["seconds"] is not None else "-",
            str(contender["trials"] or "-"),
            contender["verdict"],
        ]
        for contender in contenders
    ]
    output.line()
    for text in output.table(["BUILD", "MS", "TRIALS", "VERDICT"], rows):
        output.line(text[: output.width()])
    output.line()


def _label(report: Mapping[str, Any], variant: str) -> str:
    """The reference by its name, unless that is long: the heading has it."""
    name = str(report["compared_with"])
    return name if variant == "reference" and len(name) <= _LONGEST else variant


def _by_toolchain(engines: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for variant, toolchain in engines.items():
        found.setdefault(toolchain, []).append(variant)
    return found


def _fact(name: str, value: str, *, indent: int) -> None:
    first = f"{name:<{indent}}" if len(name) < indent else f"{name}  "
    output.line(textwrap.fill(value, output.width(), initial_indent=first, subsequent_indent=" " * indent))


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
        "waits for": data["waits_for"] or "",
        "model": f"{data['model_name']}  {data['model']}",
        "target": placement.get("target", data["target"]),
        "device": placement.get("device", "not yet known"),
        "toolchain": placement.get("toolchain", "not yet known"),
        "tuner": _tuner(data),
        "plan": (plan_told(data["planned"]) or "") if data["planned"] else "",
        "trials": f"{data['trials_done']} of {data['trials_planned']}" + _failures(data["failures"]),
        "time": f"{output.duration(data['queue_seconds'])} queued, {output.duration(data['run_seconds'])} running",
        "stages": "  ".join(f"{stage['stage']} {stage['seconds']:.1f} s" for stage in data["timeline"]),
        "group": data.get("group") or "",
        "labels": " ".join(f"{name}={value}" for name, value in data["labels"].items()),
        "artifact": data["artifact_id"] or "",
    }
    for name, value in facts.items():
        if value:
            _fact(name, value, indent=10)
    for sentence in data["choice"] if data["state"] != "succeeded" else ():
        _fact("why", sentence, indent=10)
    _tasks(data["tasks"])
    if data["failure"]:
        _fact("failure", f"[{data['failure']['code']}] {data['failure']['message']}", indent=10)
        if data["failure"]["hint"]:
            _fact("hint", data["failure"]["hint"], indent=10)
    if data["state"] == "succeeded":
        output.line()
        comparison(found.report(), precision=data["precision"])


def _tuner(data: Mapping[str, Any]) -> str:
    """The search, and whatever of the request is not the usual."""
    said = [data["tuner"], f"{data['precision']} precision"]
    if data["rpc"]:
        said.append(f"measured on {data['rpc']['key']!r} behind {data['rpc']['tracker']}")
    elif data["runner"] == "none":
        said.append(f"built with the records of {data['device']}" if data["device"] else "nothing is run")
    if data["bundle_format"] != "shared":
        said.append(f"{data['bundle_format']} bundle")
    return ", ".join(said)


def _tasks(tasks: list[dict[str, Any]]) -> None:
    if not tasks:
        return
    rows = [
        [
            f"{task['trials_done']}/{task['trials_planned']}",
            output.latency(task["best_latency"]) if task["best_latency"] else "-",
            f"{task['best_gflops']:.1f}" if task["best_gflops"] else "-",
            f"{task['weight']}×",
            str(sum(task["failures"].values()) or "-"),
            task["description"] or task["name"],
        ]
        for task in tasks
    ]
    output.line()
    headers = ["TRIALS", "BEST", "GFLOPS", "TIMES", "FAILED", "TASK"]
    for text in output.table(headers, rows, optional=["FAILED", "TIMES", "GFLOPS"]):
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
