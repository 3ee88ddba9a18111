"""Rounds of tuning, of both engines that tune: what is measured, what is told, and what ends them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.records import TrialError
from domain.tuning_tasks import ENDLESS
from tests.contract.tuner.engine_processes import fork_servers
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.asking import MEASURE, Trials, tune
from tests.support.tuner.engines.fixtures import Twin, start, workload
from tests.support.tuner.engines.relax import networks
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

COUNT = 8
OWN = ["libmodel.so", "tunesmith.h"]
FILES = {"relay": ["mod.so", "mod.json", "mod.params", *OWN], "relax": ["mod.so", "mod.json", *OWN]}


@pytest.fixture(scope="module")
def convolution(twin: Twin) -> dict[str, Any]:
    """The params of a round for the first convolution."""
    return twin.workload(twin.tasks[0])


@pytest.fixture(scope="module")
def first_round(
    twin: Twin, convolution: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Trials]:
    return tune(twin.session, convolution, tmp_path_factory.mktemp("first") / "spool.jsonl", trials=COUNT)


def digests(trials: Trials) -> set[str]:
    return {trial["schedule_digest"] for trial in trials}


@pytest.mark.smoke
def test_a_round_measures_the_default_first(first_round: tuple[dict[str, Any], Trials]) -> None:
    answer, trials = first_round
    assert answer == {"trials": COUNT, "exhausted": False, "reason": "trials", "spent": answer["spent"]}
    assert [trial["default"] for trial in trials] == [True] + [False] * (COUNT - 1)
    assert [trial["trial_number"] for trial in trials] == list(range(COUNT))
    assert len(digests(trials)) == COUNT
    assert not trials[0]["error"]
    # On a busy machine a build may be given up that takes much longer than the others.
    assert {trial["error"] for trial in trials} <= {None, TrialError.BUILD_TIMEOUT.value}
    valid = [trial for trial in trials if not trial["error"]]
    assert len(valid) >= COUNT // 2
    assert all(trial["latencies"] and 0 < max(trial["latencies"]) < 1 for trial in valid)


@pytest.mark.smoke
def test_rounds_go_on_where_the_last_one_ended(
    twin: Twin, convolution: dict[str, Any], first_round: tuple[dict[str, Any], Trials], tmp_path: Path
) -> None:
    # More than one generation of MetaSchedule's; AutoTVM's space is smaller.
    count = {"relay": 2, "relax": 12}[twin.name]
    _, trials = tune(twin.session, convolution, tmp_path / "spool.jsonl", first_trial=COUNT, trials=count)
    assert [trial["trial_number"] for trial in trials] == list(range(COUNT, COUNT + count))
    assert not digests(first_round[1]) & digests(trials)


def test_seconds_end_a_round(twin: Twin, convolution: dict[str, Any], tmp_path: Path) -> None:
    answer, _ = tune(twin.session, convolution, tmp_path / "b", trials=500, options={"n_trial": 500}, seconds=0.01)
    assert (answer["exhausted"], answer["reason"]) == (False, "seconds")
    assert 0 < answer["trials"] < 50


def test_builds_that_take_too_long_are_data(twin: Twin, convolution: dict[str, Any], tmp_path: Path) -> None:
    measure = {**MEASURE, "timeout": 0.001}
    answer, trials = tune(twin.session, convolution, tmp_path / "j", trials=2, measure=measure, options={"n_trial": 40})
    assert answer["trials"] == 2
    assert [trial["error"] for trial in trials] == [TrialError.BUILD_TIMEOUT.value] * 2
    assert all(trial["latencies"] == [] for trial in trials)
    if twin.name == "relax":
        assert all(json.loads(trial["schedule"])[1][1] == [1e10] for trial in trials)
    # The processes that were killed are replaced.
    _, trials = tune(twin.session, convolution, tmp_path / "j", trials=2, options={"n_trial": 41})
    assert all(trial["error"] is None for trial in trials)


def test_a_fork_server_that_is_killed_costs_no_trial(
    twin: Twin, convolution: dict[str, Any], engine_logs: Path, tmp_path: Path
) -> None:
    """Neither while candidates are built nor while one is measured."""
    killed: list[int] = []

    def living() -> list[int]:
        return [pid for pid, forked in fork_servers(engine).items() if forked and pid not in killed]

    def disturb() -> None:
        for wait_seconds in (0.3, 1.0):
            with contextlib.suppress(OSError):
                while not (found := living()):
                    time.sleep(0.01)
                time.sleep(wait_seconds)
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])

    with start(twin.name, engine_logs / f"{twin.name}-killed.log") as engine:
        killer = threading.Thread(target=disturb, daemon=True)
        killer.start()
        _, trials = tune(engine, convolution, tmp_path / "j", trials=COUNT)
        killer.join(10)
    assert killed
    assert len(trials) == COUNT
    # On a busy machine a build may be given up that takes much longer than the others.
    assert {trial["error"] for trial in trials} <= {None, TrialError.BUILD_TIMEOUT.value}


def test_a_fresh_engine_measures_nothing_again(
    twin: Twin,
    convolution: dict[str, Any],
    first_round: tuple[dict[str, Any], Trials],
    engine_logs: Path,
    tmp_path: Path,
) -> None:
    """And counts those of the history."""
    lines = [trial["schedule"] for trial in first_round[1]]
    if twin.name == "relax":
        # One as TVM itself would have written it, one that failed, one of another workload, and no record at all.
        lines[1] = lines[1].replace("true", "1")
        failed = json.loads(lines[2])
        failed[1][1] = [1e10]
        lines[2] = json.dumps(failed)
        lines += [json.dumps(["1234", failed[1]]), "not a record"]
    asked = {"history": asking.write_lines(tmp_path / "history", lines), "first_trial": COUNT, "trials": 20}
    with start(twin.name, engine_logs / f"{twin.name}-resumed.log") as engine:
        answer, trials = tune(engine, convolution, tmp_path / "j", **asked, options={"n_trial": COUNT + 1})
    assert answer == {"trials": 1, "exhausted": True, "reason": "n_trial", "spent": answer["spent"]}
    assert not digests(first_round[1]) & digests(trials)
    assert not any(trial["default"] for trial in trials)


def test_early_stopping_ends_a_task(twin: Twin, convolution: dict[str, Any], tmp_path: Path) -> None:
    answer, trials = tune(twin.session, convolution, tmp_path / "j", trials=200, options={"early_stopping": 2})
    # The space of AutoTVM's has ten schedules.
    assert answer["reason"] in ("early_stopping", *(["space"] if twin.name == "relay" else []))
    assert answer["exhausted"]
    assert len(trials) < 200


def test_a_small_space_is_exhausted(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    prepared, _ = asking.prepare(reference, networks.matmul(rows=1, inner=2, columns=1), tmp_path)
    model = {**twin.place, "model": str(prepared), "out_dir": str(tmp_path)}
    [task, *_] = twin.session.request("extract", model, timeout=60)["tasks"]
    smallest = workload(model, task, tmp_path)
    answer, trials = tune(twin.session, smallest, tmp_path / "j", trials=300)
    assert (answer["exhausted"], answer["reason"], answer["trials"]) == (True, "space", len(trials))
    assert task["space_size"] in (len(trials), ENDLESS)
    assert 1 < len(trials) < 300
    again, more = tune(twin.session, smallest, tmp_path / "j", trials=10, first_trial=len(trials))
    assert (again["trials"], again["exhausted"], more) == (0, True, [])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("relay", {"workload_key": '["no_such.x86",[]]'}),
        ("relax", {"workload_key": "17"}),
        ("relax", {"task": None}),
        ("relax", {"task": "/nonexistent/none.json"}),
    ],
)
def test_an_unknown_workload_is_refused(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, wrong: dict[str, Any]
) -> None:
    asked: Twin = request.getfixturevalue(f"{name}_twin")
    params = {**asked.workload(asked.tasks[0]), "options": {"n_trial": 1}, **wrong}
    with pytest.raises(errors.EngineRequestFailed) as caught:
        tune(asked.session, params, tmp_path / "j")
    assert caught.value.engine_code == "unknown_workload"


def _other_lines(twin: Twin, trials: Trials) -> list[str]:
    """Records of one schedule that is not the default one, which compiles to something else, and of broken ones."""
    trials = [trial for trial in trials if not trial["error"]]
    if twin.name == "relay":
        return [next(trial["schedule"] for trial in trials if not trial["default"])]
    # A search's own schedules lay weights out anew.
    other = next(trial["schedule"] for trial in trials if "TransformLayout" in trial["schedule"])
    # Broken ones are passed over, and so are those of other workloads.
    broken = json.loads(other)
    broken[1][0][0][0][2] = ["no such block", "main"]
    broken[1][1] = [1e-12]
    return [json.dumps(broken), json.dumps(["1234", broken[1]]), other]


@pytest.mark.smoke
def test_records_change_the_compiled_module(
    twin: Twin,
    reference: EngineSession,
    first_round: tuple[dict[str, Any], Trials],
    inputs: list[Path],
    tmp_path: Path,
) -> None:
    lines = _other_lines(twin, first_round[1])
    tuned = tmp_path / "tuned"
    answer = asking.build(twin.session, twin.place, tuned, records=asking.write_lines(tmp_path / "records", lines))
    assert answer["files"] == FILES[twin.name]
    if twin.name == "relax":
        assert answer["records"] == lines[-1:]
    assert (tuned / "mod.so").read_bytes() != (twin.untuned / "mod.so").read_bytes()
    expected = asking.run(twin.session, twin.untuned, inputs[0], tmp_path / "untuned.npz")
    actual = asking.run(twin.session, tuned, inputs[0], tmp_path / "tuned.npz")
    [output] = asking.compare(reference, expected, actual)
    assert output["passed"]
