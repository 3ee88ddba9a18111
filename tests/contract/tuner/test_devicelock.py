from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from domain import errors
from domain.ports import Canceled
from tuner.host import devicelock
from tuner.host.catalogue import ROOT

pytestmark = pytest.mark.smoke

HOLDER = """
import sys, time
from pathlib import Path
from tuner.host import devicelock
with devicelock.hold("cpu", timeout=5, folder=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""

NAMER = """
import sys
from tuner.host import devicelock
sys.stdin.read(1)
print(devicelock.place())
"""


def test_a_device_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    busy = threading.Lock()
    rounds = []

    def measure() -> None:
        for _ in range(5):
            with devicelock.hold("cpu", timeout=30, folder=tmp_path):
                assert busy.acquire(blocking=False)
                time.sleep(0.002)
                busy.release()
                rounds.append(1)

    threads = [threading.Thread(target=measure) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rounds) == 15


def test_other_devices_are_free(tmp_path: Path) -> None:
    with devicelock.hold("cpu", timeout=0, folder=tmp_path), devicelock.hold("gpu/0", timeout=0, folder=tmp_path):
        pass


def test_a_held_device_is_busy_and_says_who_holds_it(tmp_path: Path) -> None:
    with devicelock.hold("cpu", timeout=0, folder=tmp_path):
        started = time.monotonic()
        with (
            pytest.raises(errors.DeviceBusy, match="cpu") as caught,
            devicelock.hold("cpu", timeout=0.2, folder=tmp_path),
        ):
            pass
        assert 0.2 <= time.monotonic() - started < 3
    assert caught.value.details == {"device": "cpu", "holder": f"pid {os.getpid()}"}


def test_waiting_can_be_canceled(tmp_path: Path) -> None:
    with (
        devicelock.hold("cpu", timeout=0, folder=tmp_path),
        pytest.raises(Canceled),
        devicelock.hold("cpu", timeout=None, folder=tmp_path, canceled=lambda: True),
    ):
        pass


def test_a_device_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(LookupError), devicelock.hold("cpu", timeout=0, folder=tmp_path):
        raise LookupError
    with devicelock.hold("cpu", timeout=0, folder=tmp_path):
        pass


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(errors.DeviceBusy), devicelock.hold("cpu", timeout=0, folder=tmp_path):
            pass
        holder.kill()
    with devicelock.hold("cpu", timeout=5, folder=tmp_path):
        pass


def test_a_setting_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_LOCK_FOLDER", str(tmp_path / "locks"))
    with devicelock.hold("cpu", timeout=0):
        (lock,) = (tmp_path / "locks").iterdir()
    assert lock.name.startswith("device-")
    assert (tmp_path / "locks").stat().st_mode & 0o777 == 0o700


def test_a_link_is_no_folder_to_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "locks").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.ConfigurationError), devicelock.hold("cpu", timeout=0, folder=tmp_path / "locks"):
        pass
    with pytest.raises(errors.ConfigurationError):
        place(monkeypatch, "here", tmp_path / "locks")


def place(monkeypatch: pytest.MonkeyPatch, hostname: str, folder: Path) -> str:
    monkeypatch.setattr(socket, "gethostname", lambda: hostname)
    monkeypatch.setenv("TUNESMITH_LOCK_FOLDER", str(folder))
    return devicelock.place()


def test_whoever_shares_the_folder_is_at_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As two containers with a volume in common, wherever each has it."""
    first = place(monkeypatch, "9f3c", tmp_path / "locks")
    assert place(monkeypatch, "b07a", tmp_path / "locks") == first
    (tmp_path / "locks").rename(tmp_path / "elsewhere")
    assert place(monkeypatch, "b07a", tmp_path / "elsewhere") == first


def test_hosts_of_one_name_are_two_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a folder of its own, which may even lie at the same path."""
    first = place(monkeypatch, "localhost", tmp_path / "locks")
    (tmp_path / "locks").rename(tmp_path / "another-host")
    assert place(monkeypatch, "localhost", tmp_path / "locks") != first


def test_all_who_name_a_place_at_once_agree(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TUNESMITH_LOCK_FOLDER": str(tmp_path / "locks")}
    command = [sys.executable, "-c", NAMER]
    namers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) for _ in range(3)
    ]
    for namer in namers:
        assert namer.stdin
        namer.stdin.write(b"\n")
        namer.stdin.flush()
    assert len({namer.communicate()[0] for namer in namers}) == 1
    assert [namer.returncode for namer in namers] == [0] * 3


def test_threads_that_name_a_place_at_once_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    barrier, found = threading.Barrier(8), []

    def name() -> None:
        barrier.wait()
        found.append(devicelock.place())

    for number in range(30):
        monkeypatch.setenv("TUNESMITH_LOCK_FOLDER", str(tmp_path / f"locks-{number}"))
        found.clear()
        threads = [threading.Thread(target=name) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(found), len(set(found))) == (8, 1)


@pytest.mark.parametrize("left", [b"", b"0123", b"\0" * 33], ids=["nothing", "a part", "zeros"])
def test_what_a_crash_left_of_a_name_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes) -> None:
    (tmp_path / "place").write_bytes(left)
    named = place(monkeypatch, "here", tmp_path)
    assert len(named) == 32
    assert place(monkeypatch, "here", tmp_path) == named
    assert (tmp_path / "place").read_text() == f"{named}\n"
