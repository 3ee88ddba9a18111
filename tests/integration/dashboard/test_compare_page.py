"""Jobs and builds side by side."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from html import unescape

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from api.jobs.pages import compare
from domain.artifacts import Timing
from storage import artifacts, codec
from storage.tables import ArtifactRow
from tests.integration.dashboard.test_models_page import jobs_in, rows
from tests.support.api.factories import Service
from tests.support.dashboard.networks import HOSTILE, RESNET
from tests.support.dashboard.pages import Page
from tests.support.dashboard.seeding import Seeded, Seeder
from tests.support.dashboard.variety import Various, scaled
from tests.support.dashboard.visitors import visitor
from tests.support.storage.factories import timing


def row(page: str, name: str) -> str:
    return next(text for text in rows(page.replace('<tr class="main">', "<tr>")) if text.startswith(name))


def test_with_fewer_than_two_there_is_something_to_choose(looking: TestClient, various: Various) -> None:
    page = looking.get("/compare").text
    assert page.count('type="checkbox"') == 4
    assert f'value="{various.ansor}"' in page
    one = looking.get(f"/compare?job={various.ansor}").text
    assert f'value="{various.ansor}" checked' in one
    assert one.count(" checked") == 1


def test_jobs_stand_side_by_side(looking: TestClient, various: Various) -> None:
    page = looking.get(f"/compare?job={various.auto}&job={various.ansor}&job={various.quantized}").text
    published = row(page, "Published")
    assert "slower 0.8" in published
    assert "faster 1.3" in published
    assert "alike" in row(page, "Untuned")
    assert row(page, "tuner") == "tuner auto ansor auto"
    assert row(page, "precision") == "precision f32 f32 int8"
    assert "priority" not in page
    assert row(page, "conv2d 1×3×224×224 ∗ 64×3×7×7 /2").count("2 of 2 trials") == 3
    assert "are not compared" not in page
    assert row(page, "autotvm").count("ms") == 3


def test_the_first_side_is_what_others_are_held_against(looking: TestClient, various: Various) -> None:
    page = looking.get(f"/compare?job={various.auto}&job={various.ansor}").text
    other = unescape(re.findall(r'href="([^"]+)">Make B the baseline', page)[0])
    assert other == f"/compare?job={various.ansor}&job={various.auto}"
    assert "faster 1.1" in row(looking.get(other).text, "Published")


def test_toolchains_of_a_model_stand_side_by_side(looking: TestClient, various: Various) -> None:
    page = looking.get(f"/compare?job={various.auto}&artifact={various.by_relax}").text
    assert row(page, "Toolchain") == "Toolchain relay, TVM 0.19.0, LLVM 22.1.8 relax, TVM 0.27.0, LLVM 22.1.8"
    assert "slower 0.7" in row(page, "Published")


def test_different_models_are_not_held_against_each_other(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    seeded = full[1]
    text = browser.get(f"/compare?job={seeded.succeeded}&job={seeded.hostile}&job={seeded.running}").text
    assert "The models differ" in text
    assert "slower" not in row(text, "Published")
    assert "faster" not in row(text, "Published")
    assert "No measurements." in text
    assert HOSTILE.name in Page(text).text
    Page(text).check_no_markup_of_users()


def test_too_many_sides_are_refused(client: TestClient) -> None:
    answer = client.get("/compare?" + "&".join(f"job=j-{number}" for number in range(7)))
    assert answer.status_code == 400
    assert "Choose up to 6" in answer.text


def test_jobs_of_others_cannot_be_compared(varied: tuple[Service, Various]) -> None:
    service, various = varied
    ada = visitor(service, "ada")
    assert ada.get(f"/compare?job={various.auto}&job={various.ansor}").status_code == 404
    assert ada.get(f"/compare?artifact={various.by_relax}&job={various.ansor}").status_code == 404
    assert "Nothing to compare yet" in ada.get("/compare").text
    assert ada.get("/compare?model=m-none").status_code == 404


def test_an_artifact_of_somebody_elses_job_tells_nothing_of_the_job(
    looking: TestClient, varied: tuple[Service, Various]
) -> None:
    service, various = varied
    Seeder(service).model(RESNET, owner="cleo")
    auto = looking.get(f"/v1/jobs/{various.auto}").json()["artifact_id"]
    page = visitor(service, "cleo").get(f"/compare?artifact={auto}&artifact={various.by_relax}").text
    assert unescape(page).count("a job of another owner") == 2
    assert jobs_in(page) == set()
    assert "slower 0.7" in row(page, "Published")


@pytest.mark.parametrize(
    ("base", "other", "verdict"),
    [((0.9, 1.1), (0.4, 0.6), "faster"), ((0.9, 1.1), (1.0, 1.2), "alike"), ((0.9, 1.1), (1.2, 1.6), "slower")],
)
def test_differences_are_told_from_chance(base: tuple[float, float], other: tuple[float, float], verdict: str) -> None:
    found = compare.against(*(within(bounds) for bounds in (base, other)))
    assert found.verdict == verdict
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.ratio <= found.high


@pytest.mark.parametrize(
    ("times", "verdict"),
    [(1.3, "alike"), (1.0, "slower"), (2.0, "faster")],
)
def test_what_drifted_with_the_reference_is_no_difference(times: float, verdict: str) -> None:
    """The build took 1.3 times as long; the reference, ``times`` as long."""
    base, other = within((0.99, 1.01)), within((1.29, 1.31))
    found = compare.against(base, other, (within((1.98, 2.02)), within((1.98 * times, 2.02 * times))))
    assert found.verdict == verdict
    assert found.ratio == pytest.approx(times / 1.3)
    assert compare.against(base, other).verdict == "slower"


def test_runs_are_compared_by_their_own_references(service: Service, client: TestClient) -> None:
    """A job on a day on which everything took 1.3 times as long."""
    seeder = Seeder(service)
    first, second = (seeder.succeeded(RESNET, age=timedelta(hours=age), trials=2) for age in (9, 5))
    changed = update(ArtifactRow).where(ArtifactRow.job_id == second)
    with service.database.transaction() as session:
        made = artifacts.of_job(session, first)
        assert made is not None
        timings = {variant: scaled(timing, 1.3) for variant, timing in made.report.timings.items()}
        session.execute(changed.values(report=codec.dump(replace(made.report, timings=timings))))
    page = client.get(f"/compare?job={first}&job={second}").text
    for name in ("Published", "Tuned", "Untuned"):
        assert "alike" in row(page, name)
    assert "0.77×" in row(page, "Reference")
    assert "is-slower" not in page
    assert "The reference took 1.30× as long in B as in A" in page
    assert "each time divided by its run's own reference" in unescape(page)
    with service.database.transaction() as session:
        session.execute(changed.values(device_key="x86_64/another/t2"))
    page = client.get(f"/compare?job={first}&job={second}").text
    assert "A and B have no reference in common" in page
    assert "each time divided" not in page
    assert "slower 0.77×" in row(page, "Published")


def test_without_intervals_nothing_is_claimed() -> None:
    found = compare.against(timing(1.0), timing(0.5))
    assert (found.ratio, found.verdict) == (2.0, "unknown")


def within(bounds: tuple[float, float]) -> Timing:
    return replace(timing(sum(bounds) / 2), ci_low=bounds[0], ci_high=bounds[1])
