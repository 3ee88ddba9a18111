from __future__ import annotations

import heapq
import itertools

import pytest
from fastapi.testclient import TestClient

from api.jobs.pages.poll_interval import PollInterval


def looks(browsers: int, *, seconds: float) -> list[float]:
    """When each of so many browsers, that all came at once, looks at what the interval lets it."""
    now = [0.0]
    interval = PollInterval(least=4, clock=lambda: now[0])
    order = itertools.count()
    waiting = [(0.0, next(order)) for _ in range(browsers)]
    times = []
    while waiting[0][0] < seconds:
        now[0], _ = heapq.heappop(waiting)
        times.append(now[0])
        heapq.heappush(waiting, (now[0] + interval.poll(), next(order)))
    return times


def test_few_come_as_often_as_they_like() -> None:
    assert len(looks(10, seconds=400)) == pytest.approx(10 * 100, rel=0.01)


@pytest.mark.parametrize("browsers", [100, 500, 2000])
def test_many_come_more_seldom(browsers: int) -> None:
    late = [at for at in looks(browsers, seconds=600) if at >= 300]
    assert len(late) / 300 <= max(9, browsers / 55)


def test_who_stays_alone_may_come_often_again() -> None:
    now = [0.0]
    interval = PollInterval(least=4, clock=lambda: now[0])
    for _ in range(2000):
        pause = interval.poll()
    assert pause > 4
    now[0] += 100
    assert interval.poll() == 4


def test_the_list_of_jobs_says_when_to_look_again(client: TestClient) -> None:
    interval = client.app.state.poll_interval  # type: ignore[attr-defined]
    interval._pause = 30.0
    interval._waited = 60.0 * 125
    parts = {"HX-Request": "true"}
    assert 'hx-trigger="every 30s"' in client.get("/?seen=0", headers=parts).text
