from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.api.factories import TOKEN, Service, make_service
from tests.support.api.live import serving
from tests.support.browser import chromium
from tests.support.dashboard import seeding, variety
from tests.support.dashboard.seeding import Seeded
from tests.support.dashboard.variety import Various


@dataclass(frozen=True)
class Site:
    """A service over real connections."""

    url: str
    service: Service
    token: str = TOKEN


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: playwright keeps an event loop running in this thread, and other tests have theirs."""
    path = chromium.find()
    if path is None:
        pytest.skip("Chromium is missing: apt-get install chromium, or name one in TUNESMITH_CHROMIUM")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=chromium.ARGUMENTS)
        yield started
        started.close()


def _site(tmp_path_factory: pytest.TempPathFactory, name: str) -> Service:
    # A browser asks for a page, its style sheets and scripts at once, and a test for many pages.
    return make_service(tmp_path_factory.mktemp(name), rate_per_second=1e6, rate_burst=10**6)


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Seeded]]:
    """Jobs in every state."""
    service = _site(tmp_path_factory, "browser-full")
    seeded = seeding.seed(service, trials=3)
    with serving(service) as url:
        yield Site(url, service), seeded
    service.database.close()


@pytest.fixture(scope="session")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Various]]:
    """One model tuned in several ways, on a fleet of several kinds."""
    service = _site(tmp_path_factory, "browser-varied")
    various = variety.add(service)
    with serving(service) as url:
        yield Site(url, service), various
    service.database.close()


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    service = _site(tmp_path_factory, "browser-empty")
    with serving(service) as url:
        yield Site(url, service)
    service.database.close()
