"""A person at work on a real service: in by the link that ``serve`` prints, a model up, planned, tuned, watched, and
its bundle taken home."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import models, serving
from tests.support.browser.visit import Visit, until, visiting
from tests.support.servers import processes

pytestmark = [pytest.mark.browser, pytest.mark.engine, pytest.mark.timeout(600)]

_MINUTES = 60_000
_TRIALS = 16


def test_upload_plan_tune_watch_and_download(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    model = tmp_path / "small.onnx"
    model.write_bytes(models.small_network())
    log = tmp_path / "serve.log"
    with serving.serving(serving.environment(home), log=log):
        processes.wait_until(lambda: "/login?code=" in log.read_text(), seconds=30, what="a link", log=log)
        link = re.search(r"http://\S+/login\?code=\S+", log.read_text())
        assert link, log.read_text()
        url = json.loads((home / "server.json").read_text())["url"]
        with visiting(browser, url, None) as visit:
            page = visit.page
            page.goto(link[0])
            expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
            _fill(page, model)
            visit.keep("real-new-job")
            _plan(visit)
            page.get_by_role("button", name="Submit the job").click()
            page.wait_for_url(re.compile(r"/jobs/j-"))
            _watch(visit)
            _take(page, tmp_path / "bundle.tar")
            visit.require_accessible()
            visit.keep("real-job-succeeded")


def _fill(page: Page, model: Path) -> None:
    page.get_by_role("main").get_by_role("link", name="New job").first.click()
    page.get_by_label("Or upload a model").set_input_files(model)
    # The first inspection on a machine starts engines whose modules were never compiled.
    expect(page.locator(".model-facts")).to_contain_text("small", timeout=_MINUTES)
    for label, size in (("batch", "1"), ("height", "16"), ("width", "16")):
        page.get_by_label(label).fill(size)
    page.get_by_role("radio", name="AutoTVM").check()
    page.get_by_role("radio", name="Custom").check()
    page.get_by_label("Trials", exact=True).fill(str(_TRIALS))


def _plan(visit: Visit) -> None:
    visit.page.get_by_role("button", name="Show the plan").click()
    plan = visit.page.locator("[data-plan]")
    expect(plan).to_contain_text("Imports the whole model", timeout=2 * _MINUTES)
    expect(plan).to_contain_text("autotvm")
    expect(plan).to_contain_text("trials")
    visit.keep("real-plan")


def _watch(visit: Visit) -> None:
    """Without a reload: numbers that grow, and everything that the end brings."""
    page = visit.page
    page.evaluate("window.stays = true")
    done = page.locator('[data-of="trials_done"]')
    expect(done).to_have_text(re.compile(r"^[1-9]"), timeout=3 * _MINUTES)
    first = int(done.inner_text())
    visit.keep("real-job-running")
    grown = f"""() => {{
        const done = document.querySelector('[data-of="trials_done"]');
        return !done || Number(done.textContent) > {first};
    }}"""
    until(page, grown, seconds=120)
    expect(page.get_by_role("heading", name="Bundle")).to_be_visible(timeout=5 * _MINUTES)
    expect(page.locator(".job-head .state")).to_have_text("succeeded")
    expect(page.get_by_role("table").first).to_contain_text("ONNX Runtime")
    assert page.evaluate("window.stays"), "the page was loaded again"


def _take(page: Page, path: Path) -> None:
    with page.expect_download() as download:
        page.get_by_role("link", name="Download bundle").click()
    download.value.save_as(path)
    with tarfile.open(path) as bundle:
        names = {Path(name).name for name in bundle.getnames()}
    assert {"libmodel.so", "manifest.json", "evidence.json", "records.json", "example.py"} <= names
