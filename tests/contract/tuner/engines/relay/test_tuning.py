from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.asking import Trials, tune
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def convolution(place: dict[str, Any], tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """The params of a round for the first convolution."""
    return {**place, "workload_key": tasks[0]["workload_key"]}


@pytest.fixture(scope="module")
def first_round(
    relay: EngineSession, convolution: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Trials]:
    # A search of its own: other tests of this session begin anew.
    options = {"n_trial": 900}
    return tune(relay, convolution, tmp_path_factory.mktemp("first") / "spool.jsonl", trials=6, options=options)


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
    _, trials = tune(relay, convolution, tmp_path / "j", trials=30, options=options)
    kept = [trial["same_layout"] for trial in trials]
    assert kept == sorted(kept, reverse=True)
    assert not kept[-1]
    assert all(trial["same_layout"] == (_blocks(trial) == _blocks(trials[0])) for trial in trials)


def test_a_workload_that_another_searched_since_begins_anew(
    relay: EngineSession, convolution: dict[str, Any], first_round: tuple[dict[str, Any], Trials], tmp_path: Path
) -> None:
    history = asking.write_lines(tmp_path / "history", [trial["schedule"] for trial in first_round[1]])
    options = {"n_trial": 902}
    tune(relay, convolution, tmp_path / "j", trials=2, options=options)
    more = {"history": history, "first_trial": 6, "trials": 4, "options": options}
    _, trials = tune(relay, convolution, tmp_path / "k", fresh=True, **more)
    assert len(trials) == 4
    assert not {trial["schedule_digest"] for trial in first_round[1]} & {trial["schedule_digest"] for trial in trials}


def test_another_search_measures_rounds(relay: EngineSession, convolution: dict[str, Any], tmp_path: Path) -> None:
    options = {"search": "ga", "keep_layout": False}
    _, trials = tune(relay, convolution, tmp_path / "j", trials=5, options=options)
    _, more = tune(relay, convolution, tmp_path / "j", trials=5, first_trial=5, options=options)
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
        tune(relay, convolution, tmp_path / "j", options=options)
    assert caught.value.engine_code == "invalid_option"
    assert hint is None or (caught.value.hint and hint in caught.value.hint)


def _timed(trial: dict[str, Any], seconds: float) -> str:
    """The native line of the same trial with another latency."""
    line = json.loads(trial["schedule"])
    line["result"][:2] = [[seconds], 0]
    return json.dumps(line)


@pytest.fixture(scope="module")
def all_schedules(
    relay: EngineSession, convolution: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Trials:
    """A trial of every schedule of the first convolution, those of the untuned layout first."""
    spool = tmp_path_factory.mktemp("all") / "spool.jsonl"
    options = {"n_trial": 901, "keep_layout": False}
    return tune(relay, convolution, spool, trials=50, options=options)[1]


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
    records = asking.write_lines(tmp_path / "records", lines)
    [chosen] = asking.build(relay, place, tmp_path / "tuned", records=records)["records"]
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
