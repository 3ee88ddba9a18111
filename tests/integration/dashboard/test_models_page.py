"""The pages of models: what is listed, what was made of one, and whose it is."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

from fastapi.testclient import TestClient

from tests.support.api.factories import Service
from tests.support.dashboard.networks import HOSTILE, RESNET
from tests.support.dashboard.pages import Page
from tests.support.dashboard.seeding import Seeded, Seeder
from tests.support.dashboard.variety import Various
from tests.support.dashboard.visitors import visitor


def model_of(client: TestClient, job: str) -> str:
    return str(client.get(f"/v1/jobs/{job}").json()["model"])


def jobs_in(page: str) -> set[str]:
    return set(re.findall(r"j-[0-9a-z]{20}", page))


def rows(page: str) -> list[str]:
    """Text of each row of every table's body."""
    bodies = "".join(re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL))
    found = re.findall(r"<tr[^>]*>(.*?)</tr>", bodies, re.DOTALL)
    return [unescape(" ".join(re.sub(r"<[^>]+>", " ", row).split())) for row in found]


def test_models_are_listed_with_jobs_and_their_fastest_build(looking: TestClient, various: Various) -> None:
    newer, tuned = sorted(rows(looking.get("/models").text), key=lambda row: RESNET.name in row)
    assert "none yet" in newer
    assert RESNET.name in tuned
    assert "int8, AMD EPYC 7R13, 2 threads" in tuned
    assert f'href="/?model={model_of(looking, various.auto)}">4<' in looking.get("/models").text


def test_models_are_found_by_name_and_paged(client: TestClient, service: Service) -> None:
    seeder = Seeder(service)
    for number in range(52):
        seeder.model(replace(RESNET, name=f"net-{number}.onnx"))
    first = client.get("/models")
    following = unescape(re.findall(r'href="([^"]+)" rel="next"', first.text)[0])
    assert len(rows(first.text)) == 50
    assert len(rows(client.get(f"/models{following}").text)) == 2
    assert [row.split()[0] for row in rows(client.get("/models?name=NET-51").text)] == ["net-51.onnx"]
    assert "No matching models" in client.get("/models?name=<i>none").text
    assert "<i>none" not in client.get("/models?name=<i>none").text


def test_a_model_shows_what_it_is_and_what_was_made_of_it(looking: TestClient, various: Various) -> None:
    model = model_of(looking, various.auto)
    page = looking.get(f"/models/{model}").text
    assert f'<h1 class="break">{RESNET.name}</h1>' in page
    assert f'href="/new?model={model}"' in page
    assert "batch×3×224×224" in page
    found = rows(page)
    assert any(row.startswith("BatchNormalization") for row in found)
    assert [row for row in found if row.startswith("relax, TVM 0.27.0")]
    assert f"/v1/artifacts/{various.by_relax}/download" in page
    jobs = [row for row in found if row.startswith("j-")]
    assert len(jobs) == 4
    assert page.count('<h3 class="break">AMD EPYC 7R13, 2 threads</h3>') == 2, "one place in f32, one in int8"
    compare = re.findall(r'href="(/compare\?[^"]+)"', page)
    assert len(compare) == 1
    assert various.by_relax in compare[0]
    assert looking.get(unescape(compare[0])).status_code == 200


def test_a_model_without_jobs_says_what_to_do(client: TestClient) -> None:
    model = client.put("/v1/models?name=net", content=b"static model").json()["id"]
    page = client.get(f"/models/{model}").text
    assert "This model has no published build yet" in page
    assert "This model has no jobs yet" in page


def test_models_of_others_are_not_there(looking: TestClient, varied: tuple[Service, Various]) -> None:
    service, various = varied
    model = model_of(looking, various.auto)
    ada = visitor(service, "ada")
    assert "No models yet" in ada.get("/models").text
    assert ada.get(f"/models/{model}").status_code == 404
    assert RESNET.name not in ada.get(f"/models/{model}").text


def test_jobs_of_others_are_not_told(looking: TestClient, varied: tuple[Service, Various]) -> None:
    """Whoever uploads the same bytes sees the artifacts, and none of the jobs."""
    service, various = varied
    Seeder(service).model(RESNET, owner="bob")
    model = model_of(looking, various.auto)
    bob = visitor(service, "bob")
    page = bob.get(f"/models/{model}").text
    assert "relax, TVM 0.27.0" in page
    assert jobs_in(page) == set()
    [line] = rows(bob.get("/models").text)
    assert " 0 " in line, "of 4 jobs, none is his"
    assert len(jobs_in(visitor(service, "someone-else").get(f"/models/{model}").text)) == 1


def test_hostile_names_are_text(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    job = full[1].hostile
    model = model_of(browser, job)
    for address in ("/models", f"/models/{model}", f"/new?model={model}", f"/new?like={job}"):
        page = Page(browser.get(address).text)
        assert HOSTILE.name in page.text, address
        page.check_no_markup_of_users()
    assert browser.get("/models/no-such-model").status_code == 404
