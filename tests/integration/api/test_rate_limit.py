"""Callers that ask too often, or try too many tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from api.middleware.rate_limit import Buckets, address
from tests.support.api import callers
from tests.support.api.factories import AUTHORIZED, Service, open_service

SLOW: dict[str, Any] = {"rate_per_second": 0.001, "failures_per_second": 0.001}


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Service]:
    """Five requests, three failures, and then none for a quarter of an hour."""
    with open_service(tmp_path, rate_burst=5, failures_burst=3, **SLOW) as service:
        yield service


@pytest.fixture
def client(strict: Service) -> Iterator[TestClient]:
    with TestClient(strict.app, follow_redirects=False) as client:
        yield client


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_holds_a_burst_and_fills_again() -> None:
    clock = Clock()
    buckets = Buckets(per_second=2, burst=3, clock=clock)
    assert [buckets.take("a") for _ in range(5)] == [0, 0, 0, 0.5, 0.5]
    assert buckets.wait("a") == 0.5
    assert buckets.wait("b") == buckets.take("b") == 0
    clock.now += 0.75
    assert buckets.wait("a") == 0
    assert [buckets.take("a") for _ in range(2)] == [0, 0.25]
    clock.now += 3600
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]


def test_buckets_take_a_bounded_place() -> None:
    buckets = Buckets(per_second=0.001, burst=1, most_keys=3)
    for key in "abcdefgh":
        assert buckets.take(key) == 0
        assert buckets.take(key) > 0
    assert len(buckets) == 3
    assert buckets.take("a") == 0


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("testclient", "testclient"),
        (None, ""),
    ],
)
def test_an_ipv6_network_is_one_address(host: str | None, key: str) -> None:
    assert address({"type": "http", "client": (host, 1) if host else None}) == key


def test_a_token_that_asks_too_often_waits(strict: Service, client: TestClient) -> None:
    ann, bob = callers.headers(strict), callers.headers(strict, owner="bob")
    answers = [client.get("/v1/models", headers=ann) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert answers[-1].json()["code"] == "rate_limited"
    assert answers[-1].json()["hint"]
    seconds = int(answers[-1].headers["retry-after"])
    assert 900 < seconds <= 1000
    assert answers[-1].json()["details"] == {"retry_after_seconds": seconds}
    for headers in (bob, AUTHORIZED):
        assert client.get("/v1/models", headers=headers).status_code == 200


def test_without_a_token_the_address_counts(client: TestClient) -> None:
    answers = [client.get("/v1/models").status_code for _ in range(6)]
    assert answers == [401] * 5 + [429]
    assert client.get("/readyz").status_code == 429
    assert client.get("/healthz").status_code == 200
    assert client.get("/v1/models", headers=AUTHORIZED).status_code == 200


def test_a_stream_of_events_counts_once(strict: Service, client: TestClient) -> None:
    model = client.put("/v1/models", content=b"static model", headers=AUTHORIZED).json()["id"]
    job = client.post("/v1/jobs", json={"model": model}, headers=AUTHORIZED).json()["id"]
    client.post(f"/v1/jobs/{job}:cancel", headers=AUTHORIZED)
    with client.stream("GET", f"/v1/jobs/{job}/events", headers=AUTHORIZED) as answer:
        assert len(list(answer.iter_lines())) > 5
    assert client.get("/v1/models", headers=AUTHORIZED).status_code == 200
    assert client.get("/v1/models", headers=AUTHORIZED).status_code == 429


def test_whoever_guesses_waits_and_locks_nobody_out(strict: Service, client: TestClient) -> None:
    known, unknown = callers.headers(strict), callers.headers(strict, owner="bob")
    assert client.get("/v1/models", headers=known).status_code == 200
    link = client.post("/v1/login-links", headers=known).json()["url"]
    guesses = [client.get("/v1/models", headers={"Authorization": f"Bearer tsk_{n}"}) for n in range(4)]
    assert [guess.status_code for guess in guesses] == [401, 401, 401, 429]
    assert int(guesses[-1].headers["retry-after"]) > 900
    assert client.get("/v1/models", headers={"Cookie": "tunesmith_session=guess"}).status_code == 429
    for headers in (known, unknown):
        assert client.get("/v1/models", headers=headers).status_code == 200
    assert client.get(link, follow_redirects=False).status_code == 303


def test_a_short_token_of_the_service_is_not_tried_out(strict: Service, client: TestClient) -> None:
    for n in range(4):
        client.get("/v1/models", headers={"Authorization": f"Bearer {n}"})
    assert client.get("/v1/models", headers=AUTHORIZED).status_code == 429
    with (
        open_service(strict.home, failures_burst=3, token=SecretStr("x" * 24), **SLOW) as long,
        TestClient(long.app) as other,
    ):
        for n in range(4):
            other.get("/v1/models", headers={"Authorization": f"Bearer {n}"})
        assert other.get("/v1/models", headers={"Authorization": f"Bearer {'x' * 24}"}).status_code == 200


def test_login_links_cannot_be_guessed_fast(client: TestClient) -> None:
    assert [client.get(f"/login?code={n}").status_code for n in range(4)] == [401, 401, 401, 429]
