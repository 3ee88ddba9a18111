"""Tuning and running on real RPC servers of each engine's TVM, two of them, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from domain import errors
from tests.support.rpc.boards import Rack, rack
from tests.support.rpc.rounds import content, fresh, lose_one
from tests.support.tuner.engines.fixtures import Twin, interpreter

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def boards(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    with rack(interpreter(twin.name), tmp_path_factory.mktemp("boards"), 2) as made:
        yield made


def test_a_device_that_dies_costs_no_trial(twin: Twin, boards: Rack, tmp_path: Path) -> None:
    task = max(twin.tasks, key=lambda task: int(task["space_size"])) if twin.name == "relay" else twin.tasks[0]
    workload = {name: value for name, value in twin.workload(task).items() if name != "options"}
    dying, trials, lost = lose_one(twin.session, workload, boards, tmp_path / "j", trials=12)
    staying = boards.registered()
    assert {trial["device"] for trial in trials} <= {dying, *staying}
    # MetaSchedule proposes some that cannot be built.
    told = {trial["error"] for trial in trials}
    assert told == {None} if twin.name == "relay" else not told & {"device_lost", "run_timeout", "run_error"}
    assert len({trial["schedule_digest"] for trial in trials}) == 12
    assert [(event["device"], event["state"]) for event in lost] == [(dying, "lost")]
    assert "no longer at the tracker" in lost[0]["message"]
    # The others are free again for whoever comes next.
    assert {offer.device for offer in boards.take(2)} == staying


def test_what_runs_there_is_what_runs_here(twin: Twin, boards: Rack, inputs: list[Path], tmp_path: Path) -> None:
    params = {**twin.place, "bundle": str(twin.untuned), "inputs": str(inputs[0])}
    here = twin.session.request("run", {**params, "outputs": str(tmp_path / "here.npz")}, timeout=60)
    remotely = {**params, "runner": boards.runner()}
    there = twin.session.request("run", {**remotely, "outputs": str(tmp_path / "there.npz"), "repeat": 2}, timeout=60)
    assert there["outputs"] == here["outputs"]
    assert there["device"] in boards.registered()
    assert content(tmp_path / "there.npz") == content(tmp_path / "here.npz")
    timed = twin.session.request("time", {**remotely, "repeat": 3, "number": 2}, timeout=60)
    assert len(timed["samples"]) == 3
    assert all(0 < seconds < 1 for seconds in [*timed["samples"], *there["samples"]])


def test_a_board_of_another_kind_is_told(twin: Twin, boards: Rack) -> None:
    params = {**twin.place, "target": "llvm -mtriple=aarch64-linux-gnu", "bundle": str(twin.untuned), "repeat": 1}
    with pytest.raises(errors.EngineRequestFailed) as caught:
        twin.session.request("time", {**params, "runner": fresh(boards.runner())}, timeout=60)
    assert caught.value.engine_code == "no_device"
    assert "cannot load code for this target" in str(caught.value)
