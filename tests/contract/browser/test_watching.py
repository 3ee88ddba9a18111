"""A job's page while the server or the way to it fails: it goes on by itself."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser.fixtures import Site
from tests.support.browser.visit import visiting
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
