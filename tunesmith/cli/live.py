"""Progress display that is redrawn in place on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tunesmith.cli import output
from tunesmith.progress import STAGES, Progress, TaskProgress, plan_summary

if TYPE_CHECKING:
    from tunesmith.events import Event

_OTHER_LINES = 7
_ROOMY_COLUMNS = 64
_BESIDE_BAR = 30


class LiveView:
    def __init__(self, progress: Progress, console: Console | None = None) -> None:
        self._progress = progress
        self._console = console or Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console,
            get_renderable=self.render,
            refresh_per_second=4,
            transient=False,
            redirect_stdout=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, event: Event) -> None:
        """Print notes and the plan as permanent lines; the display itself is redrawn four times a second."""
        if event.kind == "note":
            self._console.print(Text(str(event.data.get("message")), style="dim"))
        elif event.kind == "stage" and (plan := plan_summary(event.data)):
            self._console.print(Text(plan, style="dim"))

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [self._stages()]
        if self._progress.doing:
            parts.append(Text(self._progress.doing, style="cyan"))
        if self._progress.share:
            parts.append(self._overall())
        if self._progress.tasks:
            parts.append(self._tasks())
        return Group(*parts)

    def _stages(self) -> Text:
        progress = self._progress
        parts: list[tuple[str, str]] = []
        if progress.stage is None or progress.state not in ("running", "canceling"):
            parts.append((progress.state, "bold"))
        for stage in STAGES:
            if stage in progress.finished:
                parts.append((f"✓ {stage} {progress.finished[stage]:.0f}s", "green"))
            elif stage == progress.stage:
                parts.append((f"▶ {stage}{self._since()}", "bold cyan"))
            else:
                parts.append((f"· {stage}", "dim"))
        return _wrapped(parts, self._console.width)

    def _since(self) -> str:
        started = self._progress.stage_started
        if started is None or self._progress.state not in ("running", "canceling"):
            return ""
        return f" {max(0.0, (datetime.now(UTC) - started).total_seconds()):.0f}s"

    def _overall(self) -> RenderableType:
        progress = self._progress
        left = progress.seconds_left
        of_tuning = " of tuning" if self._is_roomy else ""
        bar = max(4, min(20, self._console.width - _BESIDE_BAR))
        grid = Table.grid(padding=(0, 1), expand=False)
        grid.add_row(
            ProgressBar(total=1.0, completed=progress.share, width=bar),
            f"{progress.trials_done}/{progress.trials_planned} trials" if progress.trials_planned else "",
            f"{output.duration(left)}{of_tuning} left" if left is not None else "",
        )
        return grid

    @property
    def _is_roomy(self) -> bool:
        return self._console.width >= _ROOMY_COLUMNS

    def _tasks(self) -> RenderableType:
        tasks = self._progress.latest_tasks(self._console.height - _OTHER_LINES)
        rows = [self._cells(task, roomy=self._is_roomy) for task in tasks]
        # Without a minimum width, a long description would squeeze the numbers.
        numbers = [max(len(row[place]) for row in rows) for place in range(1, len(rows[0]))] if rows else []
        table = Table.grid(padding=(0, 1), expand=False)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=self._console.width - sum(numbers) - len(numbers))
        for size in numbers:
            table.add_column(justify="right", no_wrap=True, min_width=size)
        for row in rows:
            table.add_row(*row)
        hidden = len(self._progress.tasks) - len(tasks)
        return Group(table, Text(f"… and {hidden} more tasks", style="dim")) if hidden else table

    def _cells(self, task: TaskProgress, *, roomy: bool) -> list[str]:
        done = f"{task.trials_done}/{task.trials_planned}"
        latency = output.latency(task.best_latency) if task.best_latency else "-"
        gflops = f"{task.best_gflops:.1f} GFLOPS" if task.best_gflops else ""
        return [task.name, done, latency, *([gflops] if roomy else [])]


def _wrapped(parts: list[tuple[str, str]], width: int) -> Text:
    """Join parts with two blanks, breaking lines between parts only."""
    text, used = Text(), 0
    for part, style in parts:
        if used and used + 2 + len(part) > width:
            text.append("\n")
            used = 0
        elif used:
            text.append("  ")
            used += 2
        text.append(part, style=style)
        used += len(part)
    return text
