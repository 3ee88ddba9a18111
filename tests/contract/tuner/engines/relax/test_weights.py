"""Weights in the layouts that schedules ask for: computed while a model is built, never while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.tuner.engines.test_native_records import in_plain_tvm
from tuner.catalogue import ROOT
from tuner.session import EngineSession

pytestmark = pytest.mark.engine

CALLED = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tuner.engines.runtime import environment
environment.apply()
import tvm
from tuner.engines.relax import compiling, importing, records
from tuner.engines.relax import lowering
_, _, model, target, path = sys.argv[:5]
build = lowering.Build.of({"target": target, "threads": 1})

def called(module):
    names = []
    def visit(node):
        if isinstance(node, tvm.ir.GlobalVar):
            names.append(node.name_hint)
    tvm.relax.analysis.post_order_visit(module["main"], visit)
    return sorted(set(names))

scheduled, lines = compiling.use_records(lowering.lower(importing.load(model), build), records.load(path))
with build.target, tvm.transform.PassContext(opt_level=3):
    apart = tvm.relax.transform.SplitLayoutRewritePreproc()(scheduled)
built = lowering.finish(scheduled, build.target)
print(json.dumps({"used": len(lines), "apart": called(apart), "built": called(built)}))
"""


def test_weights_are_laid_out_at_build_time(
    relax: EngineSession, place: dict[str, Any], tasks: list[dict[str, Any]], definitions: Path, tmp_path: Path
) -> None:
    trials: list[dict[str, Any]] = []
    keep = {"trial": trials.append}
    params = {
        **place, "workload_key": tasks[0]["workload_key"], "task": str(definitions / tasks[0]["definition"]),
        "options": {"n_trial": 73}, "trials": 8, "first_trial": 0, "history": None, "seconds": None,
        "journal": str(tmp_path / "journal"), "measure": {"number": 1, "repeat": 1, "min_repeat_ms": 1},
    }  # fmt: skip
    relax.request("tune", params, timeout=120, on_event=lambda kind, data: keep.get(kind, lambda _: None)(data))
    rewriting = next(trial["schedule"] for trial in trials if "TransformLayout" in trial["schedule"])
    (tmp_path / "records.jsonl").write_text(rewriting + "\n")
    found = in_plain_tvm("relax", CALLED, ROOT, place["model"], place["target"], tmp_path / "records.jsonl")
    assert found["used"] == 1
    [prepack] = set(found["apart"]) - set(found["built"])
    assert "prepack" in prepack
