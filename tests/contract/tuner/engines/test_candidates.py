"""Imported schedules: those of the search space are measured early, others cost no trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domain.jobs import Tuner
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import workload
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


def _wrong_autotvm(row: Any) -> Any:
    """A tile that no size of the workload has."""
    for knob in row["config"]["entity"]:
        if knob[1] == "sp":
            knob[2] = [-1, 12345]
    return row


def _wrong_ansor(row: Any) -> Any:
    """Steps for a stage that does not exist."""
    row["i"][1][1] = [["SP", 977, 0, 64, [4], 1], *row["i"][1][1]]
    return row


def _wrong_metaschedule(row: Any) -> Any:
    """A trace whose first result is missing."""
    row[1][0][0] = row[1][0][0][1:]
    return row


def _claim_autotvm(row: Any) -> Any:
    row["result"][0] = [1e-12]
    # The index is claimed, too: the knobs decide.
    row["config"]["index"] = 10**9
    return row


def _claim_ansor(row: Any) -> Any:
    row["r"][0] = [1e-12]
    return row


def _claim_metaschedule(row: Any) -> Any:
    row[1][1] = [1e-12]
    return row


EDITS = {
    "autotvm": (_wrong_autotvm, _claim_autotvm),
    "ansor": (_wrong_ansor, _claim_ansor),
    "metaschedule": (_wrong_metaschedule, _claim_metaschedule),
}


@pytest.mark.parametrize("tuner", EDITS)
def test_a_schedule_of_the_space_is_measured_and_nonsense_is_not(
    tuner: str, request: pytest.FixtureRequest, prepared: Path, tmp_path: Path
) -> None:
    engine: EngineSession = request.getfixturevalue(Tuner(tuner).engine)
    place = {
        "model": str(prepared),
        "target": f"llvm -mcpu={engine.hello['mcpu']}",
        "threads": 1,
        "tuner": tuner,
        "options": {"n_trial": 1300},  # a search of its own: others of this session begin anew
    }
    task = engine.request("extract", {**place, "out_dir": str(tmp_path)}, timeout=200)["tasks"][0]
    params = workload(place, task, tmp_path)
    _, found = asking.tune(engine, params, tmp_path / "a", trials=4, fresh=True)
    good = next(trial for trial in reversed(found) if not trial["error"] and not trial["default"])
    wrong, claim = EDITS[tuner]
    offered = [
        {"id": 1, "schedule": json.dumps(wrong(claim(json.loads(good["schedule"]))))},
        {"id": 2, "schedule": json.dumps(claim(json.loads(good["schedule"])))},
        {"id": 3, "schedule": "{}"},
    ]
    (tmp_path / "candidates").write_text("".join(json.dumps(each) + "\n" for each in offered))
    told: list[dict[str, Any]] = []

    def hear(kind: str, data: dict[str, Any]) -> None:
        if kind == "candidate":
            told.append(data)

    asked = {"candidates": str(tmp_path / "candidates"), "adopted": 2}
    _, trials = asking.tune(engine, params, tmp_path / "b", trials=3, fresh=True, on_event=hear, **asked)
    verdicts = {each["id"]: each["status"] for each in told}
    assert verdicts == {1: "rejected", 2: "accepted", 3: "rejected"}, told
    assert len(trials) == 3, "what is rejected costs no trial"
    (measured,) = [trial for trial in trials if trial.get("candidate") is not None]
    assert (measured["candidate"], measured["schedule_digest"]) == (2, good["schedule_digest"])
    assert trials.index(measured) <= 1
    assert measured["error"] is None
    assert min(measured["latencies"]) > 1e-9, "measured, not claimed"
    assert len({trial["schedule_digest"] for trial in trials}) == 3
    told.clear()
    asking.tune(engine, params, tmp_path / "c", trials=2, first_trial=3, on_event=hear, **asked)
    assert {each["id"]: each["status"] for each in told} == {1: "rejected", 2: "known", 3: "rejected"}
