from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path

import pytest

from tests.support.rpc.scripted_sessions import GOOD, OTHER_RELEASE, WRONG_ANSWER, WRONG_DEVICE
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import processes
from tuner.engines.runtime.rpc_pool import Call, CallResult, SessionPool
from tuner.engines.runtime.trials import Runner
from tuner.host.catalogue import ROOT

_REQUEST = 4


class ScriptedTracker:
    """Offers its devices in turn, whoever has them already."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.gone: Path | None = None
        """File with the ports of devices that left."""
        self._turn = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.runner = Runner(tracker=f"127.0.0.1:{self._server.getsockname()[1]}", key="board", session_timeout=5.0)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client:
                client.sendall(client.recv(4))
                code = json.loads(client.recv(1000)[4:] or b"[0]")[0]
                encoded = json.dumps(self._offer() if code == _REQUEST else self._summary()).encode()
                client.sendall(struct.pack("<i", len(encoded)) + encoded)

    def _present(self) -> list[int]:
        gone = self.gone.read_text().split() if self.gone and self.gone.exists() else []
        return [port for port in self.ports if str(port) not in gone]

    def _offer(self) -> list[object]:
        self._turn += 1
        ports = self._present() or self.ports
        return [0, ["127.0.0.1", ports[self._turn % len(ports)], "board:0.1"]]

    def _summary(self) -> list[object]:
        servers = [{"key": "server:board", "addr": ["127.0.0.1", port]} for port in self._present()]
        return [0, {"queue_info": {}, "server_info": servers}]


@pytest.fixture
def tracker() -> Iterator[ScriptedTracker]:
    made = ScriptedTracker()
    yield made
    made.close()


def _work(
    tracker: ScriptedTracker,
    ports: list[int],
    calls: list[str],
    folder: Path,
    avoid: frozenset[str] = frozenset(),
    slots: int = 4,
) -> tuple[list[CallResult], list[str]]:
    """What became of the calls, in their order, and the devices that were lost."""
    tracker.ports, tracker.gone = ports, folder / "gone"
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    pool = SessionPool(
        tracker.runner, lambda: processes.Child("tests.support.rpc.scripted_sessions", path), most_slots=slots
    )
    pool.avoid = avoid
    lost: list[str] = []
    pool.on_device = lambda event: lost.append(event["device"])
    answers: list[CallResult] = []
    try:
        pool.look()
        pool.make_probe("llvm", 1, folder / "probe")
        for position, what in enumerate(calls):
            pool.submit(Call(position=position, function="do", arguments=(what, str(tracker.gone)), timeout=1.5))
        ends = time.monotonic() + 60
        while len(answers) < len(calls):
            assert time.monotonic() < ends
            answers += pool.advance()
            connection.wait(pool.waits_for, min(0.2, pool.wait_seconds))
        pool.release()
    finally:
        pool.close()
    return sorted(answers, key=lambda answer: answer.call.position), lost


def test_calls_are_spread(tracker: ScriptedTracker, tmp_path: Path) -> None:
    answers, lost = _work(tracker, [10 + GOOD, 20 + GOOD], ["a", "b", "c", "d"], tmp_path)
    assert [(answer.error, answer.value) for answer in answers] == [(None, each) for each in "abcd"]
    assert lost == []


@pytest.mark.parametrize("bad", [WRONG_ANSWER, WRONG_DEVICE, OTHER_RELEASE])
def test_a_device_that_cannot_be_trusted_measures_nothing(tracker: ScriptedTracker, tmp_path: Path, bad: int) -> None:
    answers, lost = _work(tracker, [10 + GOOD, 20 + bad], ["nap"] * 8, tmp_path)
    assert {answer.device for answer in answers} == {f"127.0.0.1:{10 + GOOD}"}
    assert [answer.error for answer in answers] == [None] * 8
    assert lost == [f"127.0.0.1:{20 + bad}"]


def test_what_takes_two_sessions_along_is_at_fault(tracker: ScriptedTracker, tmp_path: Path) -> None:
    answers, lost = _work(tracker, [10 + GOOD, 20 + GOOD], ["a", "crash", "b"], tmp_path)
    assert [answer.error for answer in answers] == [None, "run_error", None]
    assert "the session ended while it ran" in answers[1].value
    # They are on the tracker's list still, and pass the probe.
    assert lost == []


def test_a_device_that_never_ran_a_call_does_not_count_against_it(tracker: ScriptedTracker, tmp_path: Path) -> None:
    answers, lost = _work(tracker, [10 + GOOD, 20 + OTHER_RELEASE], ["crash once"], tmp_path)
    assert [(answer.error, answer.value) for answer in answers] == [(None, "crash once")]
    assert lost == [f"127.0.0.1:{20 + OTHER_RELEASE}"]


def test_what_hangs_two_devices_is_not_tried_on_a_third(tracker: ScriptedTracker, tmp_path: Path) -> None:
    answers, lost = _work(tracker, [10 + GOOD, 20 + GOOD, 30 + GOOD], ["vanish"], tmp_path, slots=1)
    assert [answer.error for answer in answers] == ["run_error"]
    assert " and on ".join(lost) in answers[0].value
    assert len(lost) == 2


def test_what_is_too_slow_or_raises_is_at_fault(tracker: ScriptedTracker, tmp_path: Path) -> None:
    answers, lost = _work(tracker, [10 + GOOD], ["sleep", "raise", "a"], tmp_path)
    assert [answer.error for answer in answers] == ["run_timeout", "run_error", None]
    assert lost == []


@pytest.mark.parametrize(
    ("bad", "code"), [(WRONG_ANSWER, "device_lost"), (WRONG_DEVICE, "no_device"), (OTHER_RELEASE, "no_device")]
)
def test_no_device_is_left(tracker: ScriptedTracker, tmp_path: Path, bad: int, code: str) -> None:
    with pytest.raises(EngineFailure) as caught:
        _work(tracker, [10 + bad], ["a", "b"], tmp_path)
    assert caught.value.code == code


def test_there_is_no_device(tracker: ScriptedTracker, tmp_path: Path) -> None:
    with pytest.raises(EngineFailure) as caught:
        _work(tracker, [], ["a"], tmp_path)
    assert caught.value.code == "no_device"


def test_a_device_in_quarantine_is_asked_when_there_is_no_other(tracker: ScriptedTracker, tmp_path: Path) -> None:
    first, second = 10 + GOOD, 20 + GOOD
    avoid = frozenset({f"127.0.0.1:{second}"})
    answers, lost = _work(tracker, [first, second], ["nap"] * 6, tmp_path, avoid)
    assert ({answer.device for answer in answers}, lost) == ({f"127.0.0.1:{first}"}, [])
    answers, lost = _work(tracker, [second], ["a", "b"], tmp_path, avoid)
    assert ({answer.device for answer in answers}, lost) == ({f"127.0.0.1:{second}"}, [])
