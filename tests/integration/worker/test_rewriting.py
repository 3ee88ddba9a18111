"""Tuned builds are of the rewritten model, untuned ones of the model as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.jobs import Tuner, TunerOptions
from domain.stage_results import ImportResult
from tests.support.worker.fixtures import Bench

OPTIONS: dict[str, Any] = {"tuner": Tuner.AUTOTVM, "trials": 4}


def run(bench: Bench, **request: Any) -> str:
    return bench.succeed(**{**OPTIONS, **request})


def built(bench: Bench) -> set[tuple[str, str | None, str, bool]]:
    """Method, tuner, model and ``rewrite`` of what builds were asked for."""
    return {
        (method, params["tuner"], Path(params["model"]).name, params["rewrite"])
        for method, params in bench.script.requests
        if method in ("extract", "tune", "compile")
    }


def test_tuning_is_of_the_rewritten_model_and_is_compared_with_the_model(bench: Bench) -> None:
    bench.script.rewritings = {"transposed": 1, "aligned": 12, "else": 2}
    job_id = run(bench)
    assert built(bench) == {
        ("compile", None, "prepared.onnx", False),
        ("extract", "autotvm", "rewritten.onnx", True),
        ("tune", "autotvm", "rewritten.onnx", True),
        ("compile", "autotvm", "rewritten.onnx", True),
    }
    (asked,) = bench.script.asked("rewrite")
    assert (asked["engine"], asked["lanes"], Path(asked["path"]).name) == ("onnx", 16, "prepared.onnx")
    did = "1 transposed convolution replaced by a plain one, 12 layers padded to whole vectors, 2 places by else"
    told = f"rewritten for tuning: {did}"
    assert told in bench.notes(job_id)
    result = bench.result(job_id, ImportResult)
    assert (result.rewritings, result.rewritten) == (bench.script.rewritings, ("relay",))
    assert result.choice == (f"The model was {told}.",)
    assert {"prepared.onnx", "rewritten.onnx"} == set(result.files)


@pytest.mark.parametrize(("rewritings", "wanted"), [({}, True), ({"aligned": 1}, False)])
def test_what_need_not_or_must_not_be_rewritten_stays(bench: Bench, rewritings: dict[str, int], wanted: bool) -> None:
    bench.script.rewritings = rewritings
    job_id = run(bench, tuner_options=TunerOptions(rewrite=wanted))
    assert len(bench.script.asked("rewrite")) == int(wanted)
    assert {entry[2] for entry in built(bench)} == {"prepared.onnx"}
    assert {(tuner is not None and wanted) == rewrite for _, tuner, _, rewrite in built(bench)} == {True}
    assert not any("rewritten" in note for note in bench.notes(job_id))


def test_a_rewriting_that_fails_or_cannot_be_imported_costs_nothing_else(bench: Bench) -> None:
    bench.script.rewritings = {"aligned": 1}
    failing = "rewrite"

    def refuse(method: str, params: dict[str, Any]) -> None:
        if method == failing and (method == "rewrite" or Path(params["model"]).name == "rewritten.onnx"):
            raise errors.EngineRequestFailed("import_failed", "no")

    bench.script.refuse = refuse
    job_id = run(bench)
    assert "cannot rewrite the model for tuning: no" in " ".join(bench.notes(job_id))
    failing = "check"
    job_id = run(bench, content=b"another model")
    assert "the relay engine cannot import the rewritten model" in " ".join(bench.notes(job_id))
    assert {entry[2] for entry in built(bench)} == {"prepared.onnx"}


def test_tasks_of_the_rewritten_model_are_no_others(bench: Bench) -> None:
    bench.script.rewritings = {"aligned": 1}
    run(bench)
    run(bench, tuner_options=TunerOptions(rewrite=False))
    bench.script.rewritings = {"aligned": 2}
    run(bench)
    assert [Path(asked["model"]).name for asked in bench.script.asked("extract")] == ["rewritten.onnx", "prepared.onnx"]
