from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import JobState, Lease
from storage import artifacts, jobs, models
from storage.tables import digest_of
from tests.support.storage.factories import DEVICE, DIGEST, FACTS, NOW, TARGET, add_job, add_model, artifact, report

OTHER = digest_of("another model")


def test_a_model_is_found_by_id_and_by_digest(session: Session) -> None:
    model, created = models.add(session, digest=DIGEST, name="cls.onnx", size_bytes=7, facts=FACTS, now=NOW)
    assert created
    assert model.facts == FACTS
    assert (model.id, model.name, model.size_bytes, model.created_at) == (f"m-{DIGEST[:12]}", "cls.onnx", 7, NOW)
    assert models.get(session, model.id) == models.get(session, DIGEST) == model
    with pytest.raises(errors.ModelNotFound, match="m-nothing"):
        models.get(session, "m-nothing")


def test_the_same_bytes_are_one_model(session: Session) -> None:
    first, _ = models.add(session, digest=DIGEST, name="cls.onnx", size_bytes=7, facts=FACTS, now=NOW)
    again, created = models.add(session, digest=DIGEST, name="other.onnx", size_bytes=7, facts=FACTS, now=NOW)
    assert (again, created) == (first, False)


def test_models_that_share_the_start_of_their_digests_stay_apart(session: Session) -> None:
    twin = DIGEST[:12] + "0" * 52
    first, second = add_model(session, DIGEST), add_model(session, twin)
    assert second.id == f"m-{twin}"
    assert models.get(session, first.id).digest == DIGEST
    assert models.get(session, second.id).digest == twin
    assert add_model(session, DIGEST) == first


def test_models_are_listed_newest_first(session: Session) -> None:
    for number in range(3):
        add_model(session, digest_of(str(number)), now=NOW + timedelta(seconds=number))
    first, token = models.page(session, limit=2)
    second, last = models.page(session, limit=2, page_token=token)
    assert [model.digest for model in first + second] == [digest_of(n) for n in "210"]
    assert last is None


def test_an_artifact_is_found_by_id_digest_and_job(session: Session) -> None:
    job_id = add_job(session).id
    assert artifacts.of_job(session, job_id) is None
    made = artifact(job_id)
    assert artifacts.add(session, made) == made
    assert artifacts.get(session, made.id) == artifacts.get(session, made.digest) == made
    assert artifacts.of_job(session, job_id) == made
    assert artifacts.page(session, model_digest=DIGEST, limit=5) == ([made], None)
    assert artifacts.page(session, model_digest=OTHER, limit=5) == ([], None)
    with pytest.raises(errors.ArtifactNotFound, match="a-nothing"):
        artifacts.get(session, "a-nothing")


def test_the_same_bundle_is_published_once(session: Session, held: tuple[str, Lease]) -> None:
    first = artifacts.add(session, artifact(add_job(session).id))
    second, lease = held
    assert artifacts.add(session, artifact(second)) == first
    jobs.finish(session, second, lease, state=JobState.SUCCEEDED, artifact_id=first.id, now=NOW)
    assert artifacts.of_job(session, second) == first


def test_bundles_that_share_the_start_of_their_digests_stay_apart(session: Session) -> None:
    first = artifacts.add(session, artifact(add_job(session).id))
    second = artifacts.add(session, artifact(add_job(session).id, digest=first.digest[:12] + "0" * 52))
    assert second.id == f"a-{second.digest}"
    assert artifacts.get(session, first.id) == first


def test_the_best_artifact_is_the_fastest_that_was_published(session: Session) -> None:
    job_id = add_job(session).id
    slow = artifacts.add(session, artifact(job_id, "slow", report=report(tuned=0.9e-3)))
    # Tuned was slower here: untuned, at 0.4 ms, is what counts.
    fast = artifacts.add(session, artifact(job_id, "fast", report=report(tuned=2e-3, untuned=0.4e-3)))
    wide = artifact(job_id, "wide", target=f"{TARGET.text} -num-cores=8", device_key="other", report=report(tuned=1e-4))
    artifacts.add(session, wide)

    def best(**filters: str) -> str:
        return artifacts.best(session, model_digest=DIGEST, **filters).id

    assert best() == wide.id
    assert best(target=TARGET.identity) == fast.id != slow.id
    assert best(target=TARGET.text) == wide.id
    assert best(target=TARGET.text, device_key=DEVICE.key) == fast.id


@pytest.mark.parametrize(
    "filters",
    [
        {"model_digest": OTHER},
        {"model_digest": DIGEST, "target": "llvm"},
        {"model_digest": DIGEST, "target": "llvm -mcpu=znver_"},
        {"model_digest": DIGEST, "target": "%"},
        {"model_digest": DIGEST, "device_key": "another"},
    ],
)
def test_what_was_never_published_has_no_best(session: Session, filters: dict[str, str]) -> None:
    artifacts.add(session, artifact(add_job(session).id))
    with pytest.raises(errors.ArtifactNotFound) as missing:
        artifacts.best(session, **filters)
    assert missing.value.hint
