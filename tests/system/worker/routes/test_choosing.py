"""What ``auto`` makes of models that one engine, or none, can take."""

from __future__ import annotations

from typing import Any

import pytest

from domain.artifacts import Variant
from tests.support import models
from tests.system.worker.routes.service import Service

pytestmark = pytest.mark.engine

NEITHER = {"relay": {"Det": 2}, "relax": {"Det": 2}}


def test_a_model_that_one_engine_gets_wrong_goes_to_the_other(service: Service) -> None:
    job = service.finish(models.crossed_bounds(), tuner="auto")
    assert job["placement"]["toolchain"].startswith("relax/")
    reason = job["choice"][0]
    assert reason.startswith("the results of relay differ from ONNX Runtime")
    assert reason in service.report(job["id"])["choice"]
    assert f"{reason.removesuffix('.')}; continuing without it" in service.notes(job["id"])
    report = service.artifact(job["id"]).report
    assert all(name.startswith("relax/") for name in report.engines.values())
    assert all(each.passed for each in report.verifications.values())
    assert {record.tuner for record in service.records(job["id"])} <= {"metaschedule"}


def test_a_model_that_one_engine_cannot_import_stays_with_the_other(service: Service) -> None:
    content = models.reversed_sequences()
    job = service.finish(content, tuner="auto")
    assert job["placement"]["toolchain"].startswith("relay/")
    assert any(text.startswith("relax cannot import the model") and "ReverseSequence" in text for text in job["choice"])
    assert service.report(job["id"])["choice"] == job["choice"]
    assert service.artifact(job["id"]).report.verifications[Variant.UNTUNED].passed


def test_a_model_that_no_engine_imports_is_refused_with_what_each_lacks(service: Service) -> None:
    assert service.worker.toolchains
    body: dict[str, Any] = {"model": service.upload(models.unsupported_operators()), "threads": 1}
    plan = service.client.post("/v1/jobs:plan", json=body).json()
    assert plan["possible"] is False
    assert {engine["name"]: engine["unsupported_operators"] for engine in plan["engines"]} == NEITHER
    job = service.work(service.submit(models.unsupported_operators()))
    assert (job["state"], job["failure"]["code"], job["stage"]) == ("failed", "unsupported_operators", "import")
    told = job["failure"]["details"]["engines"]
    assert {name: facts["operators"] for name, facts in told.items()} == NEITHER
