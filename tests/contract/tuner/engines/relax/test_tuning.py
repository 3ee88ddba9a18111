from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domain.tuning_tasks import ENDLESS
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.asking import tune
from tests.support.tuner.engines.fixtures import Twin, workload
from tests.support.tuner.engines.relax import networks
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

RECORDED = Path(__file__).parents[4] / "unit/tuner/native/lines/database_tuning_record.json"


@pytest.fixture(scope="module")
def convolution(relax_twin: Twin) -> dict[str, Any]:
    """The params of a round for the first convolution."""
    return relax_twin.workload(relax_twin.tasks[0])


@pytest.mark.smoke
def test_tasks_are_extracted_with_weights(relax_twin: Twin) -> None:
    tasks = relax_twin.tasks
    assert [task["position"] for task in tasks] == list(range(len(tasks)))
    work = [task["flop"] * task["weight"] for task in tasks]
    assert work == sorted(work, reverse=True)
    first = tasks[0]
    assert first["description"] == "conv2d+add+relu 1×16×16×3 ∗ 3×3×3×8 → 1×16×16×8"
    assert first["name"] == "fused_conv2d_add_relu"
    assert first["flop"] == pytest.approx(2 * 16 * 16 * 8 * 27, rel=0.1)
    assert (first["weight"], first["space_size"]) == (1, ENDLESS)
    key, module = json.loads((relax_twin.definitions / first["definition"]).read_text())
    assert key == first["workload_key"]
    assert module


def test_equal_layers_of_other_models_are_the_same_task(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tasks: list[dict[str, Any]], tmp_path: Path
) -> None:
    prepared, _ = asking.prepare(reference, models.small_network(seed=1), tmp_path, image=[1, 3, 16, 16])
    extract = {**place, "model": str(prepared), "out_dir": str(tmp_path / "d")}
    others = relax.request("extract", extract, timeout=120)["tasks"]
    assert [task["workload_key"] for task in others] == [task["workload_key"] for task in tasks]


@pytest.mark.parametrize("network", [networks.matmul, networks.convolution], ids=["matmul", "convolution"])
def test_one_operator_is_tuned_like_a_model(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, network: Any
) -> None:
    prepared, specs = asking.prepare(reference, network(), tmp_path)
    model = {**place, "model": str(prepared), "out_dir": str(tmp_path)}
    [task, *_] = relax.request("extract", model, timeout=60)["tasks"]
    _, trials = tune(relax, workload(model, task, tmp_path), tmp_path / "j", trials=3)
    assert [trial["error"] for trial in trials] == [None] * 3
    last = trials[-1]["schedule"]
    records = asking.write_lines(tmp_path / "records", [last])
    assert asking.build(relax, model, tmp_path / "b", records=records)["records"] == [last]
    fed = asking.make_inputs(reference, specs, tmp_path)
    assert asking.agrees(relax, tmp_path / "b", reference, prepared, fed, tmp_path)


CALLED = """
import json, sys
from tuner.engines.runtime import environment
environment.apply()
import tvm
from tuner.engines.relax import compiling, importing, records
from tuner.engines.relax.graph import lowering
model, target, path = sys.argv[1:]
build = lowering.Lowering.of({"target": target, "threads": 1})

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


def test_weights_are_laid_out_at_build_time(relax_twin: Twin, convolution: dict[str, Any], tmp_path: Path) -> None:
    """In the layouts that schedules ask for: computed while a model is built, never while it runs."""
    _, trials = tune(relax_twin.session, convolution, tmp_path / "j", trials=8, options={"n_trial": 73})
    rewriting = next(trial["schedule"] for trial in trials if "TransformLayout" in trial["schedule"])
    records = asking.write_lines(tmp_path / "records.jsonl", [rewriting])
    found = asking.told_inside("relax", CALLED, convolution["model"], convolution["target"], records)
    assert found["used"] == 1
    [prepack] = set(found["apart"]) - set(found["built"])
    assert "prepack" in prepack


def test_the_fastest_line_of_each_workload_is_chosen(relax: EngineSession, tmp_path: Path) -> None:
    _, body = json.loads(RECORDED.read_text().splitlines()[0])
    trace, _, *rest = body

    def line(key: str, *seconds: float) -> str:
        return json.dumps([key, [trace, list(seconds), *rest]])

    slow, fast, failed, other = line("a", 3e-3), line("a", 1e-3, 2e-3), line("b", 1e10), line("c", 5e-3)
    (tmp_path / "records.jsonl").write_text("".join(each + "\n" for each in (slow, other, fast, failed)))
    params = {"target": f"llvm -mcpu={relax.hello['mcpu']}", "threads": 1, "tuner": "metaschedule"}
    chosen = relax.request("choose", {**params, "records": str(tmp_path / "records.jsonl")}, timeout=60)["lines"]
    assert chosen == [fast, other]
    assert relax.request("choose", {**params, "records": None}, timeout=60) == {"lines": []}


TAUGHT = """
import json
from tuner.engines.relax.searching import CostModel
told = []
class Native:
    def update(self, context, natives, results):
        told.append([natives, results])
model = CostModel()
model.native = Native()
for measured in ([("a", 1, 0.1), ("b", 2, 0.2)], [("b", 2, 0.2), ("c", 3, 0.3)], [("a", 1, 0.1)]):
    model.learn(None, measured)
print(json.dumps(told))
"""


def test_searches_that_begin_anew_teach_the_shared_model_only_what_is_new() -> None:
    assert asking.told_inside("relax", TAUGHT) == [[[1, 2], [0.1, 0.2]], [[3], [0.3]]]
