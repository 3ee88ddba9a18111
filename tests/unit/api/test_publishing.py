from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.publishing import CeleryPublisher
from domain import dispatch, errors
from domain.jobs import Budget, Job, JobRequest, JobState
from tests.support.api.factories import FakePublisher


def job(target: str = "native") -> Job:
    request = JobRequest(model_digest="0" * 64, budget=Budget(trials=8), target=target, priority=0)
    return Job(
        owner="local",
        id="j-1",
        request=request,
        state=JobState.QUEUED,
        stage=None,
        failure=None,
        placement=None,
        lease=None,
        attempts=0,
        trials_done=0,
        trials_planned=0,
        artifact_id=None,
        created_at=datetime.now(UTC),
        started_at=None,
        finished_at=None,
    )


@pytest.fixture(params=["celery", "fake"])
def unreachable(request: pytest.FixtureRequest, tmp_path: Path) -> CeleryPublisher | FakePublisher:
    if request.param == "fake":
        return FakePublisher(down=True)
    return CeleryPublisher(f"redis+socket://{tmp_path / 'nobody.sock'}?virtual_host=0")


def test_a_broker_that_is_not_there_is_told_quickly(unreachable: CeleryPublisher | FakePublisher) -> None:
    started = time.monotonic()
    with pytest.raises(errors.BrokerUnavailable):
        unreachable.publish(job())
    with pytest.raises(errors.BrokerUnavailable):
        unreachable.check()
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(("target", "queue"), [("native", dispatch.QUEUE), ("cuda -arch=sm_90", dispatch.CUDA_QUEUE)])
def test_a_message_names_the_task_and_the_job(target: str, queue: str) -> None:
    publisher = CeleryPublisher("memory://")
    publisher.check()
    publisher.publish(job(target))
    with publisher._app.connection_for_read() as connection:
        message = connection.SimpleQueue(queue).get(timeout=5)
    assert (message.headers["task"], message.payload[0]) == (dispatch.RUN_JOB, ["j-1"])
    void_after = datetime.fromisoformat(message.headers["expires"]) - datetime.now(UTC)
    assert timedelta(hours=23) < void_after <= timedelta(hours=24)
    publisher.close()
