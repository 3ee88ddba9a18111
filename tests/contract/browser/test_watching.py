"""A job's page while the server or the way to it fails: it goes on by itself."""

from __future__ import annotations

import threading
from collections import Counter

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from domain.jobs import Lease
from tests.contract.browser.test_plots import NOTE_TEXTS
from tests.support.api.factories import AUTHORIZED
from tests.support.api.scripted import ScriptedWorker
from tests.support.browser.fixtures import Site
from tests.support.browser.visit import until, visiting
from tests.support.dashboard.seeding import Seeded

pytestmark = pytest.mark.browser

_END = 'id: 1000000\nevent: state\ndata: {"state": "succeeded"}\n\n'
_LONG_PAUSE = 10_000


def _end(page: Page) -> None:
    page.route("**/events?*", lambda route: route.fulfill(content_type="text/event-stream", body=_END))


def test_the_end_is_shown_after_failures(browser: Browser, full: tuple[Site, Seeded]) -> None:
    site, seeded = full
    failures = [lambda route: route.fulfill(status=502), lambda route: route.abort()]

    def answer(route: Route) -> None:
        if route.request.is_navigation_request():
            route.continue_()
        elif failures:
            failures.pop(0)(route)
        else:
            route.fulfill(response=route.fetch(url=f"{site.url}/jobs/{seeded.succeeded}"))

    with visiting(browser, site.url, site.token) as visit:
        visit.expected += ["502", "ERR_FAILED"]
        visit.page.route(f"**/jobs/{seeded.running}", answer)
        _end(visit.page)
        visit.page.goto(f"{site.url}/jobs/{seeded.running}")
        expect(visit.page.locator(".job-head .state")).to_have_text("running")
        expect(visit.page.locator(".job-head .state")).to_have_text("succeeded", timeout=20_000)
        assert not failures


def test_a_refused_watch_is_taken_up_though_the_page_cannot_be_had(browser: Browser, full: tuple[Site, Seeded]) -> None:
    site, seeded = full
    with visiting(browser, site.url, site.token) as visit:
        page = visit.page
        visit.expected += ["503", "ERR_FAILED"]
        page.route("**/events?*", lambda route: route.fulfill(status=503))
        page.clock.install()
        with page.expect_response("**/events?*"):
            page.goto(f"{site.url}/jobs/{seeded.running}")
        page.route(f"**/jobs/{seeded.running}", lambda route: route.abort())
        with page.expect_response("**/events?*"):
            page.wait_for_timeout(200)
            page.clock.fast_forward(_LONG_PAUSE)


def test_plots_and_tasks_grow_by_events_alone(browser: Browser, full: tuple[Site, Seeded]) -> None:
    site, _ = full
    with httpx.Client(base_url=site.url, headers=AUTHORIZED, trust_env=False) as http:
        model = http.put("/v1/models?name=net", content=b"static live").json()["id"]
        job = http.post("/v1/jobs", json={"model": model}).json()["id"]
    worker = ScriptedWorker(site.service, pace=0.2, trials=16)
    leases: list[Lease | None] = []
    tuning = threading.Thread(target=lambda: leases.append(worker.begin(job)))
    with visiting(browser, site.url, site.token) as visit:
        page, asked = visit.page, Counter[str]()
        page.add_init_script(NOTE_TEXTS)
        tuning.start()
        page.goto(f"{site.url}/jobs/{job}")
        expect(page.locator('[data-plot="tasks"] canvas')).to_be_visible(timeout=20_000)
        page.on("request", lambda request: asked.update([request.url.removeprefix(site.url)]))
        trials = page.locator('[data-of="trials_done"]')
        visit.keep("live-job")
        expect(trials).to_have_text("64", timeout=40_000)
        # Each task's first trial is of its default schedule, which changes the curve from its beginning. The server may
        # answer with a curve that is a second old, so that the page asks again; there are some 30 events.
        assert asked[f"/jobs/{job}/curve.json"] <= 8
        # When the stage began, and every half minute.
        assert asked[f"/jobs/{job}"] <= 3
        for plot in ("estimate", "tasks"):
            until(page, f"window.written.some((one) => one[0] === '{plot}' && one[1] === '60')")
        rows = page.locator("tr[data-task] td[data-label=Trials]")
        assert rows.all_inner_texts() == ["16/16"] * 4
        shown = _shown(page)
        page.reload()
        expect(page.locator('[data-plot="tasks"] canvas')).to_be_visible()
        assert _shown(page) == shown, "the page says the same when it is loaded anew"
        tuning.join()
        (lease,) = leases
        assert lease is not None
        worker.finish(job, lease)
        expect(page.locator(".job-head .state")).to_have_text("succeeded", timeout=20_000)
        expect(page.get_by_role("heading", name="Bundle")).to_be_visible()


def _shown(page: Page) -> list[str]:
    places = [
        '[data-of="estimate"]',
        *(f"tr[data-task] td[data-label={name}]" for name in ("Trials", "Best", "GFLOPS")),
    ]
    # Rows are in another order once more is known of them.
    return sorted(text for place in places for text in page.locator(place).all_inner_texts())
