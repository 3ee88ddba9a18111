"""How a session starts and fails, with real processes."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from domain import errors
from tests.contract.tuner.engine_processes import await_end, open_descriptors, pid_of
from tests.support.tuner import sandboxed
from tests.support.tuner.fixtures import MISBEHAVING, Start
from tuner.engines.protocol import messages
from tuner.host import failures
from tuner.host.catalogue import ROOT
from tuner.host.session import Canceled, EngineSession, Limits

pytestmark = pytest.mark.smoke

# starting


def test_a_server_with_thousands_of_connections_starts_engines_too(start: Start) -> None:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most if most != resource.RLIM_INFINITY else 4096, most))
    with contextlib.ExitStack() as others:
        try:
            for _ in range(1100):
                others.enter_context(Path(os.devnull).open("rb"))
            with start() as engine:
                assert pid_of(engine)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize(
    ("manner", "message"),
    [("crash", "exit status 1"), ("foreign", "protocol 99"), ("rude", "instead of hello"), ("mute", "time limit")],
)
def test_a_bad_start_is_a_start_failure(
    start: Start, monkeypatch: pytest.MonkeyPatch, manner: str, message: str
) -> None:
    monkeypatch.setenv("TUNESMITH_TEST_START", manner)
    with pytest.raises(errors.EngineStartFailed, match=message):
        start(hello_timeout=1.0 if manner == "mute" else 20.0)


def test_a_start_failure_shows_what_the_engine_said(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_TEST_START", "crash")
    with pytest.raises(errors.EngineStartFailed) as caught:
        start()
    assert "cannot import tvm" in caught.value.details["log_tail"]
    assert caught.value.details["exit_code"] == 1


def test_a_missing_interpreter_is_a_start_failure(tmp_path: Path) -> None:
    before = open_descriptors()
    with pytest.raises(errors.EngineStartFailed, match="No such file"):
        EngineSession.start(MISBEHAVING, tmp_path / "python", log_path=tmp_path / "log", home=tmp_path)
    assert open_descriptors() == before
    assert not list((tmp_path / "run" / "engines").iterdir())


@pytest.mark.parametrize("spoiled", ["log", "home"])
def test_a_folder_that_cannot_be_made_is_a_start_failure(tmp_path: Path, spoiled: str) -> None:
    before = open_descriptors()
    (tmp_path / spoiled).write_text("no folder")
    log_path, home = tmp_path / "log" / "of" / "engine.log", tmp_path / "home"
    with pytest.raises(errors.EngineStartFailed, match="Not a directory"):
        EngineSession.start(MISBEHAVING, Path(sys.executable), log_path=log_path, home=home)
    assert open_descriptors() == before
    assert not list(home.glob("run/engines/*"))


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_descriptors_are_a_start_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    pipes = [os.pipe() for _ in range(count)]
    before = open_descriptors()

    def pipe() -> tuple[int, int]:
        if not pipes:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return pipes.pop()

    monkeypatch.setattr(os, "pipe", pipe)
    with pytest.raises(errors.EngineStartFailed, match="Too many open files"):
        EngineSession.start(MISBEHAVING, Path(sys.executable), log_path=tmp_path / "log", home=tmp_path)
    assert open_descriptors() == before - 2 * count
    assert not list((tmp_path / "run" / "engines").iterdir())


@pytest.mark.usefixtures("no_child_left")
def test_starting_can_be_canceled(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_TEST_START", "mute")
    began = time.monotonic()
    with pytest.raises(Canceled):
        start(canceled=lambda: time.monotonic() > began + 0.2)
    assert time.monotonic() - began < 5


# failing


def test_a_signal_is_named(engine: EngineSession) -> None:
    with pytest.raises(errors.EngineCrashed, match="SIGSEGV") as caught:
        engine.request("die", {"signal": int(signal.SIGSEGV)}, timeout=10)
    assert caught.value.details["signal"] == "SIGSEGV"


def test_an_exit_is_told_with_its_status_and_last_words(engine: EngineSession) -> None:
    with pytest.raises(errors.EngineCrashed, match="exit status 3") as caught:
        engine.request("exit", {"status": 3}, timeout=10)
    assert caught.value.details["exit_code"] == 3
    assert caught.value.details["log_tail"].strip() == "last words"


def test_the_log_tail_is_this_engines_own(start: Start, tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text("an earlier engine\n")
    with pytest.raises(errors.EngineCrashed) as caught:
        start().request("exit", {"status": 3}, timeout=10)
    assert caught.value.details["log_tail"].strip() == "last words"
    assert (tmp_path / "engine.log").read_text().startswith("an earlier engine\n")


def test_an_engine_killed_from_outside_is_a_crash(engine: EngineSession) -> None:
    pid = pid_of(engine)
    timer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(errors.EngineCrashed, match="SIGKILL"):
        engine.request("sleep", {"seconds": 30}, timeout=20)
    timer.join()


def test_an_engine_that_died_between_requests_is_a_crash(engine: EngineSession) -> None:
    os.kill(pid_of(engine), signal.SIGKILL)
    time.sleep(0.1)
    with pytest.raises(errors.EngineCrashed, match="SIGKILL"):
        engine.request("echo", {}, timeout=10)


def test_a_crash_is_seen_while_a_child_holds_the_descriptor_open(engine: EngineSession) -> None:
    engine.request("have_children", {}, timeout=10)
    with pytest.raises(errors.EngineCrashed, match="exit status 4"):
        engine.request("exit", {"status": 4}, timeout=10)


def test_silence_is_noticed_in_spite_of_a_generous_time_limit(start: Start) -> None:
    engine = start(silence_timeout=1.0)
    began = time.monotonic()
    with pytest.raises(errors.EngineSilent, match="no heartbeat for 1 s"):
        engine.request("freeze", {}, timeout=60)
    assert time.monotonic() - began < 6
    assert not engine.alive


def test_heartbeats_are_a_sign_of_life(start: Start) -> None:
    engine = start(silence_timeout=1.5)
    assert engine.request("sleep", {"seconds": 3.0}, timeout=60) == {"slept": 3.0}


def test_a_host_that_was_busy_itself_does_not_call_the_engine_silent(start: Start) -> None:
    engine = start(silence_timeout=1.0)
    seen = []

    def listen(kind: str, data: object) -> None:
        seen.append(kind)
        time.sleep(1.2)

    assert engine.request("count", {"events": 2}, timeout=20, on_event=listen) == {"events": 2}
    assert seen == ["progress", "progress"]


def test_an_engine_whose_status_somebody_else_took_is_still_noticed(engine: EngineSession) -> None:
    pid = pid_of(engine)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with pytest.raises(errors.EngineCrashed):
        engine.request("echo", {}, timeout=10)


def test_time_between_requests_is_not_silence(start: Start) -> None:
    engine = start(silence_timeout=1.0)
    time.sleep(1.3)
    assert pid_of(engine)


@pytest.mark.parametrize(
    "text",
    [
        "this is no JSON\n",
        "[1]\n",
        "\n",
        "\x00\x00\n",
        '{"event": 5}\n',
        '{"event":"progress","id":"one"}\n',
        '{"event":"result","id":1,"data":[]}\n',
        "[" * 100_000 + "\n",
        '{"event":"result","id":77,"data":{}}\n',
        '{"event":"hello","data":{}}\n',
    ],
    ids=["text", "list", "empty", "zeros", "kind", "id", "data", "deep", "other request", "second hello"],
)
def test_garbage_is_told(engine: EngineSession, text: str) -> None:
    with pytest.raises(errors.EngineGarbled):
        engine.request("write", {"text": text}, timeout=10)
    assert not engine.alive


def test_a_line_without_end_is_cut_off(engine: EngineSession) -> None:
    with pytest.raises(errors.EngineGarbled, match="line of more than"):
        engine.request("write", {"text": "x" * 1024, "times": messages.MAX_LINE_BYTES // 1024 + 300}, timeout=20)


def test_the_longest_line_still_fits(engine: EngineSession) -> None:
    text = "x" * (messages.MAX_LINE_BYTES - 1000)
    assert engine.request("echo", {"text": text}, timeout=20)["echo"] == {"text": text}


def test_a_request_too_long_for_a_line_is_not_sent(engine: EngineSession) -> None:
    with pytest.raises(messages.MalformedMessage):
        engine.request("echo", {"text": "x" * messages.MAX_LINE_BYTES}, timeout=20)
    assert pid_of(engine)


def test_an_engine_that_hangs_up_and_lives_on_is_ended(engine: EngineSession) -> None:
    pid = pid_of(engine)
    with pytest.raises(errors.EngineGarbled, match="closed its event descriptor"):
        engine.request("hang_up", {}, timeout=20)
    await_end([pid])


def test_a_long_request_to_an_engine_that_does_not_read_ends_in_time(start: Start) -> None:
    engine = start(silence_timeout=1.0)
    os.kill(pid_of(engine), signal.SIGSTOP)
    with pytest.raises(errors.EngineSilent):
        engine.request("echo", {"text": "x" * 2_000_000}, timeout=30)


def test_a_bug_in_the_engine_is_told_with_its_traceback(engine: EngineSession) -> None:
    with pytest.raises(errors.EngineRequestFailed, match="ZeroDivisionError: a bug") as caught:
        engine.request("fail", {}, timeout=10)
    assert caught.value.engine_code == "engine_internal_error"
    assert "in _fail" in caught.value.details["traceback"]
    assert engine.alive


# what the engine sees


def test_what_an_engine_prints_is_log_and_never_an_event(engine: EngineSession, tmp_path: Path) -> None:
    assert engine.request("chat", {}, timeout=10) == {"written": True}
    assert '"event":"result"' in (tmp_path / "engine.log").read_text()


def test_an_engine_gets_our_packages_and_of_our_environment_what_it_needs(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_ENGINE_ENVIRONMENT", "THREADS")
    monkeypatch.setenv("THREADS", "7")
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")
    monkeypatch.setenv("TUNESMITH_TOKEN", "secret")
    engine = start()
    answer = engine.request("echo", {}, timeout=10)
    assert answer["threads"] == "7"
    assert answer["cwd"] == str(ROOT)
    assert b"secret" not in Path(f"/proc/{pid_of(engine)}/environ").read_bytes()


def test_an_engine_has_a_temporary_folder_of_its_own_which_goes_with_it(start: Start) -> None:
    engine = start()
    variables = Path(f"/proc/{pid_of(engine)}/environ").read_text().split("\0")
    (folder,) = [Path(text.partition("=")[2]) for text in variables if text.startswith("TMPDIR=")]
    assert f"TEST_DATA_ROOT_PATH={folder}" in variables, "TVM would make ~/.tvm_test_data"
    (folder / "left behind").touch()
    engine.close()
    assert not folder.exists()


def test_an_engine_without_limits_is_caged_all_the_same(engine: EngineSession) -> None:
    status = Path(f"/proc/{pid_of(engine)}/status").read_text().split()
    assert status[status.index("NoNewPrivs:") + 1] == "1"
    assert status[status.index("CapEff:") + 1].lstrip("0") in ("", "2")


@pytest.mark.parametrize("way", [[], [sandboxed.NO_NAMESPACES]], ids=["as this host sandboxes", "without namespaces"])
def test_an_engine_writes_its_own_folders_only(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: list[str]
) -> None:
    sandboxed.weaken(monkeypatch, way)
    if not sandboxed.strength()["writes"]:
        pytest.skip("this kernel protects no files")
    home, granted = tmp_path / "home", tmp_path / "granted"
    for folder in ("work/mine", "work/theirs", "blobs/ab", "engines/relay", "logs"):
        (home / folder).mkdir(parents=True)
        (home / folder / "file").write_text("content")
    granted.mkdir()
    monkeypatch.setenv("TUNESMITH_ENGINE_WRITABLE", f"{granted}, /nonexistent")
    mine = home / "work" / "mine"
    engine = start(home=home, limits=Limits(shown=(str(mine),), writable=(str(mine),)))
    walked = engine.request("walk", {"roots": [str(home), str(ROOT / "tuner"), str(tmp_path)]}, timeout=60)
    variables = Path(f"/proc/{pid_of(engine)}/environ").read_text().split("\0")
    (temporary,) = [text.partition("=")[2] for text in variables if text.startswith("TMPDIR=")]
    own = [str(mine), str(granted)]
    assert {attempt.partition(" ")[2] for attempt in walked["changed"]} == {*own, f"{mine}/file"}
    assert engine.request("walk", {"roots": [temporary]}, timeout=60)["changed"]


def test_standard_input_is_not_the_request_pipe(engine: EngineSession) -> None:
    assert engine.request("read_standard_input", {}, timeout=10) == {"text": ""}


def test_limits_hold_for_the_engine(start: Start) -> None:
    engine = start(limits=Limits(memory_bytes=2**30, cpu_seconds=1, file_bytes=1000))
    soft = Path(f"/proc/{pid_of(engine)}/limits").read_text()
    rows = {line[:25].strip(): line[25:].split() for line in soft.splitlines()}
    assert rows["Max address space"][:2] == ["1073741824", "1073741824"]
    assert rows["Max file size"][:2] == ["1000", "1000"]
    assert rows["Max cpu time"][:2] == ["1", "1"]
    assert rows["Max core file size"][:2] == ["0", "0"]


def test_a_request_beyond_the_memory_limit_fails_with_its_own_code(start: Start) -> None:
    engine = start(limits=Limits(data_bytes=2**30))
    engine.limit_memory(2**27)
    with pytest.raises(errors.EngineRequestFailed) as caught:
        engine.request("allocate", {"bytes": 2**28}, timeout=10)
    assert failures.needs_memory(caught.value)
    engine.limit_memory(2**40)
    assert engine.request("allocate", {"bytes": 2**28}, timeout=10) == {"allocated": 2**28}
    with pytest.raises(errors.EngineRequestFailed):
        engine.request("allocate", {"bytes": 2**30}, timeout=10)
