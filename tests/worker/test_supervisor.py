"""Keeping children running, and the address that clients find."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner import processes
from worker import supervisor
from worker.children import Child


def _child(tmp_path: Path, program: str) -> Child:
    return Child(
        name="child",
        command=[sys.executable, "-c", program],
        environment=os.environ,
        log=tmp_path / "child.log",
        folder=tmp_path,
    )


def test_hosts_that_are_none_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNESMITH_WEBHOOK_HOSTS", "http://hooks.lan")
    assert supervisor.main("127.0.0.1", 0, tmp_path / "home") == 3
    assert "TUNESMITH_WEBHOOK_HOSTS: 'http://hooks.lan' is no host" in capsys.readouterr().err


def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    child = _child(tmp_path, "import time; time.sleep(60)")
    child.start()
    assert child.process is not None
    first = child.process.pid
    os.kill(first, signal.SIGKILL)
    news = _until(child.watch)
    assert "the child ended (SIGKILL)" in str(news)
    _until(lambda: child.watch() or child.process)
    assert child.process.pid != first
    child.ask_to_end()
    child.end(by=time.monotonic() + 5)
    assert child.process is None


def test_pauses_grow_while_a_child_keeps_dying(tmp_path: Path) -> None:
    child = _child(tmp_path, "raise SystemExit(7)")
    child.start()
    news = [str(_until(child.watch)) for _ in range(3)]
    assert [text.split(" again in ")[1].split()[0] for text in news] == ["0.2", "0.4", "0.8"]
    assert "exit status 7" in news[0]
    child.end(by=time.monotonic())


def test_a_child_that_does_not_listen_is_killed_with_its_own(tmp_path: Path) -> None:
    program = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "open('pid', 'w').write(str(grandchild.pid)); time.sleep(60)"
    )
    child = _child(tmp_path, program)
    child.start()
    grandchild = int(str(_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())))
    child.ask_to_end()
    child.end(by=time.monotonic() + 0.3)
    _until(lambda: processes.start_time(grandchild) is None)


def test_a_port_in_use_is_a_clear_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with supervisor._listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert supervisor.main("127.0.0.1", port, tmp_path) == 3
    said = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "hint:" in said


def test_the_token_outlives_the_service(tmp_path: Path) -> None:
    token = supervisor._token(tmp_path)
    assert len(token) > 30
    assert supervisor._token(tmp_path) == token
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_a_token_that_others_could_read_is_kept_from_them(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("by hand\n")
    (tmp_path / "token").chmod(0o644)
    assert supervisor._token(tmp_path) == "by hand"
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_an_address_of_every_interface_is_told_as_this_machine() -> None:
    with supervisor._listen("0.0.0.0", 0) as listener:  # noqa: S104 - that is the point
        assert supervisor._url(listener).startswith("http://127.0.0.1:")


def _until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 10
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value
