from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from domain.artifacts import Variant
from domain.jobs import Budget, JobRequest
from storage import artifacts, jobs, model_overviews
from storage.model_overviews import Gain, ModelName
from storage.tables import digest_of
from tests.support.storage.factories import DIGEST, NOW, add_job, add_model, artifact, report

OTHER = digest_of("another model")
SLOW, FAST, FASTEST = (report(tuned=median) for median in (0.9e-3, 0.5e-3, 0.2e-3))


def publish(session: Session, text: str, **changes: Any) -> str:
    made = artifact(add_job(session).id, text, **changes)
    return artifacts.add(session, made).id


def test_models_without_jobs_have_nothing(session: Session) -> None:
    add_model(session)
    overview = model_overviews.of_models(session, [DIGEST])[DIGEST]
    assert (overview.jobs, overview.fastest) == (0, None)
    assert model_overviews.of_models(session, []) == {}
    assert model_overviews.fastest(session, DIGEST) == []


def test_jobs_are_counted_and_the_fastest_verified_artifact_is_told(session: Session) -> None:
    publish(session, "slow", report=SLOW)
    fast = publish(session, "fast", report=FAST, device_key="another")
    publish(session, "unverified", report=FASTEST, verified=False)
    add_model(session, OTHER)
    found = model_overviews.of_models(session, [DIGEST, OTHER])
    assert found[DIGEST].jobs == 3
    assert found[DIGEST].fastest is not None
    assert found[DIGEST].fastest.id == fast
    assert (found[OTHER].jobs, found[OTHER].fastest) == (0, None)


def test_an_owners_jobs_alone_are_counted(session: Session) -> None:
    add_job(session)
    jobs.create(session, JobRequest(model_digest=DIGEST, budget=Budget(trials=1)), now=NOW, owner="ada")
    counts = [model_overviews.of_models(session, [DIGEST], owner=who)[DIGEST].jobs for who in ("ada", "bob", None)]
    assert counts == [1, 0, 2]


def test_of_each_place_and_toolchain_the_fastest_is_told(session: Session) -> None:
    publish(session, "slow", report=SLOW)
    best = publish(session, "fast", report=FAST, now=NOW + timedelta(hours=1))
    publish(session, "as fast, later", report=FAST, now=NOW + timedelta(hours=2))
    differing = [
        publish(session, f"{changes}", report=SLOW, **changes)
        for changes in (
            {"target": "another"},
            {"device_key": "another"},
            {"precision": "int8"},
            {"toolchain": "another"},
            {"input_shapes": {"x": (8, 3, 48, 192)}},
        )
    ]
    publish(session, "unverified", report=FASTEST, verified=False)
    found = [one.id for one in model_overviews.fastest(session, DIGEST)]
    assert found[0] == best
    assert sorted(found[1:]) == sorted(differing)
    assert len(model_overviews.fastest(session, DIGEST, most=3)) == 3


def test_models_by_digest(session: Session) -> None:
    add_model(session)
    other = add_model(session, OTHER)
    assert model_overviews.model_names(session, [DIGEST, other.digest, "none"]) == {
        DIGEST: ModelName(id=f"m-{DIGEST[:12]}", name="cls.onnx"),
        other.digest: ModelName(id=other.id, name="cls.onnx"),
    }
    assert model_overviews.model_names(session, []) == {}


def test_gains_by_artifact(session: Session) -> None:
    job_id = add_job(session).id
    tuned = artifacts.add(session, artifact(job_id, "tuned"))
    untuned = artifacts.add(session, artifact(job_id, "untuned", report=report(tuned=2e-3)))
    unproven = replace(report(), timings={}, speedup_over_untuned=1.0, speedup_over_reference=None)
    built = artifacts.add(session, artifact(job_id, "built", report=unproven))
    assert model_overviews.gains(session, [tuned.id, untuned.id, built.id, "a-none"]) == {
        tuned.id: Gain(published=Variant.TUNED, median=0.5e-3, over_untuned=2.0, over_reference=1.6),
        untuned.id: Gain(published=Variant.UNTUNED, median=1e-3, over_untuned=1.0, over_reference=0.8),
        built.id: Gain(published=Variant.TUNED, median=None, over_untuned=1.0, over_reference=None),
    }
