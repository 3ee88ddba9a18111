"""Keeping children running, and the address that clients find."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from domain import errors
from domain.targets import Device
from serve import supervisor
from serve.supervisor import SupervisedProcess
from tests.support.waiting import until
from tuner.host import hardware, orphans
from tuner.host.catalogue import ROOT
from tunesmith.cli.main import main


def _child(tmp_path: Path, program: str) -> SupervisedProcess:
    return SupervisedProcess(
        name="child",
        command=[sys.executable, "-c", program],
        environment=os.environ,
        log=tmp_path / "child.log",
        folder=tmp_path,
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("BLOB_GRACE_HOURS", "0", "TUNESMITH_BLOB_GRACE_HOURS: Input should be greater than or equal to 2"),
        ("PLAN_SECONDS", "-1", "TUNESMITH_PLAN_SECONDS: Input should be greater than 0"),
        ("BLOB_CACHE_MB", "many", "TUNESMITH_BLOB_CACHE_MB: Input should be a valid integer"),
        ("HEADER_BYTES", "1", "TUNESMITH_HEADER_BYTES: Input should be greater than or equal to 4096"),
        ("BLOB_URL", "ftp://example", "TUNESMITH_BLOB_URL"),
        ("WEBHOOK_HOSTS", "http://a.lan", "TUNESMITH_WEBHOOK_HOSTS: 'http://a.lan' is not a host or network"),
    ],
)
def test_a_setting_of_any_part_that_cannot_be_used_is_told_before_one_is_started(
    tmp_path: Path, name: str, value: str, said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a part is started")

    monkeypatch.setenv(f"TUNESMITH_{name}", value)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path / "home"))
    assert main(["serve", "--port", "0"]) == 3
    told = capsys.readouterr().err
    assert (told.startswith("error[configuration_error]: "), said in told) == (True, True), told


def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    child = _child(tmp_path, "import time; time.sleep(60)")
    child.start()
    assert child.process is not None
    first = child.process.pid
    os.kill(first, signal.SIGKILL)
    news = until(child.watch)
    assert "the child ended (SIGKILL)" in str(news)
    until(lambda: child.watch() or child.process)
    assert child.process.pid != first
    child.ask_to_end()
    child.end(by=time.monotonic() + 5)
    assert child.process is None


def test_pauses_grow_while_a_child_keeps_dying(tmp_path: Path) -> None:
    child = _child(tmp_path, "raise SystemExit(7)")
    child.start()
    news = [str(until(child.watch)) for _ in range(3)]
    assert [text.split("restarting it in ")[1].split()[0] for text in news] == ["0.2", "0.4", "0.8"]
    assert "exit status 7" in news[0]
    child.end(by=time.monotonic())


def test_a_child_that_cannot_be_started_again_is_put_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the host has no process to spare: the others go on, and it is tried again."""
    child = _child(tmp_path, "import time; time.sleep(60)")
    child.start()
    assert child.process is not None
    child.process.kill()
    until(child.watch)

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        news = [str(until(child.watch)) for _ in range(2)]
    assert all("cannot start the child ([Errno 11] Resource temporarily unavailable)" in text for text in news)
    assert [text.split("restarting it in ")[1] for text in news] == ["0.4 s", "0.8 s"]
    until(lambda: child.watch() or child.process)
    child.end(by=time.monotonic())


_REFUSES = (
    "import sys; sys.path.insert(0, sys.argv[1]); from process.refusing import refuse; from domain import errors;"
    "print('a line of the log', flush=True); sys.exit(refuse(errors.{}('what is wrong')))"
)


def _refusing(tmp_path: Path, error: str) -> SupervisedProcess:
    child = _child(tmp_path, _REFUSES.format(error))
    child.command = [*child.command, str(ROOT)]
    return child


def test_refusals_in_a_row_are_counted(tmp_path: Path) -> None:
    child = _refusing(tmp_path, "DatabaseDamaged")
    child.log.write_text("error[configuration_error]: of another start\n")
    child.start()
    for count in (1, 2, 3):
        until(child.watch)
        assert child.refusals == count
    found = child.refusal()
    assert (type(found), found.message) == (errors.DatabaseDamaged, "what is wrong")
    child.end(by=time.monotonic())


@pytest.mark.parametrize(("error", "count"), [("ConfigurationError", 1), ("DatabaseUnavailable", 0)])
def test_only_what_time_does_not_mend_is_a_refusal(tmp_path: Path, error: str, count: int) -> None:
    child = _refusing(tmp_path, error)
    child.start()
    until(child.watch)
    assert child.refusals == count
    if count:
        assert child.refusal().message == "the child failed to start: what is wrong"
        assert str(child.log) in str(child.refusal().hint)
    child.end(by=time.monotonic())


def test_a_death_of_another_kind_begins_the_count_anew(tmp_path: Path) -> None:
    child = _child(tmp_path, "raise SystemExit(7)")
    child.refusals = 4
    child.start()
    until(child.watch)
    assert child.refusals == 0
    assert child.refusal().message == "the child failed to start"
    child.end(by=time.monotonic())


def test_a_service_whose_part_refuses_again_and_again_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As when the worker finds damage that no look at the start has found."""
    monkeypatch.delenv("TUNESMITH_DATABASE_URL", raising=False)
    monkeypatch.setattr(supervisor, "_REFUSALS", 2)
    command = [sys.executable, "-c", _REFUSES.format("DatabaseDamaged"), str(ROOT)]
    monkeypatch.setattr(supervisor._Service, "_make_workers", lambda self, _: [self._child("worker", command)])
    home = tmp_path / "home"
    assert supervisor.main("127.0.0.1", 0, home) == 3
    said = capsys.readouterr().err
    assert (home / "logs" / "worker.log").read_text().count("error[database_damaged]") == 2
    assert "error[database_damaged]: what is wrong\nhint: " in said
    assert not (home / "server.json").exists()


def test_a_host_with_a_gpu_has_a_worker_for_it_unless_the_settings_say_what_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_BROKER_URL", "redis://127.0.0.1:1")
    monkeypatch.delenv("TUNESMITH_TAKES", raising=False)
    gpu = Device(key="cuda/nvidia-h200/sm_90", name="NVIDIA H200", threads=2)
    monkeypatch.setattr(hardware, "accelerators", lambda: (gpu,))

    def workers() -> list[str]:
        with supervisor._listen("127.0.0.1", 0) as listener:
            return [worker.name for worker in supervisor._Service(tmp_path, listener)._workers]

    assert workers() == ["worker", "GPU-worker"]
    (tmp_path / "takes").write_text("cpu\n")
    monkeypatch.setenv("TUNESMITH_TAKES_FILE", str(tmp_path / "takes"))
    assert workers() == ["worker"]


def test_a_service_that_cannot_start_its_parts_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert supervisor.main("127.0.0.1", 0, tmp_path / "home") == 3
    said = capsys.readouterr().err
    assert "cannot start the broker: [Errno 11] Resource temporarily unavailable" in said


def test_a_child_that_does_not_listen_is_killed_with_its_own(tmp_path: Path) -> None:
    program = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "open('pid', 'w').write(str(grandchild.pid)); time.sleep(60)"
    )
    child = _child(tmp_path, program)
    child.start()
    grandchild = int(str(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())))
    child.ask_to_end()
    child.end(by=time.monotonic() + 0.3)
    until(lambda: orphans.start_time(grandchild) is None)


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


@pytest.mark.parametrize("left", ["", "\n"])
def test_an_empty_token_is_made_anew(tmp_path: Path, left: str) -> None:
    (tmp_path / "token").write_text(left)
    token = supervisor._token(tmp_path)
    assert len(token) > 30
    assert supervisor._token(tmp_path) == token


def test_a_home_is_closed_to_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o755)
    with supervisor._listen("127.0.0.1", 0) as taken:
        assert supervisor.main("127.0.0.1", taken.getsockname()[1], tmp_path) == 3
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "serve.lock").stat().st_mode & 0o777 == 0o600
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(("ignored", "stopped"), [(True, False), (False, True)], ids=["nohup", "in a terminal"])
def test_a_terminal_that_goes_ends_only_what_listens_to_it(ignored: bool, stopped: bool) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    stop = threading.Event()
    try:
        with supervisor._signals(stop):
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.wait(0.2) is stopped
        assert signal.getsignal(signal.SIGHUP) is (signal.SIG_IGN if ignored else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_news_for_a_terminal_that_is_gone_end_nothing() -> None:
    class Gone(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.EIO, "Input/output error")

    supervisor._say("news", Gone())


def test_an_address_of_every_interface_is_told_as_this_machine() -> None:
    with supervisor._listen("0.0.0.0", 0) as listener:  # noqa: S104 - that is the point
        assert supervisor._url(listener).startswith("http://127.0.0.1:")
