"""What the fleet says of workers, and of what is wrong with them taken together."""

from __future__ import annotations

from fastapi.testclient import TestClient

from domain import release
from tests.api.factories import Service
from tests.api.scripted import ScriptedWorker


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
    assert "Some workers are of release 0.0.1" in page
    assert "by +3600 s" in page
