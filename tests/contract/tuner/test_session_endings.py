"""What is left of a session when it ends, or the host that had it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from domain import errors
from tests.contract.tuner.engine_processes import await_end, open_descriptors, pid_of
from tests.support.tuner.fixtures import Start
from tuner.host import orphans
from tuner.host.catalogue import ROOT
from tuner.host.session import EngineSession, sweep


@pytest.mark.parametrize("how", ["close", "kill"])
def test_everything_an_engine_started_ends_with_it(engine: EngineSession, how: str) -> None:
    answer = engine.request("have_children", {}, timeout=10)
    pids = [answer["engine"], *answer["pids"]]
    assert all(orphans.start_time(pid) for pid in pids)
    getattr(engine, how)()
    await_end(pids)


@pytest.mark.usefixtures("no_child_left")
def test_sessions_leave_no_descriptors_children_or_notes(start: Start, tmp_path: Path) -> None:
    start(home=tmp_path).close()
    before = open_descriptors()
    for method, params in (("echo", {}), ("exit", {"status": 1}), ("write", {"text": "garbage\n"})):
        session = start(home=tmp_path)
        with contextlib.suppress(errors.EngineError):
            session.request(method, params, timeout=10)
        session.close()
    assert open_descriptors() == before
    assert not list((tmp_path / "run" / "engines").iterdir())


def test_an_engine_outlives_the_thread_that_started_it(start: Start) -> None:
    sessions: list[EngineSession] = []
    thread = threading.Thread(target=lambda: sessions.append(start()))
    thread.start()
    thread.join()
    time.sleep(0.3)
    assert pid_of(sessions[0])


HOST = """
import sys, time
from pathlib import Path
from tests.support.tuner.fixtures import MISBEHAVING
from tuner.host.session import EngineSession
home = Path(sys.argv[1])
session = EngineSession.start(MISBEHAVING, Path(sys.executable), log_path=home / "log", home=home)
answer = session.request("have_children", {}, timeout=10)
print(answer["engine"], *answer["pids"], flush=True)
if sys.argv[2] == "busy":
    session.request("sleep", {"seconds": 600}, timeout=None)
time.sleep(600)
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_a_killed_host_takes_its_engine_along(tmp_path: Path, state: str) -> None:
    engine, of_group, deaf, escaped = killed_host(tmp_path, state)
    await_end([engine, of_group, deaf])
    # The one that left its group is for the next start to find. A process whose threads still end counts as gone
    # already, and may be found with it.
    assert orphans.start_time(escaped)
    assert escaped in sweep(tmp_path)
    await_end([escaped])
    assert sweep(tmp_path) == []
    assert not list((tmp_path / "run" / "engines").iterdir())


def killed_host(home: Path, state: str) -> list[int]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOST, str(home), state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as host:
        assert host.stdout
        pids = [int(pid) for pid in host.stdout.readline().split()]
        time.sleep(0.2)
        host.kill()
    return pids


def test_temporary_folders_go_with_their_session_or_the_next_sweep(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    session = start(home=tmp_path)
    (folder,) = temporary.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "made").touch()
    session.close()
    assert not folder.exists()
    monkeypatch.setenv("TMPDIR", str(temporary))
    killed_host(tmp_path, "idle")
    (folder,) = temporary.iterdir()
    (folder / "made").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sweep(tmp_path)
    assert not list(temporary.iterdir())


def test_a_forged_note_names_no_other_folder_or_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no mount namespace, an engine may write it."""
    mine = tmp_path / "mine"
    mine.mkdir()
    notes = tmp_path / "run" / "engines"
    notes.mkdir(parents=True)
    monkeypatch.setenv("OF_OTHERS", "1")
    owner = {"pid": 1, "start_time": -1}
    (tmp_path / "tunesmith-engine-").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for number, mark in enumerate(("OF_OTHERS=1", f"{orphans.VARIABLE}={'0' * 32}", f"{orphans.VARIABLE}=/../mine")):
        forged = {"mark": mark, "owner": owner, "folder": str(mine)}
        (notes / f"relay-{number}.json").write_text(json.dumps(forged))
    with subprocess.Popen(["sleep", "60"]) as other:
        assert sweep(tmp_path) == []
        assert other.poll() is None
        other.kill()
    assert mine.exists()
    assert not list(notes.iterdir())


def test_a_note_of_an_older_release_protects_its_session(start: Start, tmp_path: Path) -> None:
    engine = start(home=tmp_path)
    (note,) = (tmp_path / "run" / "engines").glob("*.json")
    entry = json.loads(note.read_text())
    del entry["folder"]
    note.write_text(json.dumps(entry))
    assert sweep(tmp_path) == []
    assert pid_of(engine)


@pytest.mark.parametrize("where", ["host", "container"])
def test_a_session_of_another_host_or_container_is_left_alone(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """They may share the home, and the temporary folder too; their processes are not seen from here."""
    with monkeypatch.context() as elsewhere:
        if where == "host":
            elsewhere.setattr(socket, "gethostname", lambda: "another")
        else:
            elsewhere.setattr(orphans, "namespace", lambda: "1")
        engine = start(home=tmp_path)
    (note,) = (tmp_path / "run" / "engines").glob("*.json")
    entry = json.loads(note.read_text())
    entry["owner"]["start_time"] -= 1
    note.write_text(json.dumps(entry))
    assert sweep(tmp_path) == []
    assert pid_of(engine)
    assert Path(entry["folder"]).is_dir()


def test_sweeping_spares_living_sessions(start: Start, tmp_path: Path) -> None:
    engine = start(home=tmp_path)
    assert sweep(tmp_path) == []
    assert pid_of(engine)
    assert len(list((tmp_path / "run" / "engines").iterdir())) == 1


def test_a_reused_pid_of_a_dead_host_does_not_protect_a_stray(start: Start, tmp_path: Path) -> None:
    engine = start(home=tmp_path)
    pid = pid_of(engine)
    (note,) = (tmp_path / "run" / "engines").glob("*.json")
    entry = json.loads(note.read_text())
    entry["owner"]["start_time"] -= 1
    note.write_text(json.dumps(entry))
    assert pid in sweep(tmp_path)


def test_a_damaged_note_still_names_its_session(start: Start, tmp_path: Path) -> None:
    engine = start(home=tmp_path)
    pid = pid_of(engine)
    (note,) = (tmp_path / "run" / "engines").glob("*.json")
    note.write_text("{")
    assert pid in sweep(tmp_path)
    assert not note.exists()


def test_sweeping_a_home_without_engines_does_nothing(tmp_path: Path) -> None:
    assert sweep(tmp_path) == []
