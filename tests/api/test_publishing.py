from __future__ import annotations

import time
from pathlib import Path

import pytest

from api.publishing import CeleryPublisher
from domain import dispatch, errors
from tests.api.factories import FakePublisher


@pytest.fixture(params=["celery", "fake"])
def unreachable(request: pytest.FixtureRequest, tmp_path: Path) -> CeleryPublisher | FakePublisher:
    if request.param == "fake":
        return FakePublisher(down=True)
    return CeleryPublisher(f"redis+socket://{tmp_path / 'nobody.sock'}?virtual_host=0")


def test_a_broker_that_is_not_there_is_told_quickly(unreachable: CeleryPublisher | FakePublisher) -> None:
    started = time.monotonic()
    with pytest.raises(errors.BrokerUnavailable):
        unreachable.publish("j-1", 5)
    with pytest.raises(errors.BrokerUnavailable):
        unreachable.check()
    assert time.monotonic() - started < 10


def test_a_message_names_the_task_and_the_job() -> None:
    publisher = CeleryPublisher("memory://")
    publisher.check()
    publisher.publish("j-1", 0)
    with publisher._app.connection_for_read() as connection:
        message = connection.SimpleQueue(dispatch.QUEUE).get(timeout=5)
    assert (message.headers["task"], message.payload[0]) == (dispatch.RUN_JOB, ["j-1"])
    publisher.close()
