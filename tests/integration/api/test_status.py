from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from api import app
from api.response_cache import TTLCache
from tests.support.api.factories import Service
from tests.support.api.scripted import ScriptedWorker


@pytest.fixture
def statements(service: Service) -> list[str]:
    """What is asked of the database."""
    seen: list[str] = []
    reader = service.database._reader

    @event.listens_for(reader, "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT"):
            seen.append(statement)

    return seen


def test_many_who_ask_at_once_cost_one_look_each(
    client: TestClient, service: Service, job: str, statements: list[str]
) -> None:
    ScriptedWorker(service, trials=3).begin(job)
    first = client.get(f"/v1/jobs/{job}").json()
    assert len(first["tasks"]) == 4
    statements.clear()
    for _ in range(5):
        assert client.get(f"/v1/jobs/{job}").json() == first
    assert len(statements) == 5, "one small query each: whether its state and stage are still the same"


def test_a_change_of_state_is_told_at_once(client: TestClient, service: Service, job: str) -> None:
    worker = ScriptedWorker(service, trials=2)
    lease = worker.begin(job)
    assert lease is not None
    assert client.get(f"/v1/jobs/{job}").json()["state"] == "running"
    assert client.post(f"/v1/jobs/{job}:cancel").status_code == 202
    assert client.get(f"/v1/jobs/{job}").json()["state"] == "canceling"
    worker.finish(job, lease)
    ended = client.get(f"/v1/jobs/{job}").json()
    assert ended["state"] == "succeeded"
    assert ended["artifact_id"]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of cached statuses, in a service that is made after this."""
    seconds = [0.0]
    monkeypatch.setattr(app, "TTLCache", partial(TTLCache, clock=lambda: seconds[0]))
    return seconds


def test_progress_is_told_again_for_a_moment_only(
    now: list[float], client: TestClient, service: Service, job: str
) -> None:
    worker = ScriptedWorker(service, trials=2)
    worker.begin(job)
    assert client.get(f"/v1/jobs/{job}").json()["failures"] == {"run_timeout": 4}
    with service.database.transaction() as session:
        session.connection().exec_driver_sql("DELETE FROM records")
    kept = service.app.state.services.settings.status_seconds
    now[0] = kept * 0.99
    assert client.get(f"/v1/jobs/{job}").json()["failures"] == {"run_timeout": 4}
    now[0] = kept
    assert client.get(f"/v1/jobs/{job}").json()["failures"] == {}


def test_what_a_queued_job_waits_for_is_always_looked_up(client: TestClient, service: Service, job: str) -> None:
    assert client.get(f"/v1/jobs/{job}").json()["waits_for"]
    ScriptedWorker(service).beat()
    assert client.get(f"/v1/jobs/{job}").json()["waits_for"] is None


def test_many_who_look_at_a_page_see_it_rendered_once(
    client: TestClient, service: Service, job: str, statements: list[str]
) -> None:
    ScriptedWorker(service, trials=3).begin(job)
    parts = {"HX-Request": "true", "Accept": "text/html"}
    first = client.get(f"/jobs/{job}", headers=parts)
    assert "depthwise" in first.text
    statements.clear()
    assert client.get(f"/jobs/{job}", headers=parts).text == first.text
    assert len(statements) == 1, "whether its state and stage are still the same"


def test_only_so_many_are_kept_and_only_so_long() -> None:
    now, computed = [0.0], []
    cache = TTLCache[str](most=2, seconds=1, clock=lambda: now[0])

    def ask(name: str) -> str:
        return cache.get(name, lambda: computed.append(name) or name)  # type: ignore[func-returns-value]

    assert [ask(name) for name in "abcbc"] == list("abcbc")
    assert computed == list("abc")
    ask("a")
    assert computed == list("abca")
    now[0] = 1.0
    ask("a")
    assert computed == list("abcaa")


def test_of_many_who_miss_the_same_one_computes_it() -> None:
    cache, computed = TTLCache[int](most=2, seconds=60), []

    def compute() -> int:
        time.sleep(0.05)
        computed.append(1)
        return 7

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: cache.get("key", compute), range(8))) == {7}
    assert len(computed) == 1
