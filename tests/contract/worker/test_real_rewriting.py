"""A whole job over real engines whose model is rewritten."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from domain.artifacts import Variant
from domain.jobs import JobState, Tuner
from storage import artifacts
from tests.support import models
from tests.support.worker.fixtures import Bench
from tuner.host import catalogue, environments
from tuner.host.settings import TunerSettings
from worker.engines import InstalledEngines

pytestmark = pytest.mark.engine


def test_a_padded_network_is_tuned_and_right(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = Path(os.environ.get("TUNESMITH_HOME") or Path.home() / ".local" / "share" / "tunesmith")
    for spec in catalogue.ENGINES.values():
        monkeypatch.setenv(environments.variable(spec), str(environments.interpreter(spec, outer)))
    # Of 8 lanes, whose tiles are two vectors wide: 40 columns become 48.
    target = "llvm -mcpu=haswell"
    job_id = bench.job(trials=4, content=models.dense_network(columns=40), tuner=Tuner.AUTOTVM, target=target)
    replace(bench.runtime(), engines=InstalledEngines(home=bench.home, settings=TunerSettings())).run_job(job_id)
    job = bench.get(job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    assert "rewritten for tuning: 1 layer padded to whole vectors" in bench.notes(job_id)
    with bench.database.reading() as session:
        artifact = artifacts.of_job(session, job_id)
    assert artifact is not None
    assert artifact.report.verifications[Variant.TUNED].passed
    assert [record.key.workload_key for record in bench.records(job_id) if "48" in record.key.workload_key]
