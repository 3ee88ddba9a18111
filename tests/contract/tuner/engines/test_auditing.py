"""Records that compute something else are found, one by one, and take nothing down with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin, workload

pytestmark = pytest.mark.engine

Json = dict[str, Any]


def _measured(twin: Twin, params: Json, folder: Path) -> str:
    """The native line of a trial."""
    # A search of its own: others in this session begin anew.
    return asking.good_lines(twin.session, params, folder / "spool.jsonl", options={"n_trial": 1000})[0]


@pytest.fixture(scope="module")
def lines(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A trial of each task, by the task's name, that of the first convolution first."""
    folder = tmp_path_factory.mktemp("trials")
    return {task["name"]: _measured(twin, twin.workload(task), folder) for task in twin.tasks}


def _audit(twin: Twin, folder: Path, *lines: str, **more: Any) -> Json:
    records = asking.write_lines(folder / "records.jsonl", lines)
    return twin.session.request("audit", {**twin.place, "records": records, **more}, timeout=300)


def _with_tile(line: str, size: int) -> str:
    record = json.loads(line)
    for entity in record["config"]["entity"]:
        if entity[0] == "tile_k":
            entity[2][-1] = size
    record["result"][0] = [1e-9]
    # Not as TVM spaces it: answers name lines as they were given.
    return json.dumps(record, separators=(", ", ":"))


def _rounding(line: str) -> str:
    """The same schedule, whose convolution keeps its sums in float16."""
    key, (trace, _, *rest) = json.loads(line)
    # The data with its padding, the convolution, and what follows it.
    block = next(outputs[1] for name, _, _, outputs in trace[0] if name == "GetChildBlocks")
    trace[0].append(["UnsafeSetDType", [block], [0, "float16"], []])
    return json.dumps([key, [trace, [1e-9], *rest]])


def test_what_is_right_passes(twin: Twin, lines: dict[str, str], tmp_path: Path) -> None:
    audited = _audit(twin, tmp_path, *lines.values())
    assert audited == {"checked": len(lines), "wrong": [], "failed": [], "skipped": []}
    # The network that both read stays as it was.
    again = twin.session.request("extract", {**twin.place, "out_dir": str(tmp_path)}, timeout=120)["tasks"]
    assert [task["workload_key"] for task in again] == [task["workload_key"] for task in twin.tasks]


def test_what_is_wrong_is_named(twin: Twin, lines: dict[str, str], tmp_path: Path) -> None:
    first = next(iter(lines.values()))
    # Of 16 products AutoTVM's adds up 15.
    wrong = _with_tile(lines["dense_nopack.x86"], 3) if twin.name == "relay" else _rounding(first)
    audited = _audit(twin, tmp_path, first, wrong, *list(lines.values())[-1:])
    assert [each["line"] for each in audited["wrong"]] == [wrong], audited
    assert 1e-4 < audited["wrong"][0]["max_rel"] < 10


def test_what_runs_elsewhere_is_skipped(twin: Twin, lines: dict[str, str], tmp_path: Path) -> None:
    line = next(iter(lines.values()))
    runner = {"kind": "rpc", "tracker": "127.0.0.1:1", "key": "board", "session_timeout": 5}
    audited = _audit(twin, tmp_path, line, runner=runner)
    assert (audited["checked"], [each["line"] for each in audited["skipped"]]) == (0, [line])


@pytest.mark.parametrize("twin", ["relay"], indirect=True)
def test_what_does_not_build_is_told_apart(twin: Twin, lines: dict[str, str], tmp_path: Path) -> None:
    broken = _with_tile(lines["dense_pack.x86"], 0)
    audited = _audit(twin, tmp_path, broken, lines["conv2d_NCHWc.x86"])
    [failed] = audited["failed"]
    assert (audited["checked"], audited["wrong"], failed["line"]) == (2, [], broken)
    assert failed["message"].startswith("InternalError: Check failed: ")
    assert failed["message"].endswith("Divide by zero")


@pytest.mark.parametrize("twin", ["relay"], indirect=True)
def test_only_what_a_build_would_choose_is_run(twin: Twin, lines: dict[str, str], tmp_path: Path) -> None:
    slower = _with_tile(lines["dense_nopack.x86"], 3).replace("1e-09", "9.0")
    assert "9.0" in slower
    audited = _audit(twin, tmp_path, slower, lines["dense_nopack.x86"])
    assert (audited["checked"], audited["wrong"]) == (1, [])


@pytest.mark.parametrize("twin", ["relay"], indirect=True)
def test_schedules_of_ansor_are_compared_with_none(twin: Twin, tmp_path: Path) -> None:
    place = {**twin.place, "tuner": "ansor"}
    tasks = twin.session.request("extract", {**place, "out_dir": str(tmp_path)}, timeout=120)["tasks"]
    defined = [workload(place, task, tmp_path) for task in tasks if "conv2d" in task["description"]]
    chosen = [_measured(twin, params, tmp_path) for params in defined]
    assert chosen
    audited = _audit(twin, tmp_path, *chosen, tuner="ansor")
    assert audited == {"checked": len(chosen), "wrong": [], "failed": [], "skipped": []}
