from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.records import TrialError
from tests.support.tuner.engines.fixtures import start
from tuner.session import EngineSession

pytestmark = pytest.mark.engine

MEASURE = {"number": 1, "repeat": 1, "min_repeat_ms": 1, "timeout": 20.0}

Trials = list[dict[str, Any]]


def _tune(engine: EngineSession, params: dict[str, Any], journal: Path, **more: Any) -> tuple[dict[str, Any], Trials]:
    trials: Trials = []

    def keep(kind: str, data: dict[str, Any]) -> None:
        if kind == "trial":
            # The engine may be further already; what it told is there.
            assert json.dumps(data, separators=(",", ":")) in journal.read_text().splitlines()
            trials.append(data)

    request = {
        "trials": 4,
        "measure": MEASURE,
        "options": {},
        "history": None,
        "journal": str(journal),
        "seconds": None,
        "first_trial": 0,
        **params,
        **more,
    }
    return engine.request("tune", request, timeout=120, on_event=keep), trials


@pytest.fixture(scope="module")
def convolution(place: dict[str, Any], tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """The params of a round for the first convolution."""
    return {**place, "workload_key": tasks[0]["workload_key"]}


@pytest.fixture(scope="module")
def first_round(
    relay: EngineSession, convolution: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Trials]:
    return _tune(relay, convolution, tmp_path_factory.mktemp("first") / "journal.jsonl", trials=6)


@pytest.mark.smoke
def test_tasks_are_extracted_with_weights(tasks: list[dict[str, Any]]) -> None:
    assert [task["position"] for task in tasks] == list(range(len(tasks)))
    described = {task["description"]: task for task in tasks}
    convolution = described["conv2d 1×3×16×16 ∗ 8×3×3×3"]
    assert convolution["name"] == "conv2d_NCHWc.x86"
    assert convolution["weight"] == 1
    assert convolution["flop"] == pytest.approx(2 * 16 * 16 * 8 * 27, rel=0.1)
    assert convolution["space_size"] == 10
    assert len({task["workload_key"] for task in tasks}) == len(tasks)


@pytest.mark.smoke
def test_a_round_measures_the_default_first(first_round: tuple[dict[str, Any], Trials]) -> None:
    answer, trials = first_round
    assert answer == {"trials": 6, "exhausted": False, "reason": "trials", "spent": answer["spent"]}
    assert [trial["default"] for trial in trials] == [True] + [False] * 5
    assert [trial["trial_number"] for trial in trials] == list(range(6))
    assert len({trial["schedule_digest"] for trial in trials}) == 6
    assert all(0 < latency < 1 for trial in trials for latency in trial["latencies"])


def _blocks(trial: dict[str, Any]) -> dict[str, Any]:
    knobs = {name: value for name, _, value in json.loads(trial["schedule"])["config"]["entity"]}
    return {name: knobs[name] for name in ("tile_ic", "tile_oc")}


def test_schedules_that_keep_the_layout_come_first(first_round: tuple[dict[str, Any], Trials]) -> None:
    _, trials = first_round
    assert all(trial["same_layout"] for trial in trials)
    assert all(_blocks(trial) == _blocks(trials[0]) for trial in trials)


def test_others_come_next_if_the_layout_is_free(
    relay: EngineSession, convolution: dict[str, Any], tmp_path: Path
) -> None:
    options = {"n_trial": 30, "keep_layout": False}
    _, trials = _tune(relay, convolution, tmp_path / "j", trials=30, options=options)
    kept = [trial["same_layout"] for trial in trials]
    assert kept == sorted(kept, reverse=True)
    assert not kept[-1]
    assert all(trial["same_layout"] == (_blocks(trial) == _blocks(trials[0])) for trial in trials)


@pytest.mark.smoke
def test_rounds_go_on_where_the_last_one_ended(
    relay: EngineSession, convolution: dict[str, Any], first_round: tuple[dict[str, Any], Trials], tmp_path: Path
) -> None:
    _, trials = _tune(relay, convolution, tmp_path / "journal.jsonl", first_trial=6)
    assert [trial["trial_number"] for trial in trials] == list(range(6, 10))
    before = {trial["schedule_digest"] for trial in first_round[1]}
    assert not before & {trial["schedule_digest"] for trial in trials}


def test_a_fresh_engine_measures_nothing_again(
    convolution: dict[str, Any], first_round: tuple[dict[str, Any], Trials], engine_logs: Path, tmp_path: Path
) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text("".join(trial["schedule"] + "\n" for trial in first_round[1]))
    with start("relay", engine_logs / "resumed.log") as engine:
        _, trials = _tune(engine, convolution, tmp_path / "j", history=str(history), first_trial=6, trials=4)
    assert len(trials) == 4
    assert not {trial["schedule_digest"] for trial in first_round[1]} & {trial["schedule_digest"] for trial in trials}
    assert not any(trial["default"] for trial in trials)


def test_a_workload_that_another_searched_since_begins_anew(
    convolution: dict[str, Any], first_round: tuple[dict[str, Any], Trials], engine_logs: Path, tmp_path: Path
) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text("".join(trial["schedule"] + "\n" for trial in first_round[1]))
    with start("relay", engine_logs / "helped.log") as engine:
        _tune(engine, convolution, tmp_path / "j", trials=2)
        more = {"history": str(history), "first_trial": 6, "trials": 4}
        _, trials = _tune(engine, convolution, tmp_path / "k", fresh=True, **more)
    assert len(trials) == 4
    assert not {trial["schedule_digest"] for trial in first_round[1]} & {trial["schedule_digest"] for trial in trials}


def test_a_space_is_exhausted(
    relay: EngineSession, place: dict[str, Any], tasks: list[dict[str, Any]], tmp_path: Path
) -> None:
    smallest = min(tasks, key=lambda task: int(task["space_size"]))
    round_ = {**place, "workload_key": smallest["workload_key"]}
    answer, trials = _tune(relay, round_, tmp_path / "j", trials=1000)
    assert answer == {"trials": smallest["space_size"], "exhausted": True, "reason": "space", "spent": answer["spent"]}
    again, more = _tune(relay, round_, tmp_path / "j", trials=1000, first_trial=len(trials))
    assert (again["trials"], again["exhausted"], more) == (0, True, [])


def test_n_trial_and_seconds_end_a_round(relay: EngineSession, convolution: dict[str, Any], tmp_path: Path) -> None:
    answer, _ = _tune(relay, convolution, tmp_path / "a", trials=50, options={"n_trial": 3})
    assert answer == {"trials": 3, "exhausted": True, "reason": "n_trial", "spent": answer["spent"]}
    answer, _ = _tune(relay, convolution, tmp_path / "b", trials=500, options={"n_trial": 500}, seconds=0.01)
    assert (answer["exhausted"], answer["reason"]) == (False, "seconds")
    assert 0 < answer["trials"] < 50


def test_early_stopping_ends_a_task(relay: EngineSession, convolution: dict[str, Any], tmp_path: Path) -> None:
    answer, trials = _tune(relay, convolution, tmp_path / "j", trials=200, options={"early_stopping": 4})
    assert answer["exhausted"]
    assert answer["reason"] in ("early_stopping", "space")
    assert len(trials) <= 80


@pytest.mark.parametrize("loss_type", ["rank", "rank-binary", "reg"])
def test_the_cost_model_learns_with_every_loss(
    relay: EngineSession, convolution: dict[str, Any], tmp_path: Path, loss_type: str
) -> None:
    options = {"loss_type": loss_type, "n_trial": 20, "keep_layout": False}
    answer, _ = _tune(relay, convolution, tmp_path / "j", trials=20, options=options)
    assert answer["trials"] == 20


def test_a_timeout_is_data(relay: EngineSession, convolution: dict[str, Any], tmp_path: Path) -> None:
    measure = {**MEASURE, "timeout": 0.001}
    answer, trials = _tune(relay, convolution, tmp_path / "j", trials=2, measure=measure, options={"n_trial": 40})
    assert answer["trials"] == 2
    assert {trial["error"] for trial in trials} == {TrialError.BUILD_TIMEOUT.value}
    assert all(trial["latencies"] == [] for trial in trials)
    # The processes that were killed are replaced.
    _, trials = _tune(relay, convolution, tmp_path / "j", trials=2, options={"n_trial": 41})
    assert all(trial["error"] is None for trial in trials)


@pytest.mark.parametrize("search", ["ga", "random", "gridsearch"])
def test_every_search_measures_rounds(
    relay: EngineSession, convolution: dict[str, Any], tmp_path: Path, search: str
) -> None:
    options = {"search": search, "keep_layout": False}
    _, trials = _tune(relay, convolution, tmp_path / "j", trials=5, options=options)
    _, more = _tune(relay, convolution, tmp_path / "j", trials=5, first_trial=5, options=options)
    assert [trial["default"] for trial in trials + more] == [True] + [False] * 9
    assert len({trial["schedule_digest"] for trial in trials + more}) == 10
    assert all(trial["error"] is None for trial in trials + more)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"feature_type": "knobs"}, "knob"),
        ({"search": "annealing"}, None),
        ({"loss_type": "rank_binary"}, "rank-binary"),
    ],
)
def test_an_unknown_option_is_refused(
    relay: EngineSession, convolution: dict[str, Any], tmp_path: Path, options: dict[str, str], hint: str | None
) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        _tune(relay, convolution, tmp_path / "j", options=options)
    assert caught.value.engine_code == "invalid_option"
    assert hint is None or (caught.value.hint and hint in caught.value.hint)


def test_an_unknown_workload_is_refused(relay: EngineSession, place: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        _tune(relay, {**place, "workload_key": '["no_such.x86",[]]'}, tmp_path / "j")
    assert caught.value.engine_code == "unknown_workload"


@pytest.mark.smoke
def test_records_change_the_compiled_module(
    relay: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    first_round: tuple[dict[str, Any], Trials],
    untuned: Path,
    inputs: list[Path],
    tmp_path: Path,
) -> None:
    # Any schedule but the default one compiles to something else.
    other = next(trial for trial in first_round[1] if not trial["default"] and trial["error"] is None)
    (tmp_path / "records.jsonl").write_text(other["schedule"] + "\n")
    tuned = tmp_path / "tuned"
    params = {**place, "records": str(tmp_path / "records.jsonl"), "out_dir": str(tuned)}
    assert relay.request("compile", params, timeout=120)["files"] == ["mod.so", "mod.json", "mod.params"]
    assert (tuned / "mod.so").read_bytes() != (untuned / "mod.so").read_bytes()
    outputs = []
    for bundle in (untuned, tuned):
        outputs.append(tmp_path / f"{bundle.name}.npz")
        run = {"bundle": str(bundle), "inputs": str(inputs[0]), "outputs": str(outputs[-1]), "threads": 1}
        relay.request("run", run, timeout=60)
    pair = {"expected": str(outputs[0]), "actual": str(outputs[1])}
    [output] = reference.request("compare", pair, timeout=60)["outputs"]
    assert output["passed"]


def _timed(trial: dict[str, Any], seconds: float) -> str:
    """The native line of the same trial with another latency."""
    line = json.loads(trial["schedule"])
    line["result"][:2] = [[seconds], 0]
    return json.dumps(line)


@pytest.fixture(scope="module")
def all_schedules(convolution: dict[str, Any], engine_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Trials:
    """A trial of every schedule of the first convolution, those of the untuned layout first."""
    journal = tmp_path_factory.mktemp("all") / "journal.jsonl"
    with start("relay", engine_logs / "relay-all.log") as engine:
        return _tune(engine, convolution, journal, trials=50, options={"keep_layout": False})[1]


@pytest.mark.parametrize(("seconds", "wins"), [(9.5e-6, False), (1e-6, True)])
def test_another_layout_must_pay_for_its_transforms(
    relay: EngineSession,
    place: dict[str, Any],
    untuned: Path,
    all_schedules: Trials,
    tmp_path: Path,
    seconds: float,
    wins: bool,
) -> None:
    other = next(trial for trial in all_schedules if not trial["same_layout"])
    lines = [_timed(other, seconds), _timed(all_schedules[0], 10e-6)]
    (tmp_path / "records.jsonl").write_text("".join(f"{line}\n" for line in lines))
    params = {**place, "records": str(tmp_path / "records.jsonl"), "out_dir": str(tmp_path / "tuned")}
    [chosen] = relay.request("compile", params, timeout=120)["records"]
    expected = other if wins else all_schedules[0]
    assert json.loads(chosen)["config"] == json.loads(expected["schedule"])["config"]
    assert json.loads(chosen)["result"][0] == [seconds if wins else 10e-6]
    # The default schedule, given as a record, builds what no record at all does.
    assert ((tmp_path / "tuned" / "mod.so").read_bytes() != (untuned / "mod.so").read_bytes()) == wins


def test_tophub_was_never_asked(
    untuned: Path, first_round: tuple[dict[str, Any], Trials], tasks: list[dict[str, Any]], engine_logs: Path
) -> None:
    logs = [path.read_text(errors="replace") for path in engine_logs.glob("relay*.log")]
    assert logs
    assert not any("Download attempt" in text or "tophub" in text.lower() for text in logs)
