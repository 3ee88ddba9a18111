"""Attention whose scores are larger than the cache: one function computes it, and gives what three give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import workload
from tests.support.tuner.engines.relax import networks
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

FUNCTIONS = """
import json, sys
import tvm
from tuner.engines.relax import importing, schedules
from tuner.engines.relax.graph import attention, lowering
importing.install()
path, target = sys.argv[1:]
told = {}
for rewrite in (False, True):
    build = lowering.Lowering.of({"model": path, "target": target, "threads": 1, "rewrite": rewrite})
    module = lowering.lower(importing.load(path), build)
    joined = [each for name, each in module.functions_items() if name.name_hint.startswith(attention.JOINED)]
    told[str(rewrite)] = [schedules.fitting(tvm.IRModule({"main": each}), build.target)[0] for each in joined]
print(json.dumps(told))
"""


def test_rewritten_networks_join_large_attentions_and_search_their_blocks(
    relax: EngineSession, reference: EngineSession, target: str, place: dict[str, Any], tmp_path: Path
) -> None:
    """Also on two threads, with shorter vectors, and with records of other blocks. A softmax of columns stays alone."""
    model, specs = asking.prepare(reference, networks.long_attention(), tmp_path)
    inputs = asking.make_inputs(reference, specs, tmp_path)
    assert asking.told_inside("relax", FUNCTIONS, model, target) == {"False": [], "True": ["_attended"]}
    own = {**place, "model": str(model), "rewrite": True}
    extracted = relax.request("extract", {**own, "out_dir": str(tmp_path)}, timeout=120)["tasks"]
    [task] = [each for each in extracted if each["name"].startswith("chained_attention")]
    answer, trials = asking.tune(relax, workload(own, task, tmp_path), tmp_path / "spool.jsonl", trials=64)
    assert (answer["exhausted"], trials[0]["default"]) == (True, True)
    assert all(trial["error"] is None for trial in trials), trials
    records = asking.write_lines(tmp_path / "records.jsonl", [trials[-1]["schedule"]])
    others: list[dict[str, Any]] = [{}, {"threads": 2}, {"target": "llvm -mcpu=haswell"}, {"records": records}]
    for number, more in enumerate(others):
        bundle = tmp_path / f"bundle-{number}"
        answer = relax.request("compile", {**own, "records": None, "out_dir": str(bundle), **more}, timeout=120)
        assert bool(answer["records"]) == ("records" in more)
        assert asking.agrees(relax, bundle, reference, model, inputs, tmp_path)
