"""Deleting a bundle and a model by keyboard: said before what goes, refused in place, and done."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from storage import jobs
from tests.contract.browser.test_keyboard import tab_to
from tests.support.api.factories import TOKEN, make_service
from tests.support.api.live import serving
from tests.support.browser.visit import Visit, visiting
from tests.support.dashboard.networks import RESNET
from tests.support.dashboard.seeding import Seeder

pytestmark = pytest.mark.browser


def _press(visit: Visit, name: str, *, key: str = "Tab") -> None:
    tab_to(visit.page, name, key=key)
    visit.page.keyboard.press("Enter")


def _check(visit: Visit, name: str, phone: bool) -> None:
    visit.require_accessible()
    visit.require_no_sideways_scrolling()
    visit.keep(f"{name}-{'phone' if phone else 'light'}")


@pytest.mark.parametrize("phone", [False, True])
def test_a_bundle_and_then_its_model(browser: Browser, tmp_path: Path, phone: bool) -> None:
    service = make_service(tmp_path)
    seeder = Seeder(service)
    job = seeder.succeeded(RESNET, age=timedelta(hours=2), trials=2)
    with seeder.story(RESNET, age=timedelta(seconds=9)) as story:
        waiting = story.job_id
    with service.database.reading() as session:
        model = jobs.get(session, job).request.model_digest
    with serving(service) as url, visiting(browser, url, TOKEN, phone=phone) as visit:
        page = visit.page
        visit.go(f"/jobs/{job}")
        expect(page.get_by_role("button", name="Delete the bundle")).to_be_hidden()
        _press(visit, "Delete this bundle…")
        expect(page.get_by_text("The report and the records are kept, so tuning the model")).to_be_visible()
        _check(visit, "delete-bundle", phone)
        _press(visit, "Delete the bundle")
        expect(page.get_by_text("Deleted on")).to_be_in_viewport()
        expect(page.get_by_role("link", name="Download bundle")).to_have_count(0)

        visit.expected = ["409 (Conflict)"]
        visit.go(f"/models/{model}")
        _press(visit, "Delete this model…", key="Shift+Tab")
        expect(page.get_by_text("A model with unfinished jobs cannot be deleted")).to_be_visible()
        _press(visit, "Delete the model")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("model_in_use")
        expect(alert).to_be_focused()
        expect(alert).to_be_in_viewport()
        _check(visit, "delete-refused", phone)

        _press(visit, waiting)
        page.wait_for_url(f"**/jobs/{waiting}")
        _press(visit, "Cancel")
        expect(page.locator(".job-head .state")).to_have_text("canceled")
        page.goto(f"{url}/models/{model}/delete")
        expect(page.get_by_text("Its jobs, their reports and the tuning records are kept")).to_be_visible()
        _check(visit, "delete-model", phone)
        _press(visit, "Delete the model")
        page.wait_for_url("**/models?deleted=*")
        expect(page.get_by_role("status")).to_contain_text("was deleted")
        expect(page.get_by_text("No models yet")).to_be_visible()
        _check(visit, "delete-done", phone)
    service.database.close()
