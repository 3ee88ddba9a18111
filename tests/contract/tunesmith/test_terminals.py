"""The command line in front of a person: narrow terminals, terminals that cannot redraw, Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.api.factories import Service
from tests.support.tunesmith.commands import run
from tunesmith.client import Client

ROOT = Path(__file__).parents[3]
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(
    *arguments: object, columns: int = 80, term: str = "xterm", interrupt_after: str | None = None
) -> tuple[int, str, str]:
    """Status, standard output, and what the terminal on standard error was sent."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": term}
    environment.pop("COLUMNS", None)
    command = [sys.executable, "-m", "tunesmith", *map(str, arguments)]
    process = subprocess.Popen(command, env=environment, stdin=slave, stdout=subprocess.PIPE, stderr=slave, text=True)
    os.close(slave)
    try:
        shown = _read(master, lambda text: interrupt_after is not None and interrupt_after in text)
        if interrupt_after is not None:
            process.send_signal(signal.SIGINT)
            shown += _read(master, lambda _: False)
        out, _ = process.communicate(timeout=20)
    finally:
        os.close(master)
        process.kill()
    return process.returncode, out, shown


def _read(master: int, is_enough: Callable[[str], bool]) -> str:
    """Until then, or until the other side is closed."""
    text, deadline = "", time.monotonic() + 30
    with contextlib.suppress(OSError):
        while time.monotonic() < deadline and not is_enough(text):
            if select.select([master], [], [], 0.2)[0]:
                chunk = os.read(master, 65536)
                if not chunk:
                    break
                text += chunk.decode(errors="replace")
    return text


@pytest.mark.usefixtures("worker", "url")
@pytest.mark.parametrize("columns", [40, 100])
def test_progress_fits_the_terminal(onnx: Path, columns: int) -> None:
    status, out, shown = on_terminal("tune", onnx, "--trials", 12, columns=columns)
    assert (status, "Tuning made it 1.40× as fast" in out) == (0, True), shown
    assert "\x1b[" in shown, "it is redrawn in place"
    drawn = [_CONTROL.sub("", line) for line in re.split(r"[\r\n]+", shown)]
    progress = [line for line in drawn if not line.startswith("job j-")]
    assert max(map(len, progress)) <= columns
    for part in ("✓ import", "trials", "autotvm: 4 tuning"):
        assert any(part in line for line in progress), shown


@pytest.mark.usefixtures("worker", "url")
def test_a_terminal_that_cannot_redraw_gets_lines(onnx: Path) -> None:
    status, _, shown = on_terminal("tune", onnx, term="dumb")
    assert status == 0
    assert "import took" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("command", ["tune", "status", "logs"])
def test_ctrl_c_stops_the_waiting_only(
    client: Client, service: Service, onnx: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    job = client.tune(client.upload(onnx)).id
    service.logs.mkdir(parents=True)
    (service.logs / f"{job}.log").write_text("building\n")
    ways: dict[str, tuple[list[object], str]] = {
        "tune": (["tune", onnx], "queued"),
        "status": (["status", job, "--watch"], "queued"),
        "logs": (["logs", job, "--follow"], ""),
    }
    arguments, sign = ways[command]
    if command == "logs":
        status, shown = _interrupted_logs(arguments)
    else:
        status, _, shown = on_terminal(*arguments, columns=40, interrupt_after=sign)
    waited = next(iter(client.jobs())).id if command == "tune" else job
    again = f"tunesmith {'logs' if command == 'logs' else 'status'} {waited}"
    assert (status, again in _CONTROL.sub("", shown)) == (130, True), repr(shown)
    assert "Traceback" not in shown
    assert client.job(waited).state == "queued"
    assert run(capsys, "cancel", waited)[0] == 0


def _interrupted_logs(arguments: list[object]) -> tuple[int, str]:
    """Once the first lines have come."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tunesmith", *map(str, arguments)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    return process.returncode, err


@pytest.mark.usefixtures("worker", "url")
def test_everything_listed_fits_forty_columns(
    capsys: pytest.CaptureFixture[str], onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run(capsys, "tune", onnx, "--group", "nightly", "--json")[1]
    monkeypatch.setenv("COLUMNS", "40")
    identifier = re.search(r'"id": "(j-[^"]+)"', job)
    assert identifier is not None
    for command in (
        ["jobs"],
        ["models"],
        ["workers"],
        ["groups"],
        ["status", identifier[1]],
        ["deliveries", identifier[1]],
    ):
        status, out, _ = run(capsys, *command)
        assert status == 0
        wide = [line for line in out.splitlines() if len(line) > 40 and len(line.split()) > 2]
        assert wide == [], command
