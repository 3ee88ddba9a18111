"""AutoTVM on real RPC servers of TVM, two of them, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support.rpc.boards import KEY, Rack, rack
from tests.support.rpc.rounds import LASTING, MEASURE, fresh, tune
from tests.support.servers.processes import free_port
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.asking import Trials
from tests.support.tuner.engines.fixtures import interpreter, start
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    with rack(interpreter("relay"), tmp_path_factory.mktemp("boards"), 2) as made:
        yield made


@pytest.fixture(scope="module")
def convolution(place: dict[str, Any], tasks: list[dict[str, Any]]) -> dict[str, Any]:
    return {**place, "workload_key": max(tasks, key=lambda task: int(task["space_size"]))["workload_key"]}


def test_every_device_measures(relay: EngineSession, convolution: dict[str, Any], boards: Rack, tmp_path: Path) -> None:
    answer, trials, lost = tune(relay, convolution, tmp_path / "j", runner=boards.runner())
    assert answer["trials"] == 8
    assert {trial["device"] for trial in trials} == boards.registered()
    assert [trial["error"] for trial in trials] == [None] * 8
    assert all(0 < latency < 1 for trial in trials for latency in trial["latencies"])
    assert [trial["trial_number"] for trial in trials] == list(range(8))
    assert not lost
    # The devices are free again for whoever comes next.
    assert {offer.device for offer in boards.take(2)} == boards.registered()


def test_waiting_for_a_device_is_not_run_time(
    relay: EngineSession, convolution: dict[str, Any], boards: Rack, tmp_path: Path
) -> None:
    # Somebody else has them. TVM's servers take themselves back when nobody comes, after 6 to 8 s.
    held = boards.take(2, give_back=False)
    started = time.monotonic()
    measure = {**MEASURE, "timeout": 4.0}
    # Nor tuning time: the queue alone takes longer than the search may.
    asked = {"runner": boards.runner(), "measure": measure, "trials": 2, "seconds": 60.0}
    answer, trials, lost = tune(relay, convolution, tmp_path / "j", **asked)
    assert len({offer.device for offer in held}) == 2
    took = time.monotonic() - started
    assert took > 4
    assert 2 < answer["queue_seconds"] < took
    assert [trial["error"] for trial in trials] == [None, None]
    assert not lost


def test_inputs_that_do_not_fit_are_refused(
    relay: EngineSession,
    reference: EngineSession,
    boards: Rack,
    place: dict[str, Any],
    untuned: Path,
    tmp_path: Path,
) -> None:
    spec = {"name": "image", "dtype": "float32", "shape": [1, 3, 8, 8]}
    wrong = asking.make_inputs(reference, [spec], tmp_path)
    params = {**place, "bundle": str(untuned), "inputs": str(wrong), "runner": boards.runner()}
    assert asking.refusal(relay, "run", params).engine_code == "invalid_inputs"


def test_a_key_without_devices_is_told(
    relay: EngineSession, convolution: dict[str, Any], boards: Rack, tmp_path: Path
) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        tune(relay, convolution, tmp_path / "j", runner=boards.runner("raspberry"))
    assert caught.value.engine_code == "no_device"
    assert KEY in str(caught.value)


def test_a_tracker_that_is_not_there_is_told(relay: EngineSession, convolution: dict[str, Any], tmp_path: Path) -> None:
    runner = {"kind": "rpc", "tracker": f"127.0.0.1:{free_port()}", "key": KEY}
    with pytest.raises(errors.EngineRequestFailed) as caught:
        tune(relay, convolution, tmp_path / "j", runner=runner)
    assert caught.value.engine_code == "tracker_unreachable"


def test_a_slow_candidate_is_its_own_fault(
    relay: EngineSession, convolution: dict[str, Any], boards: Rack, tmp_path: Path
) -> None:
    measure = {**MEASURE, "repeat": 4, "min_repeat_ms": 2000, "timeout": 5.0}
    _, trials, lost = tune(relay, convolution, tmp_path / "j", runner=boards.runner(), measure=measure, trials=1)
    assert [trial["error"] for trial in trials] == ["run_timeout"]
    assert not lost
    # The session went on, and the device is as good as before.
    _, trials, _ = tune(relay, convolution, tmp_path / "j", runner=boards.runner(), trials=2)
    assert [trial["error"] for trial in trials] == [None] * 2


@pytest.fixture
def lonely(boards: Rack) -> str:
    """The only device of the key ``lonely``."""
    [only] = boards.start_servers(1, "lonely")
    return only


def test_one_device_may_be_of_another_kind_and_may_be_the_last(
    relay: EngineSession, convolution: dict[str, Any], boards: Rack, lonely: str, tmp_path: Path
) -> None:
    other = {**convolution, "target": "llvm -mtriple=aarch64-linux-gnu"}
    misfits: Trials = []
    with pytest.raises(errors.EngineRequestFailed) as caught:
        tune(relay, other, tmp_path / "j", misfits.append, runner=fresh(boards.runner("lonely")))
    assert [trial["error"] for trial in misfits] == ["wrong_device"]
    assert caught.value.engine_code == "no_device"
    assert caught.value.details["devices"][lonely] == "it cannot load code for this target"

    trials: Trials = []

    def kill(trial: dict[str, Any]) -> None:
        trials.append(trial)
        if len(trials) == 1:
            boards.end(lonely)

    with pytest.raises(errors.EngineRequestFailed) as caught:
        tune(relay, convolution, tmp_path / "j", kill, runner=boards.runner("lonely"), measure=LASTING)
    assert caught.value.engine_code == "device_lost"
    assert lonely in caught.value.details["devices"]
    assert [trial["error"] for trial in trials] == [None, "device_lost"]


def test_an_engine_that_is_killed_frees_its_devices(
    engine_logs: Path, convolution: dict[str, Any], boards: Rack, tmp_path: Path
) -> None:
    with start("relay", engine_logs / "relay-rpc-killed.log") as engine:

        def kill(_: dict[str, Any]) -> None:
            os.kill(engine._process.pid, signal.SIGKILL)

        with pytest.raises(errors.EngineCrashed):
            tune(engine, convolution, tmp_path / "j", kill, runner=boards.runner(), measure=LASTING)
    assert {offer.device for offer in boards.take(2, replace_fallen=True)} == boards.registered()


def test_a_server_whose_connection_is_reset_is_lost_to_its_tracker(boards: Rack) -> None:
    """TVM's own; why who kills an engine may have to start a board's server again."""
    [device] = boards.start_servers(1, "fragile")
    [offer] = boards.take(1, "fragile", give_back=False)
    with socket.create_connection((offer.host, offer.port)) as connection:
        key = f"client:{offer.match_key}".encode()
        connection.sendall(struct.pack("<ii", 0xFF271, len(key)) + key)
        # All of its answer, after which its session begins.
        (size,) = struct.unpack("<4xi", connection.recv(8, socket.MSG_WAITALL))
        assert connection.recv(size, socket.MSG_WAITALL) == b"server:fragile"
        # Closing resets.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    [other] = boards.take(1, "fragile", replace_fallen=True)
    assert other.device != device
