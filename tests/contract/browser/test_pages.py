"""Every page in a real browser: nothing in the console, nothing asked of others, no serious accessibility fault, in
light and dark, and no scrolling sideways on a phone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from storage import jobs
from tests.support.browser.fixtures import Site
from tests.support.browser.visit import Visit, visiting
from tests.support.dashboard.seeding import Seeded
from tests.support.dashboard.variety import Various

pytestmark = pytest.mark.browser

_PAGES = ("/", "/new", "/models", "/data", "/compare", "/records", "/fleet")
_REFERENCE = "/docs"
"""The same for all services."""
_SHORTENED = """() => document.querySelectorAll("section.stack").forEach(
    (section) => [...section.querySelectorAll("article")].slice(3).forEach((article) => article.remove()))"""
on_both = pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])


def look(visit: Visit, path: str, name: str, phone: bool) -> None:
    visit.go(path)
    if phone:
        visit.require_no_sideways_scrolling()
        visit.keep(f"{name}-phone")
        return
    if path == _REFERENCE:
        # A hundred operations that are laid out alike take axe half a minute.
        visit.page.evaluate(_SHORTENED)
    visit.require_accessible()
    visit.keep(f"{name}-light")
    visit.page.emulate_media(color_scheme="dark")
    # All that the other colours can change.
    visit.require_accessible("color-contrast")
    visit.keep(f"{name}-dark")
    visit.page.emulate_media(color_scheme="light")


@on_both
def test_pages_of_an_empty_service(browser: Browser, empty: Site, phone: bool) -> None:
    with visiting(browser, empty.url, empty.token, phone=phone) as visit:
        for path in (*_PAGES, _REFERENCE):
            look(visit, path, f"empty-{path.strip('/') or 'jobs'}", phone)


@on_both
def test_pages_of_a_service_in_use(browser: Browser, full: tuple[Site, Seeded], phone: bool) -> None:
    site, seeded = full
    with site.service.database.reading() as session:
        model = jobs.get(session, seeded.succeeded).request.model_digest
        hostile = jobs.get(session, seeded.hostile).request.model_digest
    with visiting(browser, site.url, site.token, phone=phone) as visit:
        for path in _PAGES:
            look(visit, path, f"full-{path.strip('/') or 'jobs'}", phone)
        for name, path in (
            ("model", f"/models/{model}"),
            ("model-hostile", f"/models/{hostile}"),
            ("new-filled", f"/new?like={seeded.succeeded}"),
            ("jobs-none", "/?state=failed&label=no%3Dsuch"),
        ):
            look(visit, path, name, phone)


@on_both
def test_a_data_set_is_added_and_deleted(browser: Browser, empty: Site, tmp_path: Path, phone: bool) -> None:
    (tmp_path / "my rows.npz").write_text(json.dumps({"x": ["float32", [8, 3, 8, 8]], "labels": ["int64", [8]]}))
    (tmp_path / "bad.npz").write_text("no rows")
    with visiting(browser, empty.url, empty.token, phone=phone) as visit:
        visit.go("/data")
        visit.page.set_input_files("#rows", tmp_path / "bad.npz")
        visit.expected.append("422")
        visit.page.get_by_role("button", name="Add", exact=True).click()
        visit.page.get_by_text("Not added: not an .npz file of arrays").wait_for()
        visit.page.set_input_files("#rows", tmp_path / "my rows.npz")
        visit.page.get_by_role("button", name="Add", exact=True).click()
        visit.page.get_by_role("link", name="my-rows").wait_for()
        look(visit, "/data", "data", phone)
        visit.page.get_by_role("button", name="Delete my-rows").click()
        visit.page.get_by_text("Data set “my-rows” was deleted").wait_for()


@on_both
def test_jobs_in_every_state(browser: Browser, full: tuple[Site, Seeded], phone: bool) -> None:
    site, seeded = full
    with visiting(browser, site.url, site.token, phone=phone) as visit:
        for state, job in seeded.all.items():
            look(visit, f"/jobs/{job}", f"job-{state}", phone)


def test_a_name_of_an_output_has_room_on_a_phone(browser: Browser, full: tuple[Site, Seeded]) -> None:
    site, seeded = full
    with visiting(browser, site.url, site.token, phone=True) as visit:
        visit.go(f"/jobs/{seeded.gained_nothing}")
        name = visit.page.get_by_role("region", name="Errors compared with the reference").locator("td.break").first
        assert "save_infer_model/scale_0.tmp_1" in name.inner_text()
        box = name.bounding_box()
        assert box is not None
        assert box["width"] >= 150
        visit.require_no_sideways_scrolling()


@on_both
def test_bars_of_a_profile_are_as_long_as_the_times_beside_them(
    browser: Browser, full: tuple[Site, Seeded], phone: bool
) -> None:
    site, seeded = full
    with visiting(browser, site.url, site.token, phone=phone) as visit:
        visit.go(f"/jobs/{seeded.succeeded}")
        profile = visit.page.locator("section.profile")
        operators = profile.get_by_role("region", name="Operators of the profile")
        first = operators.locator("tbody tr").first
        ours, theirs = (float(cell) for cell in first.locator("td").all_inner_texts()[1:3])
        bars = profile.locator(".bar-row").nth(3).locator("rect")
        wide, narrow = (bars.nth(place).bounding_box() for place in (0, 1))
        assert wide is not None
        assert narrow is not None
        assert wide["width"] / narrow["width"] == pytest.approx(ours / theirs, rel=0.02)
        for region in (operators, profile.get_by_role("region", name="Sums of the profile")):
            assert region.evaluate("(each) => each.scrollWidth <= each.clientWidth"), "something is cut off"


@on_both
def test_jobs_side_by_side(browser: Browser, varied: tuple[Site, Various], phone: bool) -> None:
    site, various = varied
    compared = f"/compare?job={various.auto}&job={various.ansor}&job={various.quantized}"
    with visiting(browser, site.url, site.token, phone=phone) as visit:
        for name, path in (("compare", compared), ("records-varied", "/records"), ("fleet-varied", "/fleet")):
            look(visit, path, name, phone)


@on_both
def test_pages_that_say_no(browser: Browser, full: tuple[Site, Seeded], phone: bool) -> None:
    site, _ = full
    with visiting(browser, site.url, None, phone=phone) as visit:
        visit.expected = ["401 (Unauthorized)"]
        look(visit, "/", "login", phone)
    with visiting(browser, site.url, site.token, phone=phone) as visit:
        visit.expected = ["404 (Not Found)"]
        look(visit, "/jobs/j-none", "missing", phone)


def test_the_theme_can_be_switched(browser: Browser, empty: Site) -> None:
    with visiting(browser, empty.url, empty.token) as visit:
        visit.go("/")
        background = "getComputedStyle(document.body).backgroundColor"
        light = visit.page.evaluate(background)
        visit.page.get_by_role("button", name="Switch between light and dark").click()
        assert visit.page.evaluate(background) != light
        visit.go("/fleet")
        assert visit.page.evaluate(background) != light, "the choice is forgotten"
