"""A person at work on a real service: in by the link that ``serve`` prints, a model up, planned, tuned, watched, and
its bundle taken home."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import models
from tests.support.browser.visit import Visit, visiting
from tests.support.tuner.engines.fixtures import home as engines_home
from tuner import catalogue, environments

pytestmark = [pytest.mark.browser, pytest.mark.engine, pytest.mark.timeout(600)]

_PYTHON = os.environ.get("TUNESMITH_APP_PYTHON") or sys.executable
_MINUTES = 60_000
_TRIALS = 32


@contextlib.contextmanager
def serving(home: Path) -> Iterator[str]:
    """What ``serve`` prints; its engines are those that the tests were given."""
    engines = {
        environments.variable(spec): str(environments.interpreter(spec, engines_home()))
        for spec in catalogue.ENGINES.values()
    }
    environment = {**os.environ, **engines, "PYTHONPATH": str(catalogue.ROOT), "PYTHONUNBUFFERED": "1"}
    environment |= {"TUNESMITH_HOME": str(home), "TUNESMITH_LOCK_FOLDER": str(home / "locks")}
    environment["TUNESMITH_BENCHMARK_SECONDS"] = "0.5"
    for name in ("TUNESMITH_TOKEN", "TUNESMITH_BROKER_URL", "TUNESMITH_DATABASE_URL", "TUNESMITH_URL"):
        environment.pop(name, None)
    output = home / "serve.log"
    with output.open("wb") as stream:
        command = [_PYTHON, "-m", "tunesmith", "serve", "--port", "0"]
        server = subprocess.Popen(command, env=environment, cwd=home, stdout=stream, stderr=stream)
    try:
        yield _ready(server, output)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def _ready(server: subprocess.Popen[bytes], output: Path) -> str:
    deadline = time.monotonic() + 120
    while "/login?code=" not in output.read_text():
        assert server.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.1)
    return output.read_text()


def _with_a_worker(home: Path) -> str:
    """The service's URL, once it could take a job: a plan asked for earlier says that nobody is there yet."""
    found = json.loads((home / "server.json").read_text())
    headers = {"Authorization": f"Bearer {found['token']}"}
    deadline = time.monotonic() + 60
    while not httpx.get(f"{found['url']}/v1/workers", headers=headers, trust_env=False).json()["workers"]:
        assert time.monotonic() < deadline, "no worker came"
        time.sleep(0.2)
    return str(found["url"])


def test_upload_plan_tune_watch_and_download(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    model = tmp_path / "small.onnx"
    model.write_bytes(models.small_network())
    with serving(home) as printed:
        link = re.search(r"http://\S+/login\?code=\S+", printed)
        assert link, printed
        url = _with_a_worker(home)
        with visiting(browser, url, None) as visit:
            page = visit.page
            page.goto(link[0])
            expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
            _fill(page, model)
            visit.keep("real-new-job")
            _plan(visit)
            page.get_by_role("button", name="Queue the job").click()
            page.wait_for_url(re.compile(r"/jobs/j-"))
            _watch(visit)
            _take(page, tmp_path / "bundle.tar")
            visit.require_accessible()
            visit.keep("real-job-succeeded")


def _fill(page: Page, model: Path) -> None:
    page.get_by_role("main").get_by_role("link", name="New job").first.click()
    page.get_by_label("Or upload one").set_input_files(model)
    expect(page.locator(".model-facts")).to_contain_text("small")
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
    page.wait_for_function(
        f"""() => {{
            const done = document.querySelector('[data-of="trials_done"]');
            return !done || Number(done.textContent) > {first};
        }}""",
        timeout=2 * _MINUTES,
    )
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
    assert {"mod.so", "manifest.json", "evidence.json", "records.json", "example.py"} <= names
