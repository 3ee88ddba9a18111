"""Records that compute something else are found, one by one, and take nothing down with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines.asking import tune
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


def _measured(relay: EngineSession, place: dict[str, Any], task: dict[str, Any], folder: Path) -> str:
    """The native line of one trial."""
    defined = {"task": str(folder / task["definition"])} if task.get("definition") else {}
    params = {**place, "workload_key": task["workload_key"], **defined}
    # A search of its own: others in this session begin anew.
    _, [trial] = tune(relay, params, folder / "journal.jsonl", trials=1, options={"n_trial": 1000})
    return str(trial["schedule"])


def _with_tile(line: str, knob: str, size: int) -> str:
    record = json.loads(line)
    for entity in record["config"]["entity"]:
        if entity[0] == knob:
            entity[2][-1] = size
    record["result"][0] = [1e-9]
    # Not as TVM spaces it: answers name lines as they were given.
    return json.dumps(record, separators=(", ", ":"))


@pytest.fixture(scope="module")
def lines(
    relay: EngineSession, place: dict[str, Any], tasks: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """A trial of each task, by its description."""
    folder = tmp_path_factory.mktemp("trials")
    return {task["name"]: _measured(relay, place, task, folder) for task in tasks}


def _audit(relay: EngineSession, place: dict[str, Any], folder: Path, *lines: str, **more: Any) -> dict[str, Any]:
    (folder / "records.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return relay.request("audit", {**place, "records": str(folder / "records.jsonl"), **more}, timeout=300)


def test_what_is_right_passes(
    relay: EngineSession, place: dict[str, Any], lines: dict[str, str], tmp_path: Path
) -> None:
    audited = _audit(relay, place, tmp_path, *lines.values())
    assert audited == {"checked": len(lines), "wrong": [], "failed": [], "skipped": []}


def test_what_is_wrong_and_what_does_not_build_are_told_apart(
    relay: EngineSession, place: dict[str, Any], lines: dict[str, str], tmp_path: Path
) -> None:
    # Of 16 products it adds up 15.
    wrong = _with_tile(lines["dense_nopack.x86"], "tile_k", 3)
    broken = _with_tile(lines["dense_pack.x86"], "tile_k", 0)
    audited = _audit(relay, place, tmp_path, lines["conv2d_NCHWc.x86"], wrong, broken)
    assert audited["checked"] == 3
    assert [each["line"] for each in audited["wrong"]] == [wrong]
    assert 0.001 < audited["wrong"][0]["max_rel"] < 10
    assert [each["line"] for each in audited["failed"]] == [broken]
    assert audited["failed"][0]["message"].startswith("InternalError: Check failed: ")
    assert audited["failed"][0]["message"].endswith("Divide by zero")


def test_only_what_a_build_would_choose_is_run(
    relay: EngineSession, place: dict[str, Any], lines: dict[str, str], tmp_path: Path
) -> None:
    wrong = _with_tile(lines["dense_nopack.x86"], "tile_k", 3)
    slower = wrong.replace("1e-09", "9.0")
    assert slower != wrong
    audited = _audit(relay, place, tmp_path, slower, lines["dense_nopack.x86"])
    assert (audited["checked"], audited["wrong"]) == (1, [])


def test_schedules_of_ansor_are_compared_with_none(relay: EngineSession, place: dict[str, Any], tmp_path: Path) -> None:
    place = {**place, "tuner": "ansor"}
    tasks = relay.request("extract", {**place, "out_dir": str(tmp_path)}, timeout=120)["tasks"]
    chosen = [_measured(relay, place, task, tmp_path) for task in tasks if "conv2d" in task["description"]]
    assert chosen
    audited = _audit(relay, place, tmp_path, *chosen)
    assert audited == {"checked": len(chosen), "wrong": [], "failed": [], "skipped": []}
