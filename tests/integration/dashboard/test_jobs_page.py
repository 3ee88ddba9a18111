"""The page of all jobs: what it shows, finds, and costs."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from tests.support.api.factories import Service
from tests.support.dashboard import seeding
from tests.support.dashboard.pages import Page, counted_queries
from tests.support.dashboard.seeding import Seeded
from tests.support.dashboard.visitors import visitor

_HTMX = {"HX-Request": "true"}


def listed(page: str) -> list[str]:
    return re.findall(r'href="/jobs/(j-[0-9a-z]+)"', page)


def test_all_jobs_newest_first(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    seeded = full[1]
    assert listed(browser.get("/").text) == sorted(seeded.all.values(), reverse=True)


def test_a_row_tells_what_became_of_the_job(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    seeded = full[1]
    rows = {listed(row)[0]: row for row in browser.get("/").text.split("<tr>")[2:]}
    assert "is-succeeded" in rows[seeded.succeeded]
    assert re.search(r'class="gain-up">1\.[89]\d×<', rows[seeded.succeeded])
    assert '<span class="muted">none</span>' in rows[seeded.gained_nothing]
    assert "Gain over untuned </span>" in rows[seeded.gained_nothing]
    assert re.search(r">[\d.]+ .s a run<", rows[seeded.gained_nothing])
    assert "tuner auto · target" in re.sub(r"<[^>]+>|\s+", " ", rows[seeded.succeeded]).replace("  ", " ")
    bar = re.search(r'<progress [^>]*max="1" value="(0\.\d+)"', rows[seeded.running])
    assert bar
    assert 0.3 < float(bar[1]) < 0.7
    assert re.search(r"27 trials, \d+ s of tuning left", rows[seeded.running])
    assert "<progress" not in rows[seeded.succeeded] + rows[seeded.queued]
    assert "unsupported operators" in rows[seeded.failed]
    assert "waiting for a worker with a GPU" in rows[seeded.queued]
    assert "nightly</a>" in rows[seeded.running]


def test_chosen_jobs_are_compared(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    seeded = full[1]
    page = browser.get("/").text
    assert set(re.findall(r'name="job" value="(j-[0-9a-z]+)" form="compare"', page)) == set(seeded.all.values())
    assert '<form id="compare" action="/compare" method="get">' in page
    compared = browser.get("/compare", params={"job": [seeded.succeeded, seeded.gained_nothing]}).text
    assert f"/jobs/{seeded.succeeded}" in compared
    assert f"/jobs/{seeded.gained_nothing}" in compared


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state=canceled", {"canceled"}),
        ("state=failed", {"failed", "untunable"}),
        ("text=MOBILE", {"running", "beginning", "canceled"}),
        ("text=nightl", {"succeeded", "running"}),
        ("text=4f2c9e1", {"succeeded", "running"}),
        ("text=%25", set()),
        ("group=nightly", {"succeeded", "running"}),
        ("label=branch%3Dmain&state=running", {"running"}),
        ("label=branch%3Dother", set()),
        ("state=&text=&model=&label=&group=&text=segment", {"untunable"}),
    ],
)
def test_filters(browser: TestClient, full: tuple[Service, Seeded], query: str, names: set[str]) -> None:
    seeded = full[1]
    page = browser.get(f"/?{query}").text
    assert set(listed(page)) == {seeded.all[name] for name in names}
    assert ("No matching jobs" in page) == (not names)


def test_a_job_is_found_by_the_beginning_of_its_id_and_by_its_model(
    browser: TestClient, full: tuple[Service, Seeded]
) -> None:
    seeded = full[1]
    assert listed(browser.get(f"/?text={seeded.running[:12]}").text) == [seeded.running]
    model = browser.get(f"/v1/jobs/{seeded.untunable}").json()["model"]
    assert listed(browser.get(f"/?model={model}").text) == [seeded.untunable]
    assert browser.get("/?model=m-none").status_code == 404
    assert "invalid_request" in browser.get("/?label=nothing").text


def test_what_is_searched_for_stays_in_the_form(browser: TestClient) -> None:
    page = browser.get("/?text=%22%3E%3Cb%3E&state=failed&group=g").text
    assert 'value="&#34;&gt;&lt;b&gt;"' in page
    assert re.search(r"<option selected>failed</option>", page)
    assert "<details open>" in page


def test_queued_jobs_show_their_place(service: Service, client: TestClient) -> None:
    seeding.many(service, 3)
    seeding.Seeder(service).fleet()
    rows = {listed(row)[0]: row for row in client.get("/").text.split("<tr>")[2:]}
    order = sorted(rows, key=lambda job: client.get(f"/v1/jobs/{job}").json()["queue_position"])
    assert "next in the queue" in rows[order[0]]
    assert "place 3 in the queue" in rows[order[2]]
    page = client.get(f"/jobs/{order[2]}").text
    assert "Place 3 in the queue." in page
    assert re.findall(r'<a class="mono" href="/jobs/(j-[0-9a-z]+)"', page) == order[:2]
    assert "Next in the queue: it starts when a worker is free." in client.get(f"/jobs/{order[0]}").text


def test_names_are_text(browser: TestClient) -> None:
    page = Page(browser.get("/").text)
    page.check_no_markup_of_users()
    assert "<script>alert('model')</script>&amp;.onnx" in page.text


def test_htmx_gets_the_list_alone_and_nothing_when_it_has_it(browser: TestClient) -> None:
    part = browser.get("/", headers=_HTMX).text
    assert part.lstrip().startswith('<div id="jobs"')
    assert "<html" not in part
    again = re.search(r'hx-get="(/\?seen=[0-9a-f]+)" hx-trigger="every 4s"', part)
    assert again
    assert browser.get(again[1], headers=_HTMX).status_code == 204
    assert "<html" in browser.get("/", headers={**_HTMX, "HX-History-Restore-Request": "true"}).text


def test_what_changed_is_sent(service: Service, client: TestClient) -> None:
    seeder = seeding.Seeder(service)
    seeder.running(seeding.CLASSIFIER, share=0.5, age=seeding.timedelta(minutes=1), trials=2)
    address = re.findall(r'hx-get="(/\?seen=[^"]+)"', client.get("/").text)[0]
    assert client.get(address, headers=_HTMX).status_code == 204
    seeding.many(service, 1)
    assert client.get(address, headers=_HTMX).status_code == 200


def test_pages_lead_to_older_jobs_with_the_same_filter(service: Service, client: TestClient) -> None:
    seeding.many(service, 110)
    found: list[str] = []
    address = "/?state=queued"
    while address:
        page = client.get(address).text
        found += listed(page)
        following = re.search(r'href="([^"]+)" rel="next"', page)
        address = following[1].replace("&amp;", "&") if following else ""
    assert len(found) == len(set(found)) == 110
    assert found == sorted(found, reverse=True)


def test_a_page_costs_the_same_however_many_jobs_it_lists(service: Service, client: TestClient) -> None:
    seeding.many(service, 1)
    with counted_queries() as one:
        client.get("/")
    seeding.many(service, 40)
    with counted_queries() as many:
        client.get("/")
    assert len(many) == len(one) <= 6


def test_others_jobs_are_not_listed(full: tuple[Service, Seeded]) -> None:
    service, seeded = full
    assert listed(visitor(service, "someone-else").get("/").text) == [seeded.others]
