"""Depthwise convolutions are computed with the convolution before them, and give what both give by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import workload
from tests.support.tuner.engines.relax import networks
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

FUNCTIONS = r"""
import json, re, sys
import tvm
from tuner.engines.relax import importing, schedules
from tuner.engines.relax.graph import chains, lowering
importing.install()
path, target = sys.argv[1:]
told = {}
for rewrite, threads in ((False, 1), (True, 1), (True, 2)):
    build = lowering.Lowering.of({"model": path, "target": target, "threads": threads, "rewrite": rewrite})
    module = lowering.lower(importing.load(path), build)
    chained = [each for name, each in module.functions_items() if name.name_hint.startswith(chains.CHAINED)]
    fitting = [schedules.fitting(tvm.IRModule({"main": each}), build.target) for each in chained]
    told.setdefault("rules", []).append([rule for rule, _ in fitting])
    shared = [re.findall(r"T.parallel\(T.int64\((\d+)", schedule.mod.script()) for _, schedule in fitting]
    told.setdefault("tasks", []).append([[int(count) for count in each] for each in shared])
print(json.dumps(told))
"""


def test_rewritten_networks_chain_convolutions_and_search_their_bands(
    relax: EngineSession, reference: EngineSession, target: str, place: dict[str, Any], tmp_path: Path
) -> None:
    """Also on two threads, and with records of other bands."""
    model, specs = asking.prepare(reference, networks.bottlenecks(), tmp_path)
    inputs = asking.make_inputs(reference, specs, tmp_path)
    told = asking.told_inside("relax", FUNCTIONS, model, target)
    assert told["rules"] == [[], ["_chained"] * 5, ["_chained"] * 5]
    *in_one_thread, in_two = told["tasks"]
    assert in_one_thread == [[], [[]] * 5]
    assert all(tasks > 1 for [tasks] in in_two), in_two
    own = {**place, "model": str(model), "rewrite": True}
    extracted = relax.request("extract", {**own, "out_dir": str(tmp_path)}, timeout=120)["tasks"]
    chained = [task for task in extracted if task["name"].startswith("chained")]
    assert len(chained) == 5
    lines: list[str] = []
    for task in chained:
        answer, trials = asking.tune(relax, workload(own, task, tmp_path), tmp_path / "spool.jsonl", trials=64)
        assert (answer["exhausted"], [trial["default"] for trial in trials[:1]]) == (True, [True])
        assert all(trial["error"] is None for trial in trials), trials
        lines += [trial["schedule"] for trial in trials[1:]]
    records = asking.write_lines(tmp_path / "records.jsonl", lines)
    for known, threads in ((None, 1), (None, 2), (records, 1)):
        bundle = tmp_path / f"bundle-{known is None}-{threads}"
        request = {**own, "records": known, "threads": threads, "out_dir": str(bundle)}
        answer = relax.request("compile", request, timeout=120)
        assert len(answer["records"]) == (0 if known is None else 5)
        assert asking.agrees(relax, bundle, reference, model, inputs, tmp_path)
