from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.api.factories import TOKEN, Service, open_service
from tests.support.api.live import serving
from tests.support.dashboard import seeding, variety
from tests.support.dashboard.seeding import Seeded
from tests.support.dashboard.variety import Various

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    "--no-sandbox",  # tests run as root in containers; every page is the service's own
    "--disable-quic",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@dataclass(frozen=True)
class Site:
    """A service over real connections."""

    url: str
    service: Service
    token: str = TOKEN


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: playwright keeps an event loop running in this thread, and other tests have theirs."""
    named = os.environ.get("TUNESMITH_CHROMIUM")
    path = next((found for name in ([named] if named else _NAMES) if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("Chromium is missing: apt-get install chromium, or name one in TUNESMITH_CHROMIUM")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Seeded]]:
    """Jobs in every state."""
    with open_service(tmp_path_factory.mktemp("browser-full")) as service, serving(service) as url:
        yield Site(url, service), seeding.seed(service, trials=3)


@pytest.fixture(scope="session")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Various]]:
    """One model tuned in several ways, on a fleet of several kinds."""
    with open_service(tmp_path_factory.mktemp("browser-varied")) as service, serving(service) as url:
        yield Site(url, service), variety.add(service)


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_service(tmp_path_factory.mktemp("browser-empty")) as service, serving(service) as url:
        yield Site(url, service)
