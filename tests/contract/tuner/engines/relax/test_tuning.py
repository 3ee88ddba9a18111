from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.tuning_tasks import ENDLESS
from tests.support import models
from tests.support.tuner.engines.fixtures import start
from tests.support.tuner.engines.relax import networks
from tuner import catalogue, environments
from tuner.session import EngineSession

pytestmark = pytest.mark.engine

MEASURE = {"number": 1, "repeat": 1, "min_repeat_ms": 1, "timeout": 20.0, "n_parallel": 2}

PLAIN_TVM = """
import json, sys
from pathlib import Path
from tvm.s_tir import meta_schedule
database = meta_schedule.database.JSONDatabase(work_dir=sys.argv[1])
[best] = database.get_top_k(database.commit_workload(database.get_all_tuning_records()[0].workload.mod), 1)
print(len(database), float(best.run_secs[0]))
"""

Trials = list[dict[str, Any]]


def _tune(engine: EngineSession, params: dict[str, Any], journal: Path, **more: Any) -> tuple[dict[str, Any], Trials]:
    trials: Trials = []

    def keep(kind: str, data: dict[str, Any]) -> None:
        if kind == "trial":
            # The engine may be further already; what it told is there.
            assert json.dumps(data, separators=(",", ":")) in journal.read_text().splitlines()
            trials.append(data)

    request = {
        "trials": 4,
        "measure": MEASURE,
        "history": None,
        "journal": str(journal),
        "seconds": None,
        "first_trial": 0,
        **params,
        **more,
    }
    return engine.request("tune", request, timeout=120, on_event=keep), trials


@pytest.fixture(scope="module")
def convolution(place: dict[str, Any], tasks: list[dict[str, Any]], definitions: Path) -> dict[str, Any]:
    """The params of a round for the first convolution."""
    return _round(place, tasks[0], definitions)


def _prepare(
    reference: EngineSession, place: dict[str, Any], content: bytes, folder: Path
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The shared params for another model, and the specs of its inputs."""
    (folder / "model.onnx").write_bytes(content)
    prepared = str(folder / "prepared.onnx")
    params = {"path": str(folder / "model.onnx"), "input_shapes": {}, "out_path": prepared}
    specs: list[dict[str, Any]] = reference.request("prepare", params, timeout=60)["inputs"]
    return {**place, "model": prepared}, specs


def _round(place: dict[str, Any], task: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {**place, "workload_key": task["workload_key"], "task": str(folder / task["definition"])}


@pytest.fixture(scope="module")
def first_round(
    relax: EngineSession, convolution: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Trials]:
    return _tune(relax, convolution, tmp_path_factory.mktemp("first") / "journal.jsonl", trials=8)


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
    (tmp_path / "model.onnx").write_bytes(models.small_network(seed=1))
    params = {
        "path": str(tmp_path / "model.onnx"),
        "input_shapes": {"image": [1, 3, 16, 16]},
        "out_path": str(tmp_path / "p.onnx"),
    }
    reference.request("prepare", params, timeout=60)
    extract = {**place, "model": str(tmp_path / "p.onnx"), "out_dir": str(tmp_path / "d")}
    others = relax.request("extract", extract, timeout=120)["tasks"]
    assert [task["workload_key"] for task in others] == [task["workload_key"] for task in tasks]


@pytest.mark.smoke
def test_a_round_measures_the_default_first(first_round: tuple[dict[str, Any], Trials]) -> None:
    answer, trials = first_round
    assert answer == {"trials": 8, "exhausted": False, "reason": "trials", "spent": answer["spent"]}
    assert [trial["default"] for trial in trials] == [True] + [False] * 7
    assert [trial["trial_number"] for trial in trials] == list(range(8))
    assert len({trial["schedule_digest"] for trial in trials}) == 8
    assert not any(trial["error"] for trial in trials)
    assert all(0 < latency < 1 for trial in trials for latency in trial["latencies"])


@pytest.mark.smoke
def test_rounds_go_on_where_the_last_one_ended(
    relax: EngineSession, convolution: dict[str, Any], first_round: tuple[dict[str, Any], Trials], tmp_path: Path
) -> None:
    # More than one generation.
    _, trials = _tune(relax, convolution, tmp_path / "journal.jsonl", first_trial=8, trials=12)
    assert [trial["trial_number"] for trial in trials] == list(range(8, 20))
    before = {trial["schedule_digest"] for trial in first_round[1]}
    assert not before & {trial["schedule_digest"] for trial in trials}


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
        answer, trials = _tune(
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
    home = Path(os.environ.get("TUNESMITH_HOME") or Path.home() / ".local" / "share" / "tunesmith")
    python = environments.interpreter(catalogue.get("relax"), home)
    command = [str(python), "-c", PLAIN_TVM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    count, best = done.stdout.split()
    assert int(count) == 8
    assert float(best) == pytest.approx(min(trial["latencies"][0] for trial in first_round[1]))


def test_seconds_end_a_round(relax: EngineSession, convolution: dict[str, Any], tmp_path: Path) -> None:
    answer, _ = _tune(relax, convolution, tmp_path / "b", trials=500, options={"n_trial": 500}, seconds=0.01)
    assert (answer["exhausted"], answer["reason"]) == (False, "seconds")
    assert answer["trials"] < 50


def test_early_stopping_ends_a_task(relax: EngineSession, convolution: dict[str, Any], tmp_path: Path) -> None:
    answer, trials = _tune(relax, convolution, tmp_path / "j", trials=200, options={"early_stopping": 2})
    assert (answer["exhausted"], answer["reason"]) == (True, "early_stopping")
    assert len(trials) < 200


def test_a_small_space_is_exhausted(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    model, _ = _prepare(reference, place, networks.matmul(rows=1, inner=2, columns=1), tmp_path)
    [task] = relax.request("extract", {**model, "out_dir": str(tmp_path / "d")}, timeout=60)["tasks"]
    smallest = _round(model, task, tmp_path / "d")
    answer, trials = _tune(relax, smallest, tmp_path / "j", trials=300)
    assert (answer["exhausted"], answer["reason"], answer["trials"]) == (True, "space", len(trials))
    assert 1 < len(trials) < 300
    again, more = _tune(relax, smallest, tmp_path / "j", trials=10, first_trial=len(trials))
    assert (again["trials"], again["exhausted"], more) == (0, True, [])


def test_trials_that_take_too_long_are_recorded(
    relax: EngineSession, convolution: dict[str, Any], tmp_path: Path
) -> None:
    measure = {**MEASURE, "timeout": 0.001}
    _, trials = _tune(relax, convolution, tmp_path / "j", trials=2, measure=measure, options={"n_trial": 2})
    assert [trial["error"] for trial in trials] == ["build_timeout"] * 2
    assert all(json.loads(trial["schedule"])[1][1] == [1e10] for trial in trials)
    assert all(trial["latencies"] == [] for trial in trials)


def test_an_unknown_workload_is_refused(relax: EngineSession, convolution: dict[str, Any], tmp_path: Path) -> None:
    for wrong in ({"workload_key": "17"}, {"task": None}, {"task": str(tmp_path / "none.json")}):
        with pytest.raises(errors.EngineRequestFailed) as caught:
            _tune(relax, {**convolution, "options": {"n_trial": 1}, **wrong}, tmp_path / "j")
        assert caught.value.engine_code == "unknown_workload"


@pytest.mark.smoke
def test_records_change_the_compiled_module(
    relax: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    first_round: tuple[dict[str, Any], Trials],
    untuned: Path,
    inputs: list[Path],
    tmp_path: Path,
) -> None:
    # A search's own schedules lay weights out anew.
    other = next(trial for trial in first_round[1] if "TransformLayout" in trial["schedule"])
    # Broken ones are passed over, and so are those of other workloads.
    broken = json.loads(other["schedule"])
    broken[1][0][0][0][2] = ["no such block", "main"]
    broken[1][1] = [1e-12]
    lines = [json.dumps(broken), json.dumps(["1234", broken[1]]), other["schedule"]]
    (tmp_path / "records.jsonl").write_text("".join(line + "\n" for line in lines))
    tuned = tmp_path / "tuned"
    params = {**place, "records": str(tmp_path / "records.jsonl"), "out_dir": str(tuned)}
    answer = relax.request("compile", params, timeout=120)
    assert answer["files"] == ["mod.so", "mod.json"]
    assert answer["records"] == [other["schedule"]]
    assert (tuned / "mod.so").read_bytes() != (untuned / "mod.so").read_bytes()
    outputs = []
    for bundle in (untuned, tuned):
        outputs.append(tmp_path / f"{bundle.name}.npz")
        run = {"bundle": str(bundle), "inputs": str(inputs[0]), "outputs": str(outputs[-1]), "threads": 1}
        relax.request("run", run, timeout=60)
    pair = {"expected": str(outputs[0]), "actual": str(outputs[1])}
    [output] = reference.request("compare", pair, timeout=60)["outputs"]
    assert output["passed"]


@pytest.mark.parametrize("network", [networks.matmul, networks.convolution], ids=["matmul", "convolution"])
def test_one_operator_is_tuned_like_a_model(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, network: Any
) -> None:
    model, specs = _prepare(reference, place, network(), tmp_path)
    [task, *_] = relax.request("extract", {**model, "out_dir": str(tmp_path / "d")}, timeout=60)["tasks"]
    _, trials = _tune(relax, _round(model, task, tmp_path / "d"), tmp_path / "j", trials=3)
    assert [trial["error"] for trial in trials] == [None] * 3
    (tmp_path / "records.jsonl").write_text(trials[-1]["schedule"] + "\n")
    compiled = relax.request(
        "compile",
        {**model, "records": str(tmp_path / "records.jsonl"), "out_dir": str(tmp_path / "b")},
        timeout=120,
    )
    assert compiled["records"] == [trials[-1]["schedule"]]
    made = {"inputs": specs, "seeds": [0], "out_dir": str(tmp_path)}
    [fed] = reference.request("make_inputs", made, timeout=60)["paths"]
    run = {"bundle": str(tmp_path / "b"), "inputs": fed, "outputs": str(tmp_path / "a.npz"), "threads": 1}
    relax.request("run", run, timeout=60)
    expected = {"path": model["model"], "inputs": fed, "outputs": str(tmp_path / "e.npz"), "threads": 1}
    reference.request("run", expected, timeout=60)
    pair = {"expected": str(tmp_path / "e.npz"), "actual": str(tmp_path / "a.npz")}
    [output] = reference.request("compare", pair, timeout=60)["outputs"]
    assert output["passed"]
