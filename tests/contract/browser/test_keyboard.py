"""The main flow without a mouse: what is needed is reached with Tab, seen when it is reached, and worked with Enter."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.api.factories import TOKEN, open_service
from tests.support.api.live import serving
from tests.support.api.scripted import ScriptedWorker
from tests.support.browser.visit import visiting

pytestmark = [pytest.mark.browser, pytest.mark.smoke]

_MOST_STEPS = 60
_FOCUSED = """() => {
    const part = document.activeElement;
    const shows = (shown) => {
        const style = getComputedStyle(shown);
        return style.outlineStyle !== "none" || style.boxShadow !== "none";
    };
    const label = part.labels?.[0]?.innerText ?? part.getAttribute("aria-label") ?? part.innerText ?? "";
    const seen = part === document.body || shows(part) || shows(part.closest("label") ?? part);
    return {name: label.trim(), tag: part.tagName, seen};
}"""


def tab_to(page: Page, name: str, *, key: str = "Tab") -> None:
    """Whatever is passed on the way must show that it has the focus."""
    for _ in range(_MOST_STEPS):
        page.keyboard.press(key)
        focused = page.evaluate(_FOCUSED)
        assert focused["seen"], f"{focused} does not show that it has the focus"
        if focused["name"].startswith(name):
            return
    raise AssertionError(f"{name!r} is out of reach")


def test_plan_queue_watch_and_download_without_a_mouse(browser: Browser, tmp_path: Path) -> None:
    with open_service(tmp_path) as service, serving(service) as url, visiting(browser, url, TOKEN) as visit:
        worker = ScriptedWorker(service, pace=0.1, trials=2)
        worker.beat()
        page = visit.page
        # From now on, not only just before one is expected: Chromium is told in passing, and might be told too late.
        page.on("filechooser", lambda _chooser: None)
        visit.go("/")
        tab_to(page, "Skip to content")
        page.keyboard.press("Enter")
        tab_to(page, "New job")
        page.keyboard.press("Enter")
        page.wait_for_url("**/new")
        _upload(page, tmp_path / "net.onnx")
        for _ in range(2):
            page.keyboard.type("8")
            page.keyboard.press("Tab")
        tab_to(page, "Show the plan")
        page.keyboard.press("Enter")
        expect(page.locator("[data-plan]")).to_be_visible()
        expect(page.locator("#plan-title")).to_be_focused()
        tab_to(page, "Submit the job")
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs/j-*")
        _work(worker, page)
        tab_to(page, "Download bundle")
        with page.expect_download() as download:
            page.keyboard.press("Enter")
        assert download.value.suggested_filename.endswith(".tar")


def _upload(page: Page, model: Path) -> None:
    """The focus goes on to the first size that the model leaves open."""
    model.write_bytes(b"dynamic model")
    tab_to(page, "Or upload a model")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(model)
    expect(page.locator("#dimension-0")).to_be_focused()


def _work(worker: ScriptedWorker, page: Page) -> None:
    job = page.url.rsplit("/", 1)[1]
    work = threading.Thread(target=worker.run, args=[job])
    work.start()
    expect(page.get_by_role("heading", name="Bundle")).to_be_visible(timeout=60_000)
    work.join()
