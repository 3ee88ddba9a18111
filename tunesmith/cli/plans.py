"""What a job would do, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from tunesmith.cli import output


def show(plan: Mapping[str, Any]) -> None:
    """Engines first, then what each tuner would take, then what else is to be known."""
    output.line(f"{plan['model_name']} for {plan['target'] or 'a worker that is not there yet'}; nothing was queued")
    for engine in plan["engines"]:
        _engine(engine)
    rows = [_row(tuner) for tuner in _tuners(plan)]
    if rows:
        output.line()
        headers = ["TUNER", "TASKS", "COVERED", "LEFT OUT", "TRIALS", "ON RECORD", "PASSED OVER", "MINUTES"]
        for text in output.table(headers, rows, optional=["ON RECORD", "LEFT OUT", "PASSED OVER"]):
            output.line(text)
        output.line()
    for note in [*_limits(plan), *_rates(plan), *plan["notes"]]:
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


def _limits(plan: Mapping[str, Any]) -> list[str]:
    """Where the budget ends a search before its trials are done, or before all tasks had some."""
    said = []
    for tuner in _tuners(plan):
        reached = round(tuner["minutes"] * 60 / tuner["seconds_a_trial"])
        if reached < tuner["trials"]:
            said.append(f"The time ends {tuner['tuner']} after about {reached} of its {tuner['trials']} trials.")
        if tuner["tasks_left_out"]:
            count = tuner["tasks_left_out"]
            said.append(
                f"The budget, or an earlier one as large, does not reach {count} of {tuner['tuner']}'s tasks; "
                "more trials or seconds do."
            )
    return said


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
    return [f"Minutes of {names} are guessed with {seconds:g} s a trial: the device has no trials of theirs yet."]


def _wrapped(text: str, label: str) -> None:
    output.line(textwrap.fill(text, output.width(), initial_indent=label, subsequent_indent=" " * len(label)))
