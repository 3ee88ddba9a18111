"""What the fleet says of workers, and of what is wrong with them taken together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from domain import release
from storage import statements
from storage.tables import JobRow
from tests.support.api.factories import SHAPES, Service
from tests.support.api.scripted import ScriptedWorker


def test_workers_tell_their_release_and_reach(client: TestClient, service: Service) -> None:
    ScriptedWorker(service).beat(release=release.VERSION, trackers=("boards:9190",), clock_ahead=0.2)
    told = client.get("/v1/workers").json()
    (worker,) = told["workers"]
    assert (worker["release"], worker["trackers"], worker["clock_ahead"]) == (release.VERSION, ["boards:9190"], 0.2)
    assert told["warnings"] == []


def test_a_mix_of_releases_and_clocks_that_are_off_are_warned_of(client: TestClient, service: Service) -> None:
    ScriptedWorker(service).beat(release="0.0.1", clock_ahead=3600.0)
    warnings = client.get("/v1/workers").json()["warnings"]
    assert [one["code"] for one in warnings] == ["workers_differ", "clock_differs"]
    page = client.get("/fleet").text
    assert "Some workers run release 0.0.1" in page
    assert "by +3600 s" in page


@pytest.mark.parametrize("hours", [1, -1])
def test_workers_live_by_the_clock_of_the_database(
    client: TestClient, service: Service, model: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Whose host's clock is that much before the API's."""

    def told(*_: Any) -> datetime:
        return datetime.now(UTC) + timedelta(hours=hours)

    monkeypatch.setattr(statements, "now", told)
    worker = ScriptedWorker(service)
    worker.beat(last_seen_at=told() - timedelta(seconds=61))
    waiting = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES}).json()
    assert not client.get("/v1/workers").json()["workers"][0]["alive"]
    assert client.get("/v1/engines").json()["engines"] == []
    assert "no worker is alive" in waiting["waits_for"]
    assert "tunesmith_workers_alive 0.0" in client.get("/metrics").text
    worker.beat(last_seen_at=told())
    assert client.get("/v1/workers").json()["workers"][0]["alive"]
    assert [one["name"] for one in client.get("/v1/engines").json()["engines"]] == ["relay"]
    assert client.get(f"/v1/jobs/{waiting['id']}").json()["waits_for"] is None
    assert "tunesmith_workers_alive 1.0" in client.get("/metrics").text
    with service.database.reading() as session:
        row = session.get_one(JobRow, waiting["id"])
    assert abs((told() - row.created_at).total_seconds()) < 30
