"""Which records a build takes: each convolution's best, or those that are best together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside
from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

LINES = """
import sys
from tvm.autotvm.measure import MeasureInput, MeasureResult
from tuner.engines.relay import graph_layout_reading

lines = []
for key in json.load(open(sys.argv[1] + "/keys.json")):
    task = workloads.task(key, TARGET)
    space, found = task.config_space, {}
    for place in range(len(space)):
        found.setdefault(graph_layout_reading.blocks(task.name, space.get(place)), space.get(place))
    # The first convolution's output has 2048 elements, pooled 512: alone only the second one's gain pays.
    for blocks, seconds in {(3, 8): 10e-6, (3, 4): 8e-6, (8, 16): 10e-6, (4, 16): 8e-6}.items():
        if blocks in found:
            pair = MeasureInput(TARGET, task, found[blocks]), MeasureResult((seconds,), 0, 0.0, 0.0)
            lines.append(autotvm.record.encode(*pair))
print(json.dumps(lines))
"""


@pytest.fixture(scope="module")
def request_(
    place: dict[str, Any], tasks: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("choosing")
    keys = [task["workload_key"] for task in tasks if task["name"] == "conv2d_NCHWc.x86"]
    (folder / "keys.json").write_text(json.dumps(keys))
    lines = inside(LINES, folder)
    assert len(lines) == 4
    return {**place, "tuner": "autotvm", "records": asking.write_lines(folder / "records", lines)}


def blocks(lines: list[str]) -> set[tuple[int, int]]:
    found = set()
    for line in lines:
        knobs = {name: value for name, _, value in json.loads(line)["config"]["entity"]}
        found.add((knobs["tile_ic"][-1], knobs["tile_oc"][-1]))
    return found


def test_convolutions_are_chosen_together_or_each_for_itself(relay: EngineSession, request_: dict[str, Any]) -> None:
    together = relay.request("choose", request_, timeout=120)["lines"]
    options = {"graph_layout": "none"}
    alone = relay.request("choose", {**request_, "options": options}, timeout=120)["lines"]
    assert blocks(together) == {(3, 4), (4, 16)}
    assert blocks(alone) == {(3, 8), (4, 16)}


def test_a_build_takes_what_choose_tells(relay: EngineSession, request_: dict[str, Any], tmp_path: Path) -> None:
    told = relay.request("choose", request_, timeout=120)["lines"]
    compiled = relay.request("compile", {**request_, "out_dir": str(tmp_path / "bundle")}, timeout=120)
    assert compiled["records"] == told


def test_without_records_nothing_is_chosen(relay: EngineSession, request_: dict[str, Any]) -> None:
    for tuner in ("autotvm", "ansor"):
        answer = relay.request("choose", {**request_, "tuner": tuner, "records": None}, timeout=120)
        assert answer == {"lines": []}


def test_another_way_of_choosing_is_refused(relay: EngineSession, request_: dict[str, Any]) -> None:
    refused = asking.refusal(relay, "choose", {**request_, "options": {"graph_layout": "best"}})
    assert refused.engine_code == "invalid_option"
