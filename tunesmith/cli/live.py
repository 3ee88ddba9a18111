"""Progress as a picture that stays in place, on a terminal."""

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
from tunesmith.cli.progress import STAGES, Progress, TaskProgress

if TYPE_CHECKING:
    from tunesmith.events import Event

_OTHER_LINES = 7
_ROOMY_COLUMNS = 64


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
        """The picture draws itself four times a second; only notes are lines that stay."""
        if event.kind == "note":
            self._console.print(Text(str(event.data.get("message")), style="dim"))

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [self._stages()]
        if self._progress.trials_planned:
            parts.append(self._overall())
        if self._progress.tasks:
            parts.append(self._tasks())
        return Group(*parts)

    def _stages(self) -> Text:
        progress = self._progress
        line = Text()
        if progress.stage is None or progress.state not in ("running", "canceling"):
            line.append(progress.state + "  ", style="bold")
        for stage in STAGES:
            if stage in progress.finished:
                line.append(f"✓ {stage} {progress.finished[stage]:.0f}s  ", style="green")
            elif stage == progress.stage:
                line.append(f"▶ {stage}{self._since()}  ", style="bold cyan")
            else:
                line.append(f"· {stage}  ", style="dim")
        return line

    def _since(self) -> str:
        started = self._progress.stage_started
        if started is None or self._progress.state not in ("running", "canceling"):
            return ""
        return f" {max(0.0, (datetime.now(UTC) - started).total_seconds()):.0f}s"

    def _overall(self) -> RenderableType:
        progress = self._progress
        eta = progress.eta_seconds() if progress.stage == "tune" and "tune" not in progress.finished else None
        grid = Table.grid(padding=(0, 1), expand=False)
        grid.add_row(
            ProgressBar(total=1.0, completed=1.0 if "tune" in progress.finished else progress.share(), width=20),
            f"{progress.trials_done}/{progress.trials_planned} trials",
            f"{output.duration(eta)} left" if eta is not None else "",
        )
        return grid

    def _tasks(self) -> RenderableType:
        roomy = self._console.width >= _ROOMY_COLUMNS
        table = Table.grid(padding=(0, 1), expand=False)
        table.add_column("task", no_wrap=True, overflow="ellipsis", ratio=1)
        for _ in range(3 if roomy else 2):
            table.add_column(justify="right", no_wrap=True)
        most = self._console.height - _OTHER_LINES
        tasks = self._progress.latest_tasks(most)
        for task in tasks:
            table.add_row(*self._cells(task, roomy=roomy))
        hidden = len(self._progress.tasks) - len(tasks)
        return Group(table, Text(f"… and {hidden} more tasks", style="dim")) if hidden else table

    def _cells(self, task: TaskProgress, *, roomy: bool) -> list[str]:
        done = f"{task.trials_done}/{task.trials_planned}"
        latency = f"{task.best_latency * 1000:.4f} ms" if task.best_latency else "-"
        gflops = f"{task.best_gflops:.1f} GFLOPS" if task.best_gflops else ""
        return [task.name, done, latency, *([gflops] if roomy else [])]
