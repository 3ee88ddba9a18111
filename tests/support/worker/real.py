"""Jobs over the engines that this machine's home has, without a service around them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.artifacts import Artifact
from domain.jobs import JobState
from tests.support.tuner.engines.fixtures import home
from tests.support.worker.fixtures import Bench
from tuner.host import catalogue, environments
from tuner.host.settings import TunerSettings
from tuner.results import conditions
from worker.engines import InstalledEngines


@pytest.fixture
def real_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in catalogue.ENGINES.values():
        monkeypatch.setenv(environments.variable(spec), str(environments.interpreter(spec, home())))


@pytest.fixture
def timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that do not read times."""
    monkeypatch.setattr(conditions, "ATTEMPTS", 1)


def run_job(bench: Bench, job_id: str, engines: InstalledEngines | None = None, **options: Any) -> None:
    """Run a job over real engines; ``options`` are the worker's."""
    engines = engines or InstalledEngines(home=bench.home, settings=TunerSettings())
    replace(bench.runtime(**options), engines=engines).run_job(job_id)


def publish(bench: Bench, job_id: str, engines: InstalledEngines | None = None, **options: Any) -> Artifact:
    """Likewise, of a job that must succeed; return what it published."""
    run_job(bench, job_id, engines, **options)
    job = bench.get(job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    return bench.artifact(job_id)
