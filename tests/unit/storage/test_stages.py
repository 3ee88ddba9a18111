"""Results of stages are stored as JSON and read back as they were."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from sqlalchemy.orm import Session

from domain.jobs import Lease, Stage, Tuner
from domain.stage_results import (
    RESULTS,
    BaselineResult,
    ImportResult,
    PlanResult,
    StageResult,
    StageResults,
    Strategy,
    TuneResult,
)
from storage import codec, stages
from storage.tables import StageRow
from tests.support import stage_results
from tests.support.storage.factories import NOW

TIMES = {"started_at": NOW, "finished_at": NOW}


def test_every_stage_has_a_kind_of_result() -> None:
    assert set(RESULTS) == set(Stage)
    assert all(kind.stage is stage for stage, kind in RESULTS.items())


@pytest.mark.parametrize("stage", list(Stage))
def test_a_result_is_read_back_as_it_was(session: Session, held: tuple[str, Lease], stage: Stage) -> None:
    job_id, lease = held
    result = replace(stage_results.of(stage), placement=("llvm", "a device", "relay"), choice=("because",))
    assert stages.save(session, job_id, lease, result, **TIMES)
    session.flush()
    session.expire_all()
    assert stages.result(session, job_id, RESULTS[stage]) == result
    assert [each.result for each in stages.timeline(session, job_id)] == [result]


@pytest.mark.parametrize("stage", list(Stage))
def test_the_stored_names_are_those_of_the_fields(stage: Stage) -> None:
    result = stage_results.of(stage)
    assert list(json.loads(codec.to_json(codec.dump(result)))) == [each.name for each in fields(result)]


@pytest.mark.parametrize("stored", [{}, {"tuner": "none of ours"}, {"arms": [], "tuner": "autotvm"}])
def test_a_result_in_another_form_is_no_result(
    session: Session, held: tuple[str, Lease], stored: dict[str, Any]
) -> None:
    job_id, lease = held
    assert stages.save(session, job_id, lease, stage_results.of(Stage.PLAN), **TIMES)
    row = session.get(StageRow, (job_id, Stage.PLAN), populate_existing=True)
    assert row is not None
    row.outcome = stored
    session.flush()
    assert stages.result(session, job_id, PlanResult) is None
    assert [each.result for each in stages.timeline(session, job_id)] == [None]


def test_forgotten_results_are_gone(session: Session, held: tuple[str, Lease]) -> None:
    job_id, lease = held
    for stage in (Stage.COMPILE, Stage.VERIFY, Stage.BENCHMARK):
        assert stages.save(session, job_id, lease, stage_results.of(stage), **TIMES)
    stages.forget(session, job_id, (Stage.VERIFY, Stage.BENCHMARK))
    assert [each.stage for each in stages.timeline(session, job_id)] == [Stage.COMPILE]


def test_fields_of_a_newer_release_are_left_out() -> None:
    result = stage_results.of(Stage.TUNE)
    assert codec.try_load(TuneResult, {**codec.dump(result), "of_later": 1}) == result


def test_results_are_found_by_their_kind() -> None:
    imported = stage_results.made(ImportResult, choice=("imported",))
    results = StageResults([imported])
    assert (results.imported, results.find(ImportResult), results.find(TuneResult)) == (imported, imported, None)
    with pytest.raises(KeyError):
        _ = results.baseline
    baseline = stage_results.made(BaselineResult, choice=("first", "second"))
    results.add(baseline)
    assert results.baseline is baseline
    assert results.choice == ("imported", "first", "second")


def test_a_result_that_comes_again_takes_the_place_of_the_first() -> None:
    results = StageResults(stage_results.of(stage) for stage in Stage)
    again: StageResult = stage_results.made(TuneResult, tuner=Tuner.ANSOR)
    results.add(again)
    assert results.tune is again


def test_a_strategy_is_named_by_its_parts() -> None:
    plan = StageResults([stage_results.of(Stage.PLAN)]).plan
    assert [each.name for each in plan.strategies] == ["autotvm", "metaschedule NCHW", "metaschedule int8"]
    assert Strategy(tuner=Tuner.ANSOR).name == "ansor"
