from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert, text
from sqlalchemy.orm import Session

from domain.jobs import Job, Tuner
from domain.records import TrialError
from domain.stage_results import SearchedStrategy, TuneResult
from storage import events, jobs, records, stages, tuning_tasks
from storage.database import Database
from storage.tables import RecordRow, digest_of
from tests.support import stage_results
from tests.support.storage.factories import NOW, PLACED, PLACEMENT, add_job, key, leased, record, task


def test_records_come_back_as_they_were(session: Session) -> None:
    measured = record("dense", 1e-3, 3e-3, schedule='{"config": 1}')
    failed = record("conv", schedule='{"config": 2}', error=TrialError.BUILD_TIMEOUT)
    assert records.add(session, [measured, failed]) == 2
    assert records.of_job(session, "j-1") == [measured, failed]
    assert records.of_job(session, "j-1", "conv") == [failed]
    assert records.of_job(session, "j-2") == []


def test_a_trial_is_stored_once(session: Session) -> None:
    first = record("dense", 1e-3, schedule="a")
    assert records.add(session, [first, record("dense", 2e-3, schedule="a")]) == 1
    assert records.add(session, [first, record("dense", 3e-3, schedule="b"), record("conv", 1e-3, schedule="a")]) == 2
    assert records.add(session, [record("dense", 1e-3, schedule="a", job_id="j-2")]) == 1
    assert records.add(session, []) == 0
    assert records.of_job(session, "j-1", "dense")[0] == first
    assert records.count_of_job(session, "j-1") == 3


def test_many_records_are_stored_at_once(session: Session) -> None:
    many = [record("dense", 1e-3, schedule=str(number), trial_number=number) for number in range(1234)]
    assert records.add(session, many) == 1234
    assert records.of_job(session, "j-1") == many


def test_the_best_is_the_fastest_by_mean_that_worked(session: Session) -> None:
    fastest = record("dense", 1e-3, 1.5e-3, schedule="b", job_id="j-2", tuner="ansor")
    records.add(
        session,
        [
            record("dense", 1e-3, 2.5e-3, schedule="a"),
            fastest,
            record("dense", 1e-9, schedule="c", error=TrialError.WRONG_DEVICE),
            record("dense", schedule="d", error=TrialError.RUN_ERROR),
        ],
    )
    assert records.best(session, key("dense")) == fastest
    assert records.count(session, key("dense")) == 4
    by_autotvm = records.best_of_many(session, ["dense"], **PLACED, tuner="autotvm")
    assert by_autotvm["dense"].schedule == "a"


def test_the_top_of_many_come_fastest_first(session: Session) -> None:
    conv = [record("conv", seconds, schedule=str(seconds)) for seconds in (3e-3, 1e-3, 2e-3, 4e-3)]
    dense = record("dense", 5e-3, schedule="d")
    records.add(session, [*conv, dense, record("dense", schedule="e", error=TrialError.RUN_ERROR)])
    found = records.top_of_many(session, ["dense", "conv"], **PLACED, top=3)
    assert found == {"conv": [conv[1], conv[2], conv[0]], "dense": [dense]}


def test_of_equally_fast_records_the_oldest_come_first(session: Session) -> None:
    equal = [record("conv", 1e-3, schedule=str(number)) for number in range(5)]
    records.add(session, [record("conv", 2e-3, schedule="slow"), *equal])
    assert records.top_of_many(session, ["conv"], **PLACED, top=3) == {"conv": equal[:3]}
    assert records.best(session, key("conv")) == equal[0]


@pytest.mark.parametrize("identity", ["target", "device_key", "toolchain"])
def test_a_lookup_never_crosses_an_identity(session: Session, identity: str) -> None:
    records.add(session, [record("dense", 1e-3, **{identity: "another"})])
    assert records.best(session, key("dense")) is None
    assert records.best_of_many(session, ["dense"], **PLACED) == {}
    assert records.best(session, key("dense", **{identity: "another"}))


def test_the_best_of_many_leaves_out_what_has_none(session: Session) -> None:
    workloads = [f"conv {number}" for number in range(700)]
    records.add(session, [record(workload, 1e-3) for workload in workloads])
    records.add(session, [record("failed", error=TrialError.UNKNOWN)])
    found = records.best_of_many(session, [*workloads, "failed", "unknown"], **PLACED)
    assert sorted(found) == sorted(workloads)


def test_failures_are_counted(session: Session) -> None:
    kinds = [TrialError.RUN_ERROR, TrialError.RUN_ERROR, TrialError.BUILD_ERROR]
    records.add(session, [record("dense", schedule=str(n), error=kind) for n, kind in enumerate(kinds)])
    records.add(session, [record("dense", 1e-3, schedule="ok")])
    assert records.failures_of_job(session, "j-1") == {TrialError.RUN_ERROR: 2, TrialError.BUILD_ERROR: 1}


def test_a_plan_shows_what_its_records_say(session: Session) -> None:
    job_id, lease = leased(session)
    tuning_tasks.save_plan(session, job_id, [task(job_id, 1, "conv"), task(job_id, 0, "dense")])
    records.add(session, [record("conv", 1e-3, schedule="somebody's", job_id="j-other")])
    assert [planned.best_latency for planned in tuning_tasks.of_job(session, job_id)] == [None, None]
    jobs.set_placement(session, job_id, lease, PLACEMENT)
    mine = [
        record("conv", 2e-3, schedule="a", job_id=job_id),
        record("dense", 4e-3, schedule="a", job_id=job_id),
        record("dense", schedule="b", error=TrialError.RUN_TIMEOUT, job_id=job_id),
        record("dense", schedule="c", error=TrialError.RUN_TIMEOUT, job_id=job_id),
    ]
    records.add(session, mine)
    dense, conv = tuning_tasks.of_job(session, job_id)
    assert dense.extracted == task(job_id, 0, "dense").extracted
    assert (dense.trials_done, dense.best_latency, dense.failures) == (3, 4e-3, {"run_timeout": 2})
    assert (conv.trials_done, conv.best_latency, conv.failures) == (1, 1e-3, {})


def test_a_new_plan_replaces_the_old_one(session: Session) -> None:
    job_id = add_job(session).id
    tuning_tasks.save_plan(session, job_id, [task(job_id, 0), task(job_id, 1, "conv")])
    tuning_tasks.save_plan(session, job_id, [task(job_id, 0, trials_planned=99)])
    assert [planned.trials_planned for planned in tuning_tasks.of_job(session, job_id)] == [99]


def test_a_record_keeps_the_calibration_of_its_batch(session: Session) -> None:
    drifted, unknown = record("dense", 1e-3, schedule="a", calibration=1.2e-4), record("dense", 1e-3, schedule="b")
    records.add(session, [drifted, unknown])
    assert [stored.calibration for stored in records.of_job(session, "j-1")] == [1.2e-4, None]


@pytest.fixture
def many_records(sqlite_database: Database) -> Database:
    """Twelve records each of 200 workloads under two targets: SQLite plans the same for more."""
    target, device_key, toolchain = PLACED.values()
    columns = {"device_key": device_key, "toolchain": toolchain, "tuner": "autotvm", "schedule": "{}"}
    columns |= {"job_id": "j-1", "worker_id": "w"}
    workloads = [(f"conv {number}", digest_of(f"conv {number}")) for number in range(200)]
    rows = [
        columns
        | {
            "workload_key": workloads[number % 200][0],
            "workload_digest": workloads[number % 200][1],
            "target": target if number % 3 else "another",
            "schedule_digest": f"{number:064}",
            "latency": 1e-3 + number * 1e-9,
            "latencies": [1e-3],
            "trial_number": number,
            "finished_at": NOW,
        }
        for number in range(2_400)
    ]
    with sqlite_database.transaction() as session:
        session.execute(insert(RecordRow), rows)
    return sqlite_database


def plans(database: Database, ask: object) -> list[str]:
    """What SQLite says it does for each query that ``ask`` runs."""
    seen: list[tuple[str, object]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        seen.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with database.reading() as session:
            assert callable(ask)
            ask(session)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    with database.reading() as session:
        connection = session.connection()
        return [
            str(row[3])
            for statement, parameters in seen
            if statement.lstrip().startswith("SELECT")
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)  # type: ignore[arg-type]
        ]


def test_lookups_among_many_records_use_the_index(many_records: Database) -> None:
    workloads = [f"conv {number}" for number in range(43)]

    def look_up(session: Session) -> None:
        assert len(records.best_of_many(session, workloads, **PLACED)) == 43
        best = records.best(session, key("conv 1"))
        assert best
        assert best.trial_number == 1
        records.of_job(session, "j-2", "conv 1")
        tuning_tasks.of_job(session, "j-2")

    steps = plans(many_records, look_up)
    by_place = "ix_records_lookup (workload_digest=? AND target=? AND device_key=? AND toolchain=? AND latency>?"
    # Down to the slowest that is asked for, which the same index tells, and no further.
    assert len([step for step in steps if f"INDEX {by_place} AND latency<?)" in step]) == 2, steps
    assert len([step for step in steps if f"records_1 USING COVERING INDEX {by_place})" in step]) == 2, steps
    scans = [step for step in steps if step.startswith("SCAN") and "records" in step.lower()]
    assert scans == []


def test_counts_among_many_records_read_indexes_alone(many_records: Database) -> None:
    workloads = [f"conv {number}" for number in range(43)]

    def count(session: Session) -> None:
        assert sum(records.counts_of_many(session, workloads, **PLACED).values()) == 43 * 8
        assert sum(records.passed_over(session, workloads, **PLACED).values()) == 43 * 4

    steps = plans(many_records, count)
    assert len(steps) == 2
    assert all(step.startswith("SEARCH records USING COVERING INDEX") for step in steps), steps


def test_counts_leave_out_the_records_of_one_job(session: Session) -> None:
    conv = [record("conv", 1e-3, schedule=str(number), job_id=f"j-{number % 2}") for number in range(5)]
    records.add(
        session, [*conv, record("dense", 1e-3, job_id="j-0"), record("conv", 1e-3, job_id="j-0", target="another")]
    )
    assert records.counts_of_many(session, ["conv", "dense"], **PLACED) == {"conv": 5, "dense": 1}
    assert records.counts_of_many(session, ["conv", "dense"], **PLACED, excluding_job="j-0") == {"conv": 2}


def test_job_and_event_listings_use_an_index(sqlite_database: Database) -> None:
    def look_up(session: Session) -> None:
        jobs.page(session, state=None, limit=10)
        jobs.page(session, model_digest="x", limit=10)
        events.after(session, "j-1", 5, 10)

    steps = plans(sqlite_database, look_up)
    scans = [step for step in steps if step.startswith("SCAN") and "INDEX" not in step]
    assert not scans


def test_records_are_plain_columns(sqlite_database: Database) -> None:
    with sqlite_database.transaction() as session:
        records.add(session, [record("dense", 1e-3, 3e-3)])
    with sqlite_database.reading() as session:
        assert session.execute(text("SELECT latency, latencies, finished_at FROM records")).one() == (
            2e-3,
            "[0.001,0.003]",
            "2026-03-01 12:00:00.000000",
        )


def test_a_invalidated_schedule_is_a_failure_whoever_measured_it(session: Session) -> None:
    other_key = key("dense", device_key="another")
    ours, theirs = (
        record("dense", seconds, schedule="a", job_id=job) for seconds, job in ((1e-3, "j-1"), (2e-3, "j-2"))
    )
    slower, failed = record("dense", 5e-3, schedule="b"), record("dense", schedule="c", error=TrialError.RUN_ERROR)
    elsewhere = record("dense", 1e-3, schedule="a", job_id="j-3", device_key="another")
    records.add(session, [ours, theirs, slower, failed, elsewhere])
    asked = {"error": TrialError.WRONG_RESULT, "message": "off by 1", "rewrite": str.upper}
    assert records.invalidate(session, key("dense"), ours.schedule_digest, **asked) == 2
    assert records.invalidate(session, key("dense"), failed.schedule_digest, **asked) == 0
    assert records.best(session, key("dense")) == slower
    assert records.best(session, other_key) == elsewhere
    bad = [one for one in records.of_key(session, key("dense")) if one.error is TrialError.WRONG_RESULT]
    assert [(one.schedule, one.latencies, one.error_message) for one in bad] == [("A", (), "off by 1")] * 2
    assert records.failures_of_job(session, "j-2") == {TrialError.WRONG_RESULT: 1}


HERE = {name: PLACED[name] for name in ("device_key", "toolchain")}


def strategy(trials: int, seconds: float, tuner: str = "autotvm") -> SearchedStrategy:
    return SearchedStrategy(tuner=Tuner(tuner), trials=trials, seconds=seconds, estimate=None, verdict="")


def searched(session: Session, *strategies: SearchedStrategy, minutes: int = 0, ended: bool = True, **told: Any) -> Job:
    """A job that was created so many minutes after the first, and what its search came to."""
    made = add_job(session, now=NOW + timedelta(minutes=minutes))
    _, lease = leased(session, made.id)
    jobs.set_placement(session, made.id, lease, PLACEMENT)
    trials = sum(each.trials for each in strategies)
    jobs.set_progress(session, made.id, lease, trials_done=trials, trials_planned=trials)
    if ended:
        result = stage_results.made(TuneResult, trials=trials, strategies=strategies, **{"helpers": {}, **told})
        stages.save(session, made.id, lease, result, started_at=NOW, finished_at=NOW)
    return made


def test_nothing_is_known_of_a_device_without_trials(session: Session) -> None:
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") is None
    searched(session, strategy(31, 2.0))
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") is None, "31 trials tell too little"
    searched(session, strategy(0, 0.0))
    searched(session, strategy(64, 2.0), ended=False)
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") is None


def test_all_of_the_tuning_time_counts(session: Session) -> None:
    searched(session, strategy(32, 29.6))
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") == pytest.approx(0.925)
    assert records.seconds_a_trial(session, **HERE, tuner="ansor") is None
    for name in HERE:
        assert records.seconds_a_trial(session, **{**HERE, name: "other"}, tuner="autotvm") is None


def test_a_search_that_others_helped_with_tells_nothing(session: Session) -> None:
    searched(session, strategy(320, 29.6), helpers={"another": 9})
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") is None


def test_tuners_that_raced_in_one_job_are_told_apart(session: Session) -> None:
    searched(
        session,
        strategy(100, 50.0),
        strategy(200, 400.0, "ansor"),
        strategy(20, 30.0, "metaschedule"),
        strategy(100, 70.0),
    )
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") == pytest.approx(0.6)
    assert records.seconds_a_trial(session, **HERE, tuner="ansor") == pytest.approx(2.0)
    assert records.seconds_a_trial(session, **HERE, tuner="metaschedule") is None


def test_the_median_of_the_latest_jobs_counts(database: Database) -> None:
    with database.transaction() as session:
        for minutes, seconds in enumerate((9.0, 9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0)):
            searched(session, strategy(40, 40 * seconds), minutes=minutes)
        searched(session, strategy(40, 400.0, "ansor"), minutes=9)
    with database.reading() as session:
        assert records.seconds_a_trial(session, **HERE, tuner="autotvm") == pytest.approx(3.0)
