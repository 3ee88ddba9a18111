"""Deleting a model and a bundle from their pages: who is offered it, what is said before, and what after."""

from __future__ import annotations

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from domain.tokens import Scope
from tests.integration.dashboard.test_job_page import look
from tests.integration.dashboard.test_models_page import model_of
from tests.support.api.factories import Service
from tests.support.dashboard.networks import CLASSIFIER, RESNET
from tests.support.dashboard.seeding import Seeder
from tests.support.dashboard.visitors import visitor


@pytest.fixture
def job(service: Service) -> str:
    return Seeder(service).succeeded(CLASSIFIER, age=timedelta(hours=1), trials=2)


def test_a_model_goes_with_its_bundle(client: TestClient, job: str) -> None:
    model = model_of(client, job)
    page = client.get(f"/models/{model}").text
    assert "deletes the model and its only bundle" in page
    assert f'action="/models/{model}/delete"' in page
    answer = client.post(f"/models/{model}/delete")
    assert answer.url.path == "/models"
    assert f'Model <span class="mono">{model}</span> was deleted' in answer.text
    assert client.get(f"/models/{model}").status_code == 410
    assert "Deleted on" in look(client, job)
    assert client.post(f"/models/{model}/delete").status_code == 200, "somebody else was quicker"


def test_a_model_at_work_is_said_to_be_so_before_and_after(client: TestClient, service: Service, job: str) -> None:
    model = model_of(client, job)
    with Seeder(service).story(CLASSIFIER, age=timedelta(seconds=5)) as story:
        waiting = story.job_id
    before = client.get(f"/models/{model}").text
    assert "A model with unfinished jobs cannot be deleted" in before
    assert '<details class="card delete" id="delete">' in before
    refused = client.post(f"/models/{model}/delete")
    assert refused.status_code == 409
    assert '<details class="card delete" id="delete" open>' in refused.text
    assert "<code>model_in_use</code>" in refused.text
    assert f'href="/jobs/{waiting}"' in refused.text.split('id="delete"')[1]
    again = client.get(f"/models/{model}/delete")
    assert (again.status_code, "model_in_use" in again.text) == (200, False)
    client.post(f"/jobs/{waiting}/cancel")
    assert client.post(f"/models/{model}/delete").status_code == 200


def test_what_others_have_as_well_they_keep(client: TestClient, service: Service) -> None:
    seeder = Seeder(service)
    job = seeder.succeeded(RESNET, age=timedelta(hours=1), trials=2, owner="ann")
    seeder.model(RESNET, owner="bob")
    model = model_of(client, job)
    bob = visitor(service, "bob")
    assert "Others have uploaded the same model" in bob.get(f"/models/{model}").text
    assert "Delete the bundle" in look(visitor(service, "ann"), job)
    answer = bob.post(f"/models/{model}/delete")
    assert f'<span class="mono">{model}</span> is no longer yours' in answer.text
    assert bob.get(f"/models/{model}").status_code == 404
    assert visitor(service, "ann").get(f"/models/{model}").status_code == 200
    assert "deletes the model and its only bundle" in client.get(f"/models/{model}").text, (
        "an admin deletes for everyone"
    )


def test_a_bundle_goes_and_its_job_stays(client: TestClient, job: str) -> None:
    assert f'action="/jobs/{job}/delete-bundle"' in look(client, job)
    answer = client.post(f"/jobs/{job}/delete-bundle", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job}#deleted")
    page = look(client, job)
    assert "Deleted on" in page
    assert "Tuning made it" in page
    assert not [word for word in ("delete-bundle", "Download", "tunesmith pull") if word in page]
    assert client.get(f"/compare?job={job}").status_code == 200
    assert client.get("/").status_code == 200
    assert client.post(f"/jobs/{job}/delete-bundle").status_code == 200, "somebody else was quicker"


def test_a_job_without_a_bundle_has_none_to_delete(client: TestClient, service: Service) -> None:
    with Seeder(service).story(CLASSIFIER, age=timedelta(seconds=5)) as story:
        pass
    assert "delete-bundle" not in look(client, story.job_id)
    refused = client.post(f"/jobs/{story.job_id}/delete-bundle")
    assert (refused.status_code, "artifact_not_found" in refused.text) == (404, True)


def test_whoever_may_only_look_is_not_offered_it(client: TestClient, service: Service) -> None:
    job = Seeder(service).succeeded(RESNET, age=timedelta(hours=1), trials=2, owner="ann")
    model = model_of(client, job)
    reader = visitor(service, "ann", scopes=[Scope.READ])
    for address in (f"/models/{model}", f"/jobs/{job}"):
        page = reader.get(address)
        assert page.status_code == 200
        assert "Delete" not in page.text
    for address in (f"/models/{model}/delete", f"/jobs/{job}/delete-bundle"):
        refused = reader.post(address)
        assert (refused.status_code, "missing_scope" in refused.text) == (403, True)
        assert visitor(service, "eve").post(address).status_code == 404


def test_pages_of_other_sites_delete_nothing(client: TestClient, service: Service, job: str) -> None:
    model = model_of(client, job)
    signed_in = TestClient(service.app, headers={"Accept": "text/html"})
    signed_in.get(client.post("/v1/login-links").json()["url"])
    for address in (f"/models/{model}/delete", f"/jobs/{job}/delete-bundle"):
        for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            assert signed_in.post(address, headers=headers).status_code == 403
        assert signed_in.post(address, headers={"Sec-Fetch-Site": "same-origin"}).status_code in (200, 410)


def test_what_an_address_claims_was_deleted_is_an_id(client: TestClient) -> None:
    assert client.get("/models?deleted=<b>all</b>").status_code == 400
