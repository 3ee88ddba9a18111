"""What lists show of models and artifacts, and how jobs are found by part of a name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy.orm import Session

from domain.artifacts import Variant
from storage import artifacts, jobs, model_overviews
from storage.model_overviews import Gain, ModelName
from storage.tables import digest_of
from tests.support.storage.factories import DIGEST, add_job, add_model, artifact, report


def test_models_by_digest(session: Session) -> None:
    add_model(session)
    other = add_model(session, digest_of("another model"))
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


@pytest.mark.parametrize(
    ("text", "found"),
    [("CLS", 3), ("nightly", 1), ("ightl", 1), ("MAI", 1), ("j-", 3), ("-", 0), ("%", 0), ("_", 0), ("branch", 0)],
)
def test_jobs_by_part_of_a_name(session: Session, text: str, found: int) -> None:
    add_job(session)
    add_job(session, group="nightly")
    add_job(session, labels={"branch": "main"})
    page, _ = jobs.page(session, text=text, limit=10)
    assert len(page) == found
