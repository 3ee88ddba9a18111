from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from domain.jobs import Job, Stage
from storage import jobs, records, stages
from storage.database import Database
from tests.support.storage.factories import DEVICE, NOW, PLACEMENT, TOOLCHAIN, add_job

HERE = {"device_key": DEVICE.key, "toolchain": TOOLCHAIN.identity}


def arm(trials: int, seconds: float, tuner: str = "autotvm") -> dict[str, Any]:
    """As the stage ``tune`` tells it."""
    return {"tuner": tuner, "trials": trials, "seconds": seconds}


def searched(session: Session, *arms: dict[str, Any], minutes: int = 0, ended: bool = True, **told: Any) -> Job:
    """A job that was created so many minutes after the first, and what its search came to."""
    made = add_job(session, now=NOW + timedelta(minutes=minutes))
    claimed = jobs.claim(session, made.id, worker_id="w", now=NOW, lease_seconds=60, max_attempts=3)
    assert claimed is not None
    assert claimed.lease is not None
    jobs.set_placement(session, made.id, claimed.lease, PLACEMENT)
    trials = sum(each["trials"] for each in arms)
    jobs.set_progress(session, made.id, claimed.lease, trials_done=trials, trials_planned=trials)
    if ended:
        outcome = {"trials": trials, "arms": list(arms), **told}
        stages.save(session, made.id, claimed.lease, Stage.TUNE, outcome, started_at=NOW, finished_at=NOW)
    return made


def test_nothing_is_known_of_a_device_without_trials(session: Session) -> None:
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") is None
    searched(session, arm(31, 2.0))
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") is None, "31 trials tell too little"
    searched(session, arm(0, 0.0))
    searched(session, arm(64, 2.0), ended=False)
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") is None


def test_all_of_the_tuning_time_counts(session: Session) -> None:
    searched(session, arm(32, 29.6))
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") == pytest.approx(0.925)
    assert records.seconds_a_trial(session, **HERE, tuner="ansor") is None
    assert records.seconds_a_trial(session, device_key="other", toolchain=TOOLCHAIN.identity, tuner="autotvm") is None
    assert records.seconds_a_trial(session, device_key=DEVICE.key, toolchain="other", tuner="autotvm") is None


def test_a_search_that_others_helped_with_tells_nothing(session: Session) -> None:
    searched(session, arm(320, 29.6), helpers={"another": 9})
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") is None


def test_tuners_that_raced_in_one_job_are_told_apart(session: Session) -> None:
    searched(session, arm(100, 50.0), arm(200, 400.0, "ansor"), arm(20, 30.0, "metaschedule"), arm(100, 70.0))
    assert records.seconds_a_trial(session, **HERE, tuner="autotvm") == pytest.approx(0.6)
    assert records.seconds_a_trial(session, **HERE, tuner="ansor") == pytest.approx(2.0)
    assert records.seconds_a_trial(session, **HERE, tuner="metaschedule") is None


def test_the_median_of_the_latest_jobs_counts(database: Database) -> None:
    with database.transaction() as session:
        for minutes, seconds in enumerate((9.0, 9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0)):
            searched(session, arm(40, 40 * seconds), minutes=minutes)
        searched(session, arm(40, 400.0, "ansor"), minutes=9)
    with database.reading() as session:
        assert records.seconds_a_trial(session, **HERE, tuner="autotvm") == pytest.approx(3.0)
