"""What is asked again, and what never."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.unit.tunesmith.flaky import Answer, flaky
from tunesmith import Client, errors, transport

PROBLEM = b'{"code": "rate_limited", "detail": "slowly", "status": 429}'
JOBS = Answer(body=b'{"jobs": [], "next_page_token": null}')
BROKEN = Answer(body=b"{}", breaks_after=0)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    return waited


@pytest.mark.parametrize(
    "trouble",
    [Answer(status=502), Answer(status=503), Answer(status=504), BROKEN,
     Answer(status=429, body=PROBLEM, headers={"Retry-After": "2"})],
)  # fmt: skip
def test_reading_is_tried_again(trouble: Answer, pauses: list[float]) -> None:
    with flaky(trouble, trouble, JOBS) as server, Client(server.url) as client:
        assert list(client.jobs()) == []
    assert len(server.asked) == 3
    asked = 2.0 if trouble.status == 429 else 0.0
    assert [pause >= asked for pause in pauses] == [True, True]
    assert pauses[1] >= pauses[0]


@pytest.mark.parametrize("status", [400, 401, 404, 409, 429, 500])
def test_what_will_not_get_better_is_not(status: int) -> None:
    answer = Answer(status=status, body=PROBLEM)
    with flaky(answer) as server, Client(server.url) as client, pytest.raises(errors.TunesmithError) as caught:
        list(client.jobs())
    assert (len(server.asked), caught.value.code) == (1, "rate_limited")


def test_a_server_that_wants_hours_is_not_waited_for() -> None:
    hours = Answer(status=429, body=PROBLEM, headers={"Retry-After": "7200"})
    with flaky(hours) as server, Client(server.url) as client, pytest.raises(errors.TooMuch) as caught:
        list(client.jobs())
    assert (len(server.asked), caught.value.retry_after) == (1, 7200.0)


def test_patience_ends() -> None:
    busy = Answer(status=503)
    with flaky(busy) as server, Client(server.url, retries=2) as client, pytest.raises(errors.ServerError):
        list(client.jobs())
    assert len(server.asked) == 3
    with Client("http://127.0.0.1:9", retries=0) as client, pytest.raises(errors.ServerUnreachable):
        list(client.jobs())


def test_a_job_is_asked_for_again_under_one_key() -> None:
    made = Answer(status=202, body=b'{"id": "j-1", "state": "queued"}')
    with flaky(BROKEN, Answer(status=503), made) as server, Client(server.url) as client:
        assert client.tune("m-1", budget="10m").id == "j-1"
        assert client.tune("m-1").id == "j-1"
    keys = [headers["idempotency-key"] for _, _, headers in server.asked]
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]


@pytest.mark.parametrize("trouble", [BROKEN, Answer(status=503)])
def test_what_could_happen_twice_is_not_repeated(trouble: Answer) -> None:
    job = Answer(body=b'{"id": "j-1", "state": "failed"}')
    with flaky(job, trouble) as server, Client(server.url) as client:
        found = client.job("j-1")
        with pytest.raises(errors.NetworkError):
            found.retry()
    assert [method for method, _, _ in server.asked] == ["GET", "POST"]


def test_retry_after_is_seconds_or_a_date() -> None:
    at = datetime.now(UTC) + timedelta(seconds=90)
    assert transport.asked_to_wait({"Retry-After": "7"}) == 7
    assert 80 < (transport.asked_to_wait({"Retry-After": format_datetime(at, usegmt=True)}) or 0) <= 90
    assert transport.asked_to_wait({"Retry-After": "Sun, 06 Nov 1994 08:49:37 -0000"}) == 0
    for text in ("soon", "", "-3", "1.5"):
        assert transport.asked_to_wait({"Retry-After": text}) is None
