"""What a job would do, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from tunesmith.cli import output


def show(plan: Mapping[str, Any]) -> None:
    """Engines first, then what each tuner would take, then what else is to be known."""
    output.line(f"{plan['model_name']} for {plan['target'] or 'a worker that does not live yet'}; nothing was queued")
    for engine in plan["engines"]:
        _engine(engine)
    rows = [_row(tuner) for engine in plan["engines"] for tuner in engine["tuners"]]
    if rows:
        output.line()
        headers = ["TUNER", "TASKS", "COVERED", "LEFT OUT", "TRIALS", "ON RECORD", "PASSED OVER", "MINUTES"]
        for text in output.table(headers, rows, optional=["ON RECORD", "LEFT OUT", "PASSED OVER"]):
            output.line(text)
        output.line()
    for note in [*_rates(plan), *plan["notes"]]:
        _wrapped(note, "")


def _engine(engine: Mapping[str, Any]) -> None:
    label = f"{engine['name']:<10}"
    if engine["imports"]:
        _wrapped(f"imports the model ({engine['toolchain']})", label)
    elif engine["unsupported_operators"]:
        counts = ", ".join(f"{name} × {count}" for name, count in engine["unsupported_operators"].items())
        _wrapped(f"cannot import the model; it lacks {counts}", label)
    else:
        verb = "cannot import the model" if engine["imports"] is False else "was not asked"
        _failure(verb, engine["failure"], label)
    for tuner, failure in engine["refusals"].items():
        _failure(f"refuses {tuner}", failure, " " * len(label))


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


def _rates(plan: Mapping[str, Any]) -> list[str]:
    tuners = [tuner for engine in plan["engines"] for tuner in engine["tuners"]]
    guessed = [tuner["tuner"] for tuner in tuners if not tuner["measured_rate"]]
    if not guessed:
        return []
    seconds = next(tuner["seconds_a_trial"] for tuner in tuners if not tuner["measured_rate"])
    return [f"Minutes of {' and '.join(guessed)} are guessed with {seconds:g} s a trial: the device has no trials yet."]


def _wrapped(text: str, label: str) -> None:
    output.line(textwrap.fill(text, output.width(), initial_indent=label, subsequent_indent=" " * len(label)))
