from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from domain.jobs import Job
from storage import jobs, rates, records
from storage.database import Database
from tests.storage.factories import DEVICE, NOW, PLACEMENT, TOOLCHAIN, add_job, record

HERE = {"device_key": DEVICE.key, "toolchain": TOOLCHAIN.identity}


def measured(session: Session, *gaps: float, minutes: int = 0) -> Job:
    """A job that was created so many minutes after the first, whose trials ended with these gaps in seconds."""
    made = add_job(session, now=NOW + timedelta(minutes=minutes))
    claimed = jobs.claim(session, made.id, worker_id="w", now=NOW, lease_seconds=60, max_attempts=3)
    assert claimed is not None
    assert claimed.lease is not None
    jobs.set_placement(session, made.id, claimed.lease, PLACEMENT)
    at, trials = NOW, []
    for number, gap in enumerate((0.0, *gaps)):
        at += timedelta(seconds=gap)
        trials.append(replace(record("dense", 1e-3, schedule=str(number), job_id=made.id), finished_at=at))
    records.add(session, trials)
    jobs.set_progress(session, made.id, claimed.lease, trials_done=len(trials), trials_planned=len(trials))
    return made


def test_nothing_is_known_of_a_device_without_trials(session: Session) -> None:
    assert rates.seconds_a_trial(session, **HERE, tuner="autotvm") is None
    measured(session, 1.0, 1.0)
    assert rates.seconds_a_trial(session, **HERE, tuner="autotvm") is None, "three trials tell too little"


def test_a_pause_does_not_count(session: Session) -> None:
    measured(session, *[0.4, 0.2] * 6, 3600.0)
    assert rates.seconds_a_trial(session, **HERE, tuner="autotvm") == pytest.approx(0.3)
    assert rates.seconds_a_trial(session, **HERE, tuner="ansor") is None
    assert rates.seconds_a_trial(session, device_key="other", toolchain=TOOLCHAIN.identity, tuner="autotvm") is None


def test_the_median_of_the_latest_jobs_counts(database: Database) -> None:
    with database.transaction() as session:
        for minutes, seconds in enumerate((9.0, 9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0)):
            measured(session, *[seconds] * 10, minutes=minutes)
    with database.reading() as session:
        assert rates.seconds_a_trial(session, **HERE, tuner="autotvm") == pytest.approx(3.0)
