from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from api.jobs.publishing import CeleryPublisher
from domain import dispatch, errors
from tests.support.api.factories import FakePublisher


@pytest.fixture(params=["celery", "fake"])
def unreachable(request: pytest.FixtureRequest, tmp_path: Path) -> CeleryPublisher | FakePublisher:
    if request.param == "fake":
        return FakePublisher(down=True)
    return CeleryPublisher(f"redis+socket://{tmp_path / 'nobody.sock'}?virtual_host=0")


def test_a_broker_that_is_not_there_is_told_quickly(unreachable: CeleryPublisher | FakePublisher) -> None:
    started = time.monotonic()
    with pytest.raises(errors.BrokerUnavailable):
        unreachable.ring()
    with pytest.raises(errors.BrokerUnavailable):
        unreachable.check()
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("redis://broker:6379/0", False),
        ("rediss://broker:6379/0", {"ssl_cert_reqs": ssl.CERT_REQUIRED}),
        ("rediss://broker:6379/0?ssl_ca_certs=/ca.pem", {"ssl_ca_certs": "/ca.pem"}),
        ("rediss://broker:6379/0?ssl_cert_reqs=none", {"ssl_cert_reqs": ssl.CERT_NONE}),
    ],
)
def test_the_certificate_of_a_broker_is_verified(url: str, options: object) -> None:
    publisher = CeleryPublisher(url)
    with publisher._app.connection_for_write() as connection:
        assert connection.ssl == options
    publisher.close()


def test_bells_do_not_pile_up_while_nobody_hears_them() -> None:
    publisher = CeleryPublisher("memory://")
    publisher.check()
    for _ in range(100):
        publisher.ring()
    with publisher._app.connection_for_read() as connection:
        queue = connection.SimpleQueue(dispatch.QUEUE)
        assert 1 <= queue.qsize() <= 16
        message = queue.get(timeout=5)
    assert (message.headers["task"], message.payload[0]) == (dispatch.BELL, [])
    publisher.close()
