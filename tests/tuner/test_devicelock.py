from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from domain import errors
from domain.ports import Canceled
from tuner import devicelock
from tuner.catalogue import ROOT

HOLDER = """
import sys, time
from pathlib import Path
from tuner import devicelock
with devicelock.hold("cpu", timeout=5, folder=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
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


def test_a_link_is_no_folder_to_trust(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "locks").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.ConfigurationError), devicelock.hold("cpu", timeout=0, folder=tmp_path / "locks"):
        pass
