from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domain.tuning_tasks import ENDLESS
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.asking import Trials, tune
from tests.support.tuner.engines.fixtures import Twin, start
from tests.support.tuner.engines.relax import networks
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


PLAIN_TVM = """
import json, sys
from pathlib import Path
from tvm.s_tir import meta_schedule
database = meta_schedule.database.JSONDatabase(work_dir=sys.argv[1])
[best] = database.get_top_k(database.commit_workload(database.get_all_tuning_records()[0].workload.mod), 1)
print(len(database), float(best.run_secs[0]))
"""


@pytest.fixture(scope="module")
def convolution(relax_twin: Twin) -> dict[str, Any]:
    """The params of a round for the first convolution."""
    return relax_twin.workload(relax_twin.tasks[0])


def _round(place: dict[str, Any], task: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {**place, "workload_key": task["workload_key"], "task": str(folder / task["definition"])}


@pytest.fixture(scope="module")
def first_round(
    relax: EngineSession, convolution: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Trials]:
    # A search of its own: other tests of this session begin anew.
    options = {"n_trial": 900}
    return tune(relax, convolution, tmp_path_factory.mktemp("first") / "journal.jsonl", trials=8, options=options)


@pytest.mark.smoke
def test_tasks_are_extracted_with_weights(tasks: list[dict[str, Any]], definitions: Path) -> None:
    assert [task["position"] for task in tasks] == list(range(len(tasks)))
    work = [task["flop"] * task["weight"] for task in tasks]
    assert work == sorted(work, reverse=True)
    first = tasks[0]
    assert first["description"] == "conv2d+add+relu 1×16×16×3 ∗ 3×3×3×8 → 1×16×16×8"
    assert first["name"] == "fused_conv2d_add_relu"
    assert first["flop"] == pytest.approx(2 * 16 * 16 * 8 * 27, rel=0.1)
    assert (first["weight"], first["space_size"]) == (1, ENDLESS)
    key, module = json.loads((definitions / first["definition"]).read_text())
    assert key == first["workload_key"]
    assert module


def test_equal_layers_of_other_models_are_the_same_task(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tasks: list[dict[str, Any]], tmp_path: Path
) -> None:
    prepared, _ = asking.prepare(reference, models.small_network(seed=1), tmp_path, image=[1, 3, 16, 16])
    extract = {**place, "model": str(prepared), "out_dir": str(tmp_path / "d")}
    others = relax.request("extract", extract, timeout=120)["tasks"]
    assert [task["workload_key"] for task in others] == [task["workload_key"] for task in tasks]


def test_a_fresh_engine_measures_nothing_again(
    convolution: dict[str, Any], first_round: tuple[dict[str, Any], Trials], engine_logs: Path, tmp_path: Path
) -> None:
    lines = [trial["schedule"] for trial in first_round[1]]
    # One as TVM itself would have written it, one that failed, one of another workload, and no record at all.
    lines[1] = lines[1].replace("true", "1")
    failed = json.loads(lines[2])
    failed[1][1] = [1e10]
    lines[2] = json.dumps(failed)
    lines += [json.dumps(["1234", failed[1]]), "not a record"]
    history = tmp_path / "history.jsonl"
    history.write_text("".join(line + "\n" for line in lines))
    with start("relax", engine_logs / "relax-resumed.log") as engine:
        answer, trials = tune(
            engine, convolution, tmp_path / "j", history=str(history), first_trial=8, trials=20, options={"n_trial": 14}
        )
    # Those of the history count.
    assert answer == {"trials": 6, "exhausted": True, "reason": "n_trial", "spent": answer["spent"]}
    assert not {trial["schedule_digest"] for trial in first_round[1]} & {trial["schedule_digest"] for trial in trials}
    assert not any(trial["default"] for trial in trials)


def test_plain_metaschedule_reads_definitions_and_records(
    first_round: tuple[dict[str, Any], Trials], convolution: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "database_workload.json").write_text(Path(convolution["task"]).read_text() + "\n")
    bodies = [json.loads(trial["schedule"])[1] for trial in first_round[1]]
    text = "".join(json.dumps([0, body]) + "\n" for body in bodies)
    (tmp_path / "database_tuning_record.json").write_text(text)
    count, best = asking.inside("relax", PLAIN_TVM, tmp_path, folder=tmp_path).split()
    assert int(count) == 8
    assert float(best) == pytest.approx(min(trial["latencies"][0] for trial in first_round[1]))


def test_early_stopping_ends_a_task(relax: EngineSession, convolution: dict[str, Any], tmp_path: Path) -> None:
    answer, trials = tune(relax, convolution, tmp_path / "j", trials=200, options={"early_stopping": 2})
    assert (answer["exhausted"], answer["reason"]) == (True, "early_stopping")
    assert len(trials) < 200


def test_a_small_space_is_exhausted(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    prepared, _ = asking.prepare(reference, networks.matmul(rows=1, inner=2, columns=1), tmp_path)
    model = {**place, "model": str(prepared)}
    [task] = relax.request("extract", {**model, "out_dir": str(tmp_path / "d")}, timeout=60)["tasks"]
    smallest = _round(model, task, tmp_path / "d")
    answer, trials = tune(relax, smallest, tmp_path / "j", trials=300)
    assert (answer["exhausted"], answer["reason"], answer["trials"]) == (True, "space", len(trials))
    assert 1 < len(trials) < 300
    again, more = tune(relax, smallest, tmp_path / "j", trials=10, first_trial=len(trials))
    assert (again["trials"], again["exhausted"], more) == (0, True, [])


@pytest.mark.parametrize("network", [networks.matmul, networks.convolution], ids=["matmul", "convolution"])
def test_one_operator_is_tuned_like_a_model(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, network: Any
) -> None:
    prepared, specs = asking.prepare(reference, network(), tmp_path)
    model = {**place, "model": str(prepared)}
    [task, *_] = relax.request("extract", {**model, "out_dir": str(tmp_path / "d")}, timeout=60)["tasks"]
    _, trials = tune(relax, _round(model, task, tmp_path / "d"), tmp_path / "j", trials=3)
    assert [trial["error"] for trial in trials] == [None] * 3
    (tmp_path / "records.jsonl").write_text(trials[-1]["schedule"] + "\n")
    compiled = relax.request(
        "compile",
        {**model, "records": str(tmp_path / "records.jsonl"), "out_dir": str(tmp_path / "b")},
        timeout=120,
    )
    assert compiled["records"] == [trials[-1]["schedule"]]
    fed = asking.make_inputs(reference, specs, tmp_path)
    actual = asking.run(relax, tmp_path / "b", fed, tmp_path / "a.npz")
    [output] = asking.compare_with_model(reference, prepared, fed, actual)
    assert output["passed"]
