from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import workload
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

SPEC = {"name": "x", "dtype": "float32", "shape": [2, 8, 32]}


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The dense network after a round for each of its tasks."""

    place: dict[str, Any]
    tasks: list[dict[str, Any]]
    trials: dict[str, list[dict[str, Any]]]
    """By workload key."""
    records: Path


@pytest.fixture(scope="module")
def tuned(relay: EngineSession, target: str, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    folder = tmp_path_factory.mktemp("dense")
    (folder / "model.onnx").write_bytes(models.dense_network())
    place = {"model": str(folder / "model.onnx"), "target": target, "threads": 1, "tuner": "ansor"}
    tasks = relay.request("extract", {**place, "out_dir": str(folder)}, timeout=120)["tasks"]
    trials = {
        task["workload_key"]: asking.tune(relay, workload(place, task, folder), folder / "j", trials=6)[1]
        for task in tasks
    }
    asking.write_lines(folder / "records", [trial["schedule"] for each in trials.values() for trial in each])
    return Tuned(place=place, tasks=tasks, trials=trials, records=folder / "records")


def test_every_schedule_of_a_dense_layer_can_be_built(tuned: Tuned) -> None:
    described = [task["description"] for task in tuned.tasks if task["name"] == "dense"]
    assert described == ["dense 16×32 ∗ 48×32 → 16×48", "dense 16×48 ∗ 16×48 → 16×16"]
    for task in tuned.tasks:
        errors = [(trial["error"], trial["error_message"]) for trial in tuned.trials[task["workload_key"]]]
        assert errors == [(None, None)] * 6


WEIGHTS = """
import json, sys
from tvm import relay
params = relay.load_param_dict(open(sys.argv[1], "rb").read())
print(json.dumps([len(value.shape) for value in params.values()]))
"""


def test_weights_lie_as_the_schedules_want_them_and_the_result_is_right(
    relay: EngineSession, reference: EngineSession, tuned: Tuned, tmp_path: Path
) -> None:
    built = asking.build(relay, tuned.place, tmp_path / "b", records=str(tuned.records))
    assert len(built["records"]) == len(tuned.tasks)
    assert sum(rank > 3 for rank in asking.told_inside("relay", WEIGHTS, str(tmp_path / "b" / "mod.params"))) == 2
    inputs = asking.make_inputs(reference, [SPEC], tmp_path)
    assert asking.agrees(relay, tmp_path / "b", reference, tuned.place["model"], inputs, tmp_path)


PRODUCTS = """
import json
from tuner.engines.runtime import environment
environment.apply()
import numpy as np
import tvm
from tvm import auto_scheduler, relay
from tvm.contrib import graph_executor
from tuner.engines.relay.ansor import networks, workloads

networks.install()
random = np.random.default_rng(0)
target = tvm.target.Target("llvm -num-cores=1")
told = []
for shape, transpose_a, transpose_b in (
    ((4, 6), False, False), ((2, 4, 6), False, False), ((6, 4), True, False), ((6, 4), True, True)
):
    weights = random.standard_normal((8, 6) if transpose_b else (6, 8)).astype("float32")
    data = random.standard_normal(shape).astype("float32")
    product = relay.nn.matmul(
        relay.var("x", shape=shape), relay.const(weights), transpose_a=transpose_a, transpose_b=transpose_b
    )
    module = tvm.IRModule.from_expr(product)
    [task], _ = auto_scheduler.extract_tasks(module, {}, target)
    task = workloads.search_task(task.workload_key, target)
    settings = {"sample_init_min_population": 8}
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), params=settings, seed=1, verbose=0)
    measured = auto_scheduler.MeasureInput(task, policy.sample_initial_population()[0])
    task.compute_dag.apply_steps_from_state(measured.state, layout_rewrite=task.layout_rewrite_option)
    result = auto_scheduler.MeasureResult([1.0], 0, "", 0.0, 0)
    with auto_scheduler.ApplyHistoryBest([(measured, result)]):
        with tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
            library = relay.build(module, target=target)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.set_input("x", data)
    executor.run()
    expected = (data.swapaxes(-1, -2) if transpose_a else data) @ (weights.T if transpose_b else weights)
    told.append(float(abs(executor.get_output(0).numpy() - expected).max()))
print(json.dumps(told))
"""


def test_products_of_any_form_are_right() -> None:
    worst = asking.told_inside("relay", PRODUCTS)
    assert len(worst) == 4
    assert max(worst) < 1e-5
