"""Every kind of failure that a trial can have on this machine, produced by real engines and told as data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.jobs import Tuner
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import start, workload
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

QUICK = {"number": 1, "repeat": 1, "min_repeat_ms": 0, "timeout": 20.0, "n_parallel": 2}
LINKERS = ("ld", "ld.lld", "cc", "gcc", "g++", "c++", "clang", "clang++")
MISFIT = """
import json, sys
from tuner.engines.relax import candidates
candidates.set_up()
print(json.dumps(candidates.build(*sys.argv[1:4], 1, sys.argv[4])))
"""


@pytest.fixture(scope="module", params=["autotvm", "ansor", "metaschedule"])
def tuner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def unlinked(tuner: str, engine_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineSession]:
    """An engine on a machine whose linkers all fail."""
    folder = tmp_path_factory.mktemp("bin")
    for name in LINKERS:
        (folder / name).write_text("#!/bin/sh\necho cannot find -lc >&2\nexit 1\n")
        (folder / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        patch.delenv("CXX", raising=False)
        started = start(Tuner(tuner).engine, engine_logs / f"{tuner}-unlinked.log")
    with started as session:
        yield session


@pytest.fixture(scope="module")
def round_(
    tuner: str, unlinked: EngineSession, prepared: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The params of a round for the network's first task."""
    folder = tmp_path_factory.mktemp("round")
    target = f"llvm -mcpu={unlinked.hello['mcpu']}"
    place = {"model": str(prepared), "target": target, "threads": 1, "tuner": tuner, "options": {}}
    task = unlinked.request("extract", {**place, "out_dir": str(folder)}, timeout=200)["tasks"][0]
    return {**workload(place, task, folder), "spool": str(folder / "spool")}


def tune(engine: EngineSession, params: dict[str, Any], **more: Any) -> asking.Trials:
    return asking.tune(engine, params, Path(params["spool"]), **more)[1]


def test_what_cannot_be_linked_is_a_build_error(unlinked: EngineSession, round_: dict[str, Any]) -> None:
    trials = tune(unlinked, round_, trials=3, measure=QUICK)
    assert [(trial["error"], trial["latencies"]) for trial in trials] == [("build_error", [])] * 3
    assert all("cannot find -lc" in trial["error_message"] for trial in trials)


@pytest.mark.parametrize("tuner", ["autotvm", "metaschedule"], indirect=True)
def test_what_is_not_measured_in_time_is_told(
    request: pytest.FixtureRequest, tuner: str, round_: dict[str, Any]
) -> None:
    engine: EngineSession = request.getfixturevalue(Tuner(tuner).engine)
    measure = {**QUICK, "min_repeat_ms": 30_000, "timeout": 2.0}
    # A search of its own: others in this session begin anew.
    options = {"n_trial": 1200}
    (trial,) = tune(engine, round_, trials=1, measure=measure, options=options)
    assert (trial["error"], trial["latencies"]) == ("run_timeout", [])
    assert "2 s" in trial["error_message"]
    (fine,) = tune(engine, round_, trials=1, first_trial=1, measure=QUICK, options=options)
    assert fine["error"] is None, "the process that measures is there again"


@pytest.mark.parametrize("tuner", ["metaschedule"], indirect=True)
def test_a_trace_of_another_workload_is_an_invalid_schedule(round_: dict[str, Any], tmp_path: Path) -> None:
    line = json.loads(Path(round_["spool"]).read_text().splitlines()[-1])["schedule"]
    body = json.loads(line)
    trace = body[1][0]
    block = next(step for step in trace[0] if step[0] == "GetSBlock" or step[0] == "GetBlock")
    block[2][0] = "nowhere"
    arguments = (Path(round_["task"]).read_text(), json.dumps(body), round_["target"], tmp_path / "c.so")
    kind, message = asking.told_inside("relax", MISFIT, *arguments)
    assert kind == "invalid_schedule", message
