"""Jobs, reports and plans as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tunesmith.cli import output
from tunesmith.progress import plan_summary

if TYPE_CHECKING:
    from tunesmith.jobs import Job


_VARIANTS = ("reference", "untuned", "tuned", "onnxruntime", "openvino")
_INDENT = 10
_LONGEST = 20
_WORTH_A_TABLE = 3
_LARGEST_ERROR = 1e308
"""Stands for an error that is no number."""
_STATISTICS = ("mean", "median", "p90", "max", "min", "std")


def comparison(report: Mapping[str, Any], *, precision: str) -> None:
    """Print a table like TVMC's ``Execution time summary``, the summary line and the reasons for the choice."""
    _timings(report, precision)
    _sizes(report)
    output.paragraph(str(report["summary"]))
    for variant, verification in report["verifications"].items():
        _fact("checked", f"{variant}: {_checked(verification)}")
    if report.get("format_verification"):
        _fact("checked", _format(report["format_verification"]))
    if report.get("conditions"):
        _fact("measured", _measured(report["conditions"], report["timings"]))
    _portfolio(report.get("portfolio", []))
    for toolchain, variants in _by_toolchain(report["engines"]).items():
        _fact(" and ".join(variants), toolchain)
    for sentence in report["choice"]:
        _fact("why", str(sentence))
    for task in report["failed_tasks"]:
        shown = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in task["failures"].items())
        _fact("failed", f"{task['name']}: {shown}; {task['hint']}")


def _format(found: Mapping[str, Any]) -> str:
    """Describe the verification of the file that TVM loads."""
    checked = found["verification"]
    return (
        f"{found['file']}, run by TVM: {_checked(checked)}" if checked else f"not {found['file']}: {found['not_run']}"
    )


def _timings(report: Mapping[str, Any], precision: str) -> None:
    precision = report.get("precision", precision)
    headers = ["", *_STATISTICS, "max error", ""]
    rows = [
        [
            _label(report, variant),
            *(_milliseconds(report["timings"][variant][name]) for name in _STATISTICS),
            _error(report["verifications"].get(variant)),
            _mark(report, variant, precision),
        ]
        for variant in _VARIANTS
        if variant in report["timings"]
    ]
    if not rows:
        return
    output.paragraph(f"Execution time summary (ms; {precision}; errors against {report['compared_with']}):")
    lines = [f"  {text}" for text in output.table(headers, rows, right=True)]
    for text in lines if max(map(len, lines)) <= output.width() else _upright(report, headers, rows):
        output.line(text)
    output.line()


def _sizes(report: Mapping[str, Any]) -> None:
    """Print the medians of each size, of a bundle with several; the table above has their means."""
    found = report.get("sizes") or []
    if not found:
        return

    def median(of: Mapping[str, Any], variant: str) -> str:
        timing = of["timings"].get(variant)
        return _milliseconds(timing["median"]) if timing else "-"

    rows = [
        [
            each["size"]["name"],
            f"{each['size']['share']:.0%}",
            *(median(each["report"], variant) for variant in ("reference", "untuned", each["report"]["published"])),
        ]
        for each in found
    ]
    headers = ["SIZE", "SHARE", _label(report, "reference").upper(), "UNTUNED", "PUBLISHED"]
    output.paragraph("Medians of each size (ms); those above are means, by the expected shares:")
    for text in output.table(headers, rows, right=True):
        output.line(f"  {text}")
    output.line()


def _mark(report: Mapping[str, Any], variant: str, precision: str) -> str:
    if variant == _runtime(report):
        # Earlier releases knew runtimes in f32 alone.
        actual = report.get("runtime_precision", "f32")
        return "runs the bundle" + ("" if actual == precision else f" in {actual}")
    return "published" if report["published"] == variant else ""


def _runtime(report: Mapping[str, Any]) -> str | None:
    """Return the variant that runs the bundle in place of what was compiled; earlier releases knew the reference."""
    if report.get("runtime", "tvm") == "tvm":
        return None
    return str(report.get("runtime_variant") or "reference")


def _upright(report: Mapping[str, Any], headers: list[str], rows: list[list[str]]) -> list[str]:
    """Transpose the table to one column per variant, which fits into 40 characters."""
    shown = [variant for variant in _VARIANTS if variant in report["timings"]]
    marks = ["✓" if variant == report["published"] else "" for variant in shown]
    between = list(zip(headers, *rows, strict=True))[1:-1]
    return output.table(["", *shown], [*(list(column) for column in between), ["published", *marks]], right=True)


def _checked(verification: Mapping[str, Any]) -> str:
    """Describe the inputs that a build was verified on, and the limits."""
    kinds = ", ".join(f"{name} {kind}" for name, kind in verification["inputs"].items())
    seeds, rows = len(verification["seeds"]), verification.get("rows")
    on = [f"{seeds} inputs{f' ({kinds})' if kinds else ''}"] if seeds or not rows else []
    on += [f"{rows['rows']} rows of your data"] if rows else []
    summary = f"{verification['precision']} on {' and '.join(on)}"
    return "; ".join([summary, *(_limits(error) for error in verification["outputs"]), *_rows(rows)])


def checked_on_rows(found: Mapping[str, Any]) -> list[str]:
    """Describe what ``check`` found: its verdict, and what the rows showed."""
    rows = found["rows"]
    if found["passed"] is None:
        labelled = rows["labelled"]
        value = _percent(labelled["build"]) if labelled["measure"] == "top1" else f"{labelled['build']:.4g}"
        name = "top-1 on labels" if labelled["measure"] == "top1" else "mean error on labels"
        return [f"{rows['rows']} rows, without a model to compare with: {name} {value}."]
    return ["accurate" if found["passed"] else "NOT accurate enough", f"{_checked(found)}."]


def _rows(rows: Mapping[str, Any] | None) -> list[str]:
    """Describe what the user's rows showed: the worst ones and, with labels, the accuracy."""
    if not rows:
        return []
    worst = ", ".join(f"{each['row']} ({_percent(each['max_rel'])})" for each in rows["worst"][:3])
    said = [f"{rows['elements']} elements of rows compared, the worst in rows {worst}"]
    labelled = rows.get("labelled")
    if labelled and labelled["measure"] == "top1":
        said.append(f"top-1 on labels {_percent(labelled['build'])}, reference {_percent(labelled['reference'])}")
        if labelled["build_top5"] is not None:
            said.append(f"top-5 {_percent(labelled['build_top5'])}, reference {_percent(labelled['reference_top5'])}")
    elif labelled:
        said.append(f"mean error on labels {labelled['build']:.4g}, reference {labelled['reference']:.4g}")
    return said


def _limits(error: Mapping[str, Any]) -> str:
    if error.get("not_compared") and error["passed"]:
        lacking = "elements" if error.get("empty") else "finite value"
        return f"{error['output']} NOT COMPARED: the reference has no {lacking} there"
    off, allowed = _percent(error["max_rel"]), _percent(error["rtol"])
    parts = [f"{error['output']}: error {off} of its largest value, {allowed} allowed"]
    if _is_no_number(error):
        parts = [f"{error['output']}: {error.get('fault') or 'NaN, infinite or of a wrong shape'}"]
    if error.get("rms_limit") is not None and error["rms"] > error["rms_limit"]:
        place = f" at {error['part']}" if error["part"] else ""
        limit = _percent(error["rms_limit"])
        parts.append(f"root mean square of the error{place} {_percent(error['rms'])}, {limit} allowed")
    if error.get("ties"):
        parts.append(f"{error['ties']} ties as the reference itself may decide them")
    if error["top1"] is not None:
        asked = "" if error["least_top1"] is None else f", {_percent(error['least_top1'])} required"
        parts.append(f"top-1 agreement {_percent(error['top1'])}{asked}")
    if error["not_finite"]:
        parts.append(f"{error['not_finite']} elements not finite")
    return ", ".join(parts)


def _is_no_number(error: Mapping[str, Any]) -> bool:
    return float(error["max_abs"]) >= _LARGEST_ERROR


def _measured(conditions: Mapping[str, Any], timings: Mapping[str, Any]) -> str:
    """Describe the conditions of the benchmark and the confidence of its medians."""
    count, least = conditions["threads"], min(len(timing["samples"]) for timing in timings.values())
    sampled = f", {least} samples each" if least else ""
    parts = [
        f"on {conditions['device']} with {count} thread{'s' if count != 1 else ''}{sampled}",
        _certainty(timings.values()),
        _clocks(conditions),
    ]
    if conditions["load"] is not None:
        parts.append(f"{conditions['load']:.1f} other running programs")
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
    return f"95 % confidence intervals of medians at most {_percent(max(widths))} wide" if widths else ""


def _clocks(conditions: Mapping[str, Any]) -> str:
    parts = [f"governor {conditions['governor']}"] if conditions["governor"] else []
    if conditions["megahertz"]:
        low, high = (f"{megahertz:.0f}" for megahertz in conditions["megahertz"])
        parts.append(f"{low if low == high else f'{low} to {high}'} MHz")
    return ", ".join(parts)


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %" if share <= 10 else "more than 1000 %"


def _portfolio(contenders: list[dict[str, Any]]) -> None:
    """Print every build that was compared, if there are more than the untuned and one tuned build."""
    if len([each for each in contenders if each["engine"] != "onnx"]) < _WORTH_A_TABLE:
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
    head, *lines = output.table(["BUILD", "MS", "TRIALS", "VERDICT"], rows)
    indent, width = " " * head.index("VERDICT"), output.width()
    for text in (head, *lines):
        # On narrow terminals, wrapped verdicts would be a word a line.
        is_wide = len(indent) < 2 * width // 3
        output.line(textwrap.fill(text, width, subsequent_indent=indent) if is_wide else text[:width])
    output.line()


def _label(report: Mapping[str, Any], variant: str) -> str:
    """Label of a variant; the reference by its name, unless it is long, as the heading contains it."""
    name = str(report["compared_with"])
    return name if variant == "reference" and len(name) <= _LONGEST else variant


def _by_toolchain(engines: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for variant, toolchain in engines.items():
        found.setdefault(toolchain, []).append(variant)
    return found


def _fact(name: str, value: str) -> None:
    first = f"{name:<{_INDENT}}" if len(name) < _INDENT else f"{name}  "
    output.line(textwrap.fill(value, output.width(), initial_indent=first, subsequent_indent=" " * _INDENT))


def statistics(samples: Mapping[str, float]) -> list[str]:
    """Return TVMC's summary of ``samples`` (seconds) as lines, in milliseconds."""
    names = [f"{name} (ms)" for name in samples]
    return output.table(names, [[_milliseconds(value) for value in samples.values()]])


def job(found: Job) -> None:
    """Print what ``status`` shows of a job."""
    data = found.data
    placement = data["placement"] or {}
    facts = {
        "job": data["id"],
        "part of": data.get("part_of") or "",
        "state": data["state"] + (f", {data['stage']} stage" if data["stage"] and not found.is_finished else ""),
        "waits for": data["waits_for"] or "",
        "queue": queue_place(data),
        "model": f"{data['model_name']}  {data['model']}",
        "target": placement.get("target", data["target"]),
        "device": placement.get("device", "not yet known"),
        "toolchain": placement.get("toolchain", "not yet known"),
        "tuner": _tuner(data),
        "plan": (plan_summary(data["planned"]) or "") if data["planned"] else "",
        "trials": f"{data['trials_done']} of {data['trials_planned']}" + _failures(data["failures"]),
        "time": f"{output.duration(data['queue_seconds'])} queued, {output.duration(data['run_seconds'])} running"
        + _total_limit(data),
        "stages": "  ".join(f"{stage['stage']} {stage['seconds']:.1f} s" for stage in data["timeline"]),
        "group": data.get("group") or "",
        "labels": " ".join(f"{name}={value}" for name, value in data["labels"].items()),
        "artifact": data["artifact_id"] or "",
    }
    for name, value in facts.items():
        if value:
            _fact(name, value)
    for sentence in data["choice"] if data["state"] != "succeeded" else ():
        _fact("why", sentence)
    _parts(data.get("sizes") or [])
    _tasks(data["tasks"])
    if data["failure"]:
        _fact("failure", f"[{data['failure']['code']}] {data['failure']['message']}")
        if data["failure"]["hint"]:
            _fact("hint", data["failure"]["hint"])
        _wrong_builds(data["failure"]["details"])
    if data["state"] == "succeeded":
        output.line()
        comparison(found.report(), precision=data["precision"])


def _parts(sizes: Sequence[Mapping[str, Any]]) -> None:
    """Print the entry points of a job of several sizes, and the jobs that tune them."""
    if not sizes:
        return
    output.line()
    output.listing(
        ["SIZE", "SHARE", "STATE", "TRIALS", "TIME (ms)", "SPEEDUP", "JOB"],
        [
            [
                size["name"],
                f"{size['share']:.0%}",
                size["state"] + (f", {size['stage']}" if size["state"] == "running" and size["stage"] else ""),
                f"{size['trials_done']}/{size['trials_planned']}",
                "-" if size["median"] is None else _milliseconds(size["median"]),
                "-" if size["speedup_over_untuned"] is None else f"{size['speedup_over_untuned']:.2f}x",
                size["job"],
            ]
            for size in sizes
        ],
        optional=["SHARE", "TRIALS", "SPEEDUP", "TIME (ms)"],
        empty="",
    )


def _total_limit(data: Mapping[str, Any]) -> str:
    # Servers of earlier releases have no total limit.
    total = data["budget"].get("total_seconds")
    return f" of at most {output.duration(total)}" if total else ""


def queue_place(data: Mapping[str, Any]) -> str:
    """Describe a job's place in the queue; empty for jobs without one."""
    position, before = data.get("queue_position"), data.get("queued_before") or []
    if position is None:
        return ""
    others = position - 1 - len(before)
    named = [*before, *([f"{others} other job{'' if others == 1 else 's'}"] if others else [])]
    return f"place {position}, after {', '.join(named)}" if named else "next, when a worker is free"


def _wrong_builds(details: Mapping[str, Any]) -> None:
    """Print the errors found and allowed, build by build, of a job whose builds all failed the verification."""
    builds = details.get("verifications") or details.get("precisions") or {}
    for name, outputs in builds.items():
        # Stored failures of earlier releases lack the limits.
        known = [_limits(error) for error in outputs if "rtol" in error and "top1" in error]
        if known or not outputs:
            _fact("checked", f"{name}: {'; '.join(known) or 'did not run'}")


def _tuner(data: Mapping[str, Any]) -> str:
    """Describe the tuner, and the options of the request that differ from the defaults."""
    parts = [data["tuner"], f"{data['precision']} precision"]
    if data["rpc"]:
        parts.append(f"measured on {data['rpc']['key']!r} behind {data['rpc']['tracker']}")
    elif data["runner"] == "none":
        parts.append(f"built with the records of {data['device']}" if data["device"] else "build only")
    if data["bundle_format"] != "shared":
        parts.append(f"{data['bundle_format']} bundle")
    return ", ".join(parts)


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
    worst = max(verification["outputs"], key=lambda error: float(error["max_abs"]))
    if _is_no_number(worst):
        return "wrong"
    return f"{worst['max_abs']:.2e}" + ("" if verification["passed"] else " wrong")


def plan(plan: Mapping[str, Any]) -> None:
    """Print a plan: the engines, the costs of each tuner, and notes."""
    output.line(f"{plan['model_name']} for {plan['target'] or 'a future worker'}; no job was submitted")
    for engine in plan["engines"]:
        _engine(engine)
    rows = [_row(tuner) for tuner in _tuners(plan)]
    if rows:
        output.line()
        headers = ["TUNER", "TASKS", "COVERED", "LEFT OUT", "TRIALS", "ON RECORD", "UNUSABLE", "MINUTES"]
        for text in output.table(headers, rows, optional=["ON RECORD", "LEFT OUT", "UNUSABLE"]):
            output.line(text)
        output.line()
    for note in [*_plan_limits(plan), *_rates(plan), *plan["notes"]]:
        _wrapped(note, "")


def _engine(engine: Mapping[str, Any]) -> None:
    label = f"{engine['name']:<10}"
    if engine["imports"]:
        _wrapped(f"imports the model ({engine['toolchain']})", label)
    elif engine["unsupported_operators"]:
        counts = ", ".join(f"{name} × {count}" for name, count in engine["unsupported_operators"].items())
        _wrapped(f"cannot import the model; unsupported operators: {counts}", label)
    else:
        verb = "cannot import the model" if engine["imports"] is False else "was not tried"
        _failure(verb, engine["failure"], label)
    for tuner, failure in engine["refusals"].items():
        _failure(f"rejects {tuner}", failure, " " * len(label))


def _failure(what: str, failure: Mapping[str, Any], label: str) -> None:
    _wrapped(f"{what}: [{failure['code']}] {failure['message']}", label)
    if failure["hint"]:
        _wrapped(f"hint: {failure['hint']}", " " * len(label))


def _row(tuner: Mapping[str, Any]) -> list[str]:
    passed = ", ".join(f"{count} other {kind}" for kind, count in tuner["records_passed_over"].items())
    return [
        tuner["tuner"],
        str(tuner["tasks"]),
        str(tuner["tasks_covered"]),
        str(tuner["tasks_left_out"]),
        str(tuner["trials"]),
        str(tuner["trials_on_record"]),
        passed or "-",
        f"{tuner['minutes']:.1f}",
    ]


def _plan_limits(plan: Mapping[str, Any]) -> list[str]:
    """Describe where the budget ends a search before its trials, or before every task has some."""
    parts = []
    for tuner in _tuners(plan):
        reached = round(tuner["minutes"] * 60 / tuner["seconds_a_trial"])
        if reached < tuner["trials"]:
            parts.append(
                f"The time budget ends {tuner['tuner']} after about {reached} of its {tuner['trials']} trials."
            )
        if tuner["tasks_left_out"]:
            count = tuner["tasks_left_out"]
            parts.append(
                f"This budget, or an earlier one of the same size, does not reach {count} of {tuner['tuner']}'s "
                "tasks; more trials or seconds do."
            )
    return parts


def _tuners(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [tuner for engine in plan["engines"] for tuner in engine["tuners"]]


def _rates(plan: Mapping[str, Any]) -> list[str]:
    tuners = _tuners(plan)
    guessed = [tuner["tuner"] for tuner in tuners if not tuner["measured_rate"]]
    if not guessed:
        return []
    seconds = next(tuner["seconds_a_trial"] for tuner in tuners if not tuner["measured_rate"])
    *others, last = guessed
    names = f"{', '.join(others)} and {last}" if others else last
    return [f"The minutes of {names} assume {seconds:g} s per trial, as the device has no trials of theirs yet."]


def _wrapped(text: str, label: str) -> None:
    output.line(textwrap.fill(text, output.width(), initial_indent=label, subsequent_indent=" " * len(label)))
