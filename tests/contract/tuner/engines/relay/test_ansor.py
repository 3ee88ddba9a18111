from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.records import TrialError
from domain.tuning_tasks import ENDLESS
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.asking import Trials
from tests.support.tuner.engines.fixtures import start, workload
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


def _write(path: Path, trials: Trials) -> str:
    return asking.write_lines(path, [trial["schedule"] for trial in trials])


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The small network after two rounds for each of its tasks."""

    place: dict[str, Any]
    folder: Path
    tasks: list[dict[str, Any]]
    trials: Trials

    def task(self, operator: str) -> dict[str, Any]:
        """The params of a round for the first task whose description begins so."""
        found = next(task for task in self.tasks if task["description"].startswith(operator))
        return workload(self.place, found, self.folder)

    def of(self, workload_key: str) -> Trials:
        return [trial for trial in self.trials if trial["workload_key"] == workload_key]


@pytest.fixture(scope="module")
def tune(
    relay: EngineSession, place: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Tuned]:
    @cache
    def tune(layout: str) -> Tuned:
        folder = tmp_path_factory.mktemp(f"ansor-{layout}")
        ours = {**place, "tuner": "ansor", "options": {"layout": layout}}
        tasks = relay.request("extract", {**ours, "out_dir": str(folder)}, timeout=120)["tasks"]
        trials: Trials = []
        for task in tasks:
            round_ = workload(ours, task, folder)
            for first in (0, 3):
                trials += asking.tune(relay, round_, folder / "spool.jsonl", first_trial=first, trials=3)[1]
        return Tuned(place=ours, folder=folder, tasks=tasks, trials=trials)

    return tune


@pytest.fixture(scope="module", params=["NCHW", "NHWC"])
def tuned(request: pytest.FixtureRequest, tune: Callable[[str], Tuned]) -> Tuned:
    return tune(request.param)


@pytest.fixture(scope="module")
def nhwc(tune: Callable[[str], Tuned]) -> Tuned:
    return tune("NHWC")


@pytest.fixture(scope="module")
def fresh(engine_logs: Path) -> Iterator[EngineSession]:
    """An engine that has seen nothing of what the other tests did."""
    with start("relay", engine_logs / "relay-ansor-fresh.log") as engine:
        yield engine


def test_tasks_are_described_and_defined(tuned: Tuned) -> None:
    assert [task["position"] for task in tuned.tasks] == list(range(5))
    convolution = tuned.tasks[0]
    expected = {
        "NCHW": "conv2d_NCHWc+add+relu 1×1×16×16×3 ∗ 1×1×3×3×3×8 → 1×1×16×16×8",
        "NHWC": "conv2d+add+relu 1×16×16×3 ∗ 3×3×3×8 → 1×16×16×8",
    }
    assert convolution["description"] == expected[tuned.place["options"]["layout"]]
    assert convolution["name"] == {"NCHW": "conv2d_NCHWc", "NHWC": "conv2d_nhwc"}[tuned.place["options"]["layout"]]
    # Two operations for each weight and place, one for each bias and each ReLU.
    assert convolution["flop"] == 16 * 16 * 8 * (2 * 27 + 2)
    assert all(task["weight"] == 1 and task["space_size"] == ENDLESS and task["flop"] > 0 for task in tuned.tasks)
    keys = [json.loads(task["workload_key"]) for task in tuned.tasks]
    assert all(len(md5) == 32 and sizes for md5, *sizes in keys)
    assert len({task["definition"] for task in tuned.tasks if (tuned.folder / task["definition"]).is_file()}) == 5


@pytest.mark.smoke
def test_rounds_go_on_where_the_last_one_stopped(tuned: Tuned) -> None:
    for task in tuned.tasks:
        trials = tuned.of(task["workload_key"])
        assert [trial["trial_number"] for trial in trials] == list(range(6))
        assert len({trial["schedule_digest"] for trial in trials}) == 6
        assert not any(trial["default"] for trial in trials)
        assert any(trial["error"] is None and trial["latencies"][0] > 0 for trial in trials)
        assert {trial["error"] for trial in trials} <= {None, *TrialError}
        assert all((trial["error"] is None) == bool(trial["latencies"]) for trial in trials)


@pytest.mark.smoke
def test_the_tuned_network_agrees_with_the_reference(
    relay: EngineSession, reference: EngineSession, tuned: Tuned, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    built = asking.build(relay, tuned.place, tmp_path / "b", records=_write(tmp_path / "records", tuned.trials))
    assert built["files"] == ["mod.so", "mod.json", "mod.params", "libmodel.so", "tunesmith.h"]
    best = []
    for task in tuned.tasks:
        valid = [trial for trial in tuned.of(task["workload_key"]) if trial["error"] is None]
        best.append(min(valid, key=lambda trial: float(trial["latencies"][0]))["schedule"])
    assert sorted(built["records"]) == sorted(best)
    for path in inputs:
        assert asking.agrees(relay, tmp_path / "b", reference, prepared, path, tmp_path)


def test_a_fresh_engine_measures_nothing_again_and_needs_no_model(
    fresh: EngineSession, nhwc: Tuned, tmp_path: Path
) -> None:
    round_ = {**nhwc.task("max_pool2d"), "model": str(tmp_path / "no.onnx")}
    history = _write(tmp_path / "history", nhwc.trials)
    before = {trial["schedule_digest"] for trial in nhwc.of(round_["workload_key"])}
    answer, trials = asking.tune(fresh, round_, tmp_path / "j", history=history, first_trial=6, trials=5)
    assert answer["trials"] == len(trials) == 5
    assert not before & {trial["schedule_digest"] for trial in trials}
    assert [trial["trial_number"] for trial in trials] == list(range(6, 11))


def test_a_task_without_definition_is_found_in_the_model(fresh: EngineSession, nhwc: Tuned, tmp_path: Path) -> None:
    _, trials = asking.tune(fresh, {**nhwc.task("dense"), "task": None}, tmp_path / "j", trials=1)
    assert len(trials) == 1
    with pytest.raises(errors.EngineRequestFailed) as caught:
        asking.tune(fresh, {**nhwc.place, "workload_key": '["0123",[1,2]]'}, tmp_path / "j")
    assert caught.value.engine_code == "unknown_workload"


PLAIN_TVM = """
import json, sys
import numpy as np, onnx, tvm
from tvm import auto_scheduler, relay
from tvm.contrib import graph_executor

model, records, layout, target, inputs, outputs = sys.argv[1:]
if __name__ == "__main__":
    measured, results = auto_scheduler.RecordReader(records).read_lines()
    module, params = relay.frontend.from_onnx(onnx.load(model), freeze_params=True)
    if layout == "NHWC":
        with tvm.transform.PassContext(opt_level=3):
            convert = relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})
            module = tvm.transform.Sequential([convert])(module)
    tasks, _ = auto_scheduler.extract_tasks(module, params, target)
    with auto_scheduler.ApplyHistoryBest(records) as best:
        place = tvm.target.Target(target)
        found = [best.query(place, task.workload_key, False, None, "") is not None for task in tasks]
        with tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
            library = relay.build(module, target=target, params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
    executor.set_input("image", np.load(inputs)["image"])
    executor.run()
    np.savez(outputs, scores=executor.get_output(0).numpy())
    valid = sum(int(result.error_no) == 0 for result in results)
    applied = dict(zip([task.desc for task in tasks], found, strict=True))
    print(json.dumps({"lines": len(measured), "valid": valid, "applied": applied}))
"""


def test_plain_tvm_takes_the_native_lines(
    reference: EngineSession, tuned: Tuned, target: str, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    records = _write(tmp_path / "records.json", tuned.trials)
    layout = tuned.place["options"]["layout"]
    told = asking.told_inside(
        "relay", PLAIN_TVM, str(prepared), records, layout, target, str(inputs[0]), str(tmp_path / "a.npz")
    )
    assert told["lines"] == len(tuned.trials) == 30
    assert told["valid"] == sum(trial["error"] is None for trial in tuned.trials)
    assert len(told["applied"]) == 5
    # It cannot build with schedules of matrix products.
    assert all(applied == ("nn_dense" not in name) for name, applied in told["applied"].items())
    [output] = asking.compare_with_model(reference, prepared, inputs[0], tmp_path / "a.npz")
    assert output["passed"]


def test_records_of_another_target_are_not_applied(relay: EngineSession, nhwc: Tuned, tmp_path: Path) -> None:
    foreign = [{**trial, "schedule": _for_cpu(trial["schedule"], "x86-64")} for trial in nhwc.trials]
    records = _write(tmp_path / "records", foreign)
    assert asking.build(relay, nhwc.place, tmp_path / "b", records=records)["records"] == []


def _for_cpu(line: str, cpu: str) -> str:
    record = json.loads(line)
    record["i"][0][1] = f"llvm -keys=cpu -mcpu={cpu} -num-cores=1"
    return json.dumps(record)


def test_failed_candidates_are_data_and_not_tried_again(
    relay: EngineSession, fresh: EngineSession, nhwc: Tuned, tmp_path: Path
) -> None:
    round_ = nhwc.task("conv2d")
    # Other options make another search.
    hasty = {"measure": {**asking.MEASURE, "timeout": 0.001}, "options": {**nhwc.place["options"], "n_trial": 50}}
    answer, failed = asking.tune(relay, round_, tmp_path / "j", trials=3, **hasty)
    assert answer["trials"] == 3
    assert all(trial["error"] in (TrialError.BUILD_TIMEOUT, TrialError.RUN_TIMEOUT) for trial in failed)
    assert all(json.loads(trial["schedule"])["r"][1] in (6, 7) for trial in failed)
    history = _write(tmp_path / "history", failed)
    _, trials = asking.tune(fresh, round_, tmp_path / "j", trials=4, first_trial=3, history=history)
    assert any(trial["error"] is None for trial in trials)
    assert not {trial["schedule_digest"] for trial in failed} & {trial["schedule_digest"] for trial in trials}
    # A network has no use for a workload whose every trial failed.
    assert asking.build(relay, nhwc.place, tmp_path / "b", records=history)["records"] == []


BROKEN = """
import json, sys
from tuner.engines.runtime import environment
environment.apply()
from tuner.engines.relay import candidates
key, definition, line, target, path = sys.argv[1:]
candidates.set_up()
print(json.dumps(candidates.build_ansor(key, open(definition).read(), line, target, 1, path)))
"""


def test_steps_that_do_not_fit_are_an_invalid_schedule(nhwc: Tuned, target: str, tmp_path: Path) -> None:
    round_ = nhwc.task("conv2d")
    record = json.loads(nhwc.of(round_["workload_key"])[0]["schedule"])
    record["i"][1][1].append(["SP", 99, 0, 16, [4], 1])
    arguments = (round_["workload_key"], round_["task"], json.dumps(record), target, str(tmp_path / "c.so"))
    kind, message = asking.told_inside("relay", BROKEN, *arguments)
    assert kind == TrialError.INVALID_SCHEDULE, message


def test_n_trial_and_early_stopping_end_a_task(relay: EngineSession, nhwc: Tuned, tmp_path: Path) -> None:
    options = {**nhwc.place["options"], "n_trial": 2}
    answer, _ = asking.tune(relay, nhwc.task("dense"), tmp_path / "a", trials=9, options=options)
    assert answer == {"trials": 2, "exhausted": True, "reason": "n_trial", "spent": answer["spent"]}
    options = {**nhwc.place["options"], "early_stopping": 3}
    answer, trials = asking.tune(relay, nhwc.task("dense"), tmp_path / "b", trials=60, options=options)
    assert answer["exhausted"]
    assert answer["reason"] == "early_stopping"
    assert len(trials) < 60


@pytest.mark.parametrize(
    ("params", "hint"), [({"options": {"layout": "NHCW"}}, "NHWC"), ({"tuner": "anser", "options": {}}, "ansor")]
)
def test_unknown_options_are_refused(
    relay: EngineSession, place: dict[str, Any], tmp_path: Path, params: dict[str, Any], hint: str
) -> None:
    request = {**place, "tuner": "ansor", **params, "out_dir": str(tmp_path)}
    refused = asking.refusal(relay, "extract", request)
    assert refused.engine_code == "invalid_option"
    assert hint in str(refused.hint)


def test_a_layout_that_a_network_cannot_have_is_refused(
    relay: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(models.pooled_column())
    ours = {**place, "model": str(model), "tuner": "ansor", "out_dir": str(tmp_path / "tasks")}
    with pytest.raises(errors.EngineRequestFailed, match="NHWC") as refused:
        relay.request("extract", {**ours, "options": {"layout": "NHWC"}}, timeout=120)
    assert refused.value.engine_code == "invalid_option"


def test_a_definition_of_another_workload_is_refused(relay: EngineSession, nhwc: Tuned, tmp_path: Path) -> None:
    mixed = {**nhwc.task("dense"), "task": nhwc.task("conv2d")["task"]}
    (tmp_path / "text").write_text("no tensors")
    # A search that has begun would go on without a look at the definition.
    mixed["options"] = {**mixed["options"], "n_trial": 99}
    for task in (mixed["task"], str(tmp_path / "text"), str(tmp_path / "missing")):
        with pytest.raises(errors.EngineRequestFailed) as caught:
            asking.tune(relay, {**mixed, "task": task}, tmp_path / "j")
        assert caught.value.engine_code == "unknown_workload"
