"""What people see while they wait, at different widths."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from tunesmith.cli import output
from tunesmith.cli.live import LiveView
from tunesmith.events import Event
from tunesmith.progress import PlainView, Progress, plan_summary

_NOW = datetime.now(UTC)
_AHEAD = {"share": 0.5, "seconds_left": 65.0}


def event(kind: str, **data: Any) -> Event:
    return Event(id=1, kind=kind, data=data, at=_NOW - timedelta(seconds=5))


def tuning(*, tasks: int = 3) -> Progress:
    progress = Progress()
    for one in (
        event("state", state="running"),
        event("stage", stage="import", status="started", share=0.0),
        event("stage", stage="import", status="finished", seconds=2.4, share=0.1),
        event("stage", stage="tune", status="started", share=0.3),
        event("progress", trials_done=30, trials_planned=120, tasks=[], **_AHEAD),
    ):
        progress.apply(one)
    for position in range(tasks):
        progress.apply(task(position))
    return progress


def test_messages_of_a_stage_advance_the_bar() -> None:
    """Those of a job of several sizes, which has no trials of its own."""
    progress = tuning(tasks=0)
    said = "size 2 of 4 (batch=4): tune, 12 of 300 trials"
    progress.apply(event("stage", stage="tune", status="working", message=said, share=0.7))
    assert (progress.share, progress.doing) == (0.7, said)
    progress.apply(event("stage", stage="tune", status="working", message=said))
    assert progress.share == 0.7


def task(position: int, **changes: Any) -> Event:
    data = {
        "position": position,
        "name": "conv2d_NCHWc.x86",
        "description": f"conv2d number {position} with a description that is long enough to be cut",
        "trials_done": 10,
        "trials_planned": 40,
        "best_latency": 0.00125,
        "best_gflops": 87.6,
    }
    return event("progress", tasks=[{**data, **changes}], **_AHEAD)


def rendered(progress: Progress, *, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None)
    console.print(LiveView(progress, console).render())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [120, 80, 50, 30])
def test_the_picture_fits(width: int) -> None:
    lines = rendered(tuning(), width=width).splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert re.search(r"▶ tune \d+s", text)
    for part in ("✓ import 2s", "· compile", "30/120", "10/40", "1.250 ms"):
        assert part in text
    assert ("87.6 GFLOPS" in text) == (width >= 64)


def test_operators_of_a_long_build_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    progress, now = Progress(), [0.0]
    view = PlainView(progress, clock=lambda: now[0])
    for seconds, one in (
        (0, event("stage", stage="baseline", status="started")),
        (1, event("stage", stage="baseline", status="working", message="relay built 12 of 43 operators")),
        (3, event("stage", stage="baseline", status="working", message="relay built 30 of 43 operators")),
        (12, event("stage", stage="baseline", status="working", message="relay built 43 of 43 operators")),
    ):
        now[0] = seconds
        progress.apply(one)
        view.update(one)
    told = capsys.readouterr().err.splitlines()
    assert told == ["baseline  relay built 12 of 43 operators", "baseline  relay built 43 of 43 operators"]
    started = progress.stage_started
    assert "relay built 43 of 43 operators" in rendered(progress, width=80)
    progress.apply(event("stage", stage="baseline", status="finished", seconds=12.0))
    assert "relay built" not in rendered(progress, width=80)
    assert progress.stage_started == started


def test_more_tasks_than_lines() -> None:
    progress = tuning(tasks=43)
    progress.apply(task(0, trials_done=11))
    lines = rendered(progress, width=80).splitlines()
    assert len(lines) <= 24
    assert "… and 26 more tasks" in lines[-1]
    assert any("number 0" in line and "11/40" in line for line in lines), "what changed last is shown"


def test_the_bar_goes_by_the_share_of_the_job_and_time_left_is_of_tuning() -> None:
    progress = tuning(tasks=0)
    assert "━" * 10 + " " in rendered(progress, width=80).replace("╸", " ")
    assert "30/120 trials 1 min 05 s of tuning left" in " ".join(rendered(progress, width=80).split())
    assert "1 min 05 s left" in " ".join(rendered(progress, width=50).split())
    progress.apply(event("stage", stage="tune", status="finished", seconds=30.0, share=0.7))
    assert (progress.share, "left" in rendered(progress, width=80)) == (0.7, False)
    progress.apply(event("stage", stage="tune", status="started", share=0.3))
    assert progress.share == 0.7, "a bar never falls"


def test_lines_are_throttled(capsys: pytest.CaptureFixture[str]) -> None:
    progress, now = tuning(tasks=0), [0.0]
    view = PlainView(progress, clock=lambda: now[0])
    for second in range(25):
        now[0] = float(second)
        progress.apply(task(second))
        view.update(task(second))
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_numbers_for_people() -> None:
    assert [output.duration(seconds) for seconds in (0.4, 59.9, 61, 3700)] == [
        "0 s",
        "59 s",
        "1 min 01 s",
        "1 h 01 min",
    ]
    assert [output.size(count) for count in (999, 585_532, 10**10)] == ["999 B", "585.5 kB", "10.0 GB"]
    assert [output.latency(seconds) for seconds in (0.00125, 0.0000209)] == ["1.250 ms", "20.90 µs"]


def test_a_plan_without_trials_says_that_they_were_paid_for() -> None:
    told = plan_summary({"tuner": "autotvm", "tasks": 4, "covered": 4, "trials_on_record": 96})
    assert told is not None
    assert told.endswith("this budget allows no more than the 96 trials on record; a larger one may")
    for data in ({"covered": 3, "trials_on_record": 96}, {"covered": 4, "trials_on_record": 0}):
        assert "on record" not in (plan_summary({"tuner": "autotvm", "tasks": 4, **data}) or "")
