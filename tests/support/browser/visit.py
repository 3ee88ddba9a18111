"""One signed-in browser window, and all that went wrong in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request

from tests.support import waiting

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
_SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"
_FAULTS = ("serious", "critical")
_STARTED_BY_THE_BROWSER = ("data:", "blob:", "about:")


@dataclass
class Visit:
    page: Page
    url: str
    """The service's, without a slash at its end."""
    faults: list[str] = field(default_factory=list)
    """What the console said, what broke, and what was asked of others."""
    expected: list[str] = field(default_factory=list)
    """Parts of messages that a test brings about on purpose."""

    def __post_init__(self) -> None:
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("request", self._asked)
        self.page.on("dialog", self._opened)

    def go(self, path: str) -> None:
        self.page.goto(self.url + path, wait_until="load")
        until(self.page, "!window.htmx || !document.querySelector('.htmx-request')")

    def check(self) -> None:
        left = [fault for fault in self.faults if not any(part in fault for part in self.expected)]
        assert not left, "\n".join(left)

    def keep(self, name: str) -> None:
        """A screenshot of the whole page, as build output."""
        _SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        # Hiding the caret would leave style attributes behind, which htmx then copies and the policy forbids.
        self.page.screenshot(path=_SCREENSHOTS / f"{name}.png", full_page=True, caret="initial")

    def require_accessible(self, *rules: str) -> None:
        """By all of axe's rules, or these."""
        options = {"runOnly": list(rules)} if rules else None
        found = Axe().run(self.page, options=options).response["violations"]
        serious = [_described(fault) for fault in found if fault["impact"] in _FAULTS]
        assert not serious, "\n".join(serious)

    def require_no_sideways_scrolling(self) -> None:
        wider = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider == 0, f"{wider} px too wide: {self.page.evaluate(_WIDE)}"

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text} ({message.location.get('url')})")

    def _opened(self, dialog: Dialog) -> None:
        """Nothing of ours opens one: text that was shown has run as a script."""
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request: Request) -> None:
        if request.url.startswith(_STARTED_BY_THE_BROWSER):
            return
        if urlsplit(request.url)[:2] != urlsplit(self.url)[:2]:
            self.faults.append(f"request to another origin: {request.url}")


_WIDE = """() => [...document.querySelectorAll("body *")]
    .filter((part) => part.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .slice(0, 5).map((part) => part.outerHTML.slice(0, 120))"""


def until(page: Page, expression: str, *, seconds: float = 30) -> None:
    """Wait until an expression is true on the page, whose policy forbids ``wait_for_function`` to evaluate it again."""
    waiting.until(lambda: page.evaluate(expression), seconds=seconds)


@contextmanager
def visiting(browser: Browser, url: str, token: str | None, *, phone: bool = False) -> Iterator[Visit]:
    """``token`` signs the browser in by a link, as a user does; without one it stays outside."""
    context = browser.new_context(
        color_scheme="light", viewport=PHONE if phone else DESK, has_touch=phone, accept_downloads=True
    )
    context.set_default_timeout(20_000)
    try:
        visit = Visit(context.new_page(), url)
        if token:
            visit.page.goto(login_link(url, token))
        yield visit
        visit.check()
    finally:
        context.close()


def login_link(url: str, token: str) -> str:
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.post(f"{url}/v1/login-links", headers=headers, trust_env=False)
    answer.raise_for_status()
    return str(answer.json()["url"])


def _described(fault: dict[str, Any]) -> str:
    places = "; ".join(f"{node['target']} {node.get('failureSummary', '')}" for node in fault["nodes"][:3])
    return f"{fault['id']} ({fault['impact']}): {places}"
