"""MetaSchedule on real RPC servers of TVM 0.27, two of them, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support.rpc.boards import Rack, rack
from tests.support.rpc.rounds import content, fresh, lose_one
from tests.support.tuner.engines.fixtures import home
from tuner import catalogue, environments
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    python = environments.interpreter(catalogue.get("relax"), home())
    with rack(python, tmp_path_factory.mktemp("boards"), 2) as made:
        yield made


@pytest.fixture(scope="module")
def workload(place: dict[str, Any], tasks: list[dict[str, Any]], definitions: Path) -> dict[str, Any]:
    """The params of a round for the first task."""
    [task, *_] = tasks
    named = {"workload_key": task["workload_key"], "task": str(definitions / task["definition"])}
    return {name: value for name, value in {**place, **named}.items() if name != "options"}


def test_a_device_that_dies_costs_no_trial(
    relax: EngineSession, workload: dict[str, Any], boards: Rack, tmp_path: Path
) -> None:
    dying, trials, lost = lose_one(relax, workload, boards, tmp_path / "j", trials=12)
    staying = boards.registered()
    assert {trial["device"] for trial in trials} <= {dying, *staying}
    assert not any(trial["error"] in ("device_lost", "run_timeout", "run_error") for trial in trials)
    assert len({trial["schedule_digest"] for trial in trials}) == 12
    assert [(event["device"], event["state"]) for event in lost] == [(dying, "lost")]
    # The others are free again for whoever comes next.
    assert {offer.device for offer in boards.take(2)} == staying


def test_what_runs_there_is_what_runs_here(
    relax: EngineSession, boards: Rack, place: dict[str, Any], untuned: Path, inputs: list[Path], tmp_path: Path
) -> None:
    params = {**place, "bundle": str(untuned), "inputs": str(inputs[0])}
    here = relax.request("run", {**params, "outputs": str(tmp_path / "here.npz")}, timeout=60)
    remotely = {**params, "runner": boards.runner()}
    there = relax.request("run", {**remotely, "outputs": str(tmp_path / "there.npz"), "repeat": 2}, timeout=60)
    assert there["outputs"] == here["outputs"]
    assert there["device"] in boards.registered()
    assert content(tmp_path / "there.npz") == content(tmp_path / "here.npz")
    timed = relax.request("time", {**remotely, "repeat": 3, "number": 2}, timeout=60)
    assert len(timed["samples"]) == 3
    assert all(0 < seconds < 1 for seconds in [*timed["samples"], *there["samples"]])


def test_a_board_of_another_kind_is_told(
    relax: EngineSession, boards: Rack, place: dict[str, Any], untuned: Path
) -> None:
    params = {**place, "target": "llvm -mtriple=aarch64-linux-gnu", "bundle": str(untuned), "repeat": 1}
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relax.request("time", {**params, "runner": fresh(boards.runner())}, timeout=60)
    assert caught.value.engine_code == "no_device"
    assert "cannot load what is built for this target" in str(caught.value)
