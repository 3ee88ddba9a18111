"""A job's trials as numbers, and what was known of their workloads before."""

from __future__ import annotations

from sqlalchemy.orm import Session

from domain.records import TrialError
from storage import convergence, records
from storage.tables import digest_of
from tests.support.storage.factories import NOW, PLACEMENT, record


def test_trials_come_in_the_order_of_storing(session: Session) -> None:
    records.add(session, [record("conv", 2e-3, 4e-3, schedule="a"), record("dense", 1e-3, schedule="b")])
    records.add(session, [record("conv", 9.0, schedule="c", job_id="j-2")])
    records.add(session, [record("conv", error=TrialError.RUN_TIMEOUT, schedule="d")])
    found = convergence.trials_of_job(session, "j-1")
    assert [trial.record_id for trial in found] == sorted(trial.record_id for trial in found)
    assert [(trial.workload_digest, trial.latency) for trial in found] == [
        (digest_of("conv"), 3e-3),
        (digest_of("dense"), 1e-3),
        (digest_of("conv"), None),
    ]
    assert {(trial.tuner, trial.at) for trial in found} == {("autotvm", NOW)}
    assert convergence.first_id(session, "j-1") == found[0].record_id
    assert convergence.first_id(session, "j-9") is None


def test_the_first_record_ever_may_be_anybodys_and_failed(session: Session) -> None:
    records.add(session, [record("conv", error=TrialError.BUILD_ERROR, schedule="a", job_id="j-0")])
    records.add(session, [record("dense", 5e-3, schedule="b", job_id="j-0", target="llvm -mcpu=other")])
    records.add(session, [record("conv", 1e-3, schedule="c"), record("dense", 2e-3, schedule="d", tuner="ansor")])
    wanted = [digest_of(name) for name in ("conv", "dense", "pool")]
    found = convergence.first_ever(session, wanted, PLACEMENT)
    assert {digest: (trial.latency, trial.tuner) for digest, trial in found.items()} == {
        digest_of("conv"): (None, "autotvm"),
        digest_of("dense"): (2e-3, "ansor"),
    }


def test_what_was_best_before_a_record(session: Session) -> None:
    records.add(
        session, [record("conv", 3e-3, schedule="a", job_id="j-0"), record("conv", 2e-3, schedule="b", job_id="j-0")]
    )
    records.add(session, [record("conv", 1e-9, schedule="c", job_id="j-0", device_key="another")])
    records.add(session, [record("dense", error=TrialError.RUN_ERROR, schedule="d", job_id="j-0")])
    records.add(session, [record("conv", 1e-3, schedule="e")])
    first = convergence.first_id(session, "j-1")
    assert first is not None
    digests = [digest_of("conv"), digest_of("dense")]
    assert convergence.best_before(session, digests, PLACEMENT, record_id=first) == {digest_of("conv"): 2e-3}
    assert convergence.best_before(session, digests, PLACEMENT, record_id=first + 1) == {digest_of("conv"): 1e-3}
