"""Every tuner on this machine: from an upload to a bundle that runs, and what the next job pays."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from domain.artifacts import Runtime, Variant
from tests.support import models
from tests.support.tuner.engines.relax import networks
from tests.support.worker.fixtures import Killed
from tests.system.worker.routes.service import Service, kill, serving
from tuner.host.session import EngineSession
from tunesmith.cli import local

pytestmark = pytest.mark.engine

TRIALS = 6
JOBS: dict[str, dict[str, Any]] = {
    "autotvm": {"input_shapes": {"image": [1, 3, 16, 16]}, "tuner_options": {"search": "ga"}},
    "ansor": {"input_shapes": {"image": [1, 3, 16, 16]}},
    "metaschedule": {},
}
"""Of the small network, and of one operator for the tuner whose rounds take longest."""
ENGINES = {"autotvm": "relay/tvm-0.19", "ansor": "relay/tvm-0.19", "metaschedule": "relax/tvm-0.27"}

Jobs = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def tuned(shared: Service) -> Jobs:
    """The first job with each tuner."""
    return {tuner: shared.finish(content(tuner), tuner=tuner, trials=TRIALS, **more) for tuner, more in JOBS.items()}


def content(tuner: str) -> bytes:
    return networks.matmul() if tuner == "metaschedule" else models.small_network()


@pytest.mark.parametrize("tuner", JOBS)
def test_what_is_found_is_stored_proven_and_published(service: Service, tuned: Jobs, tuner: str) -> None:
    job = tuned[tuner]
    found = service.records(job["id"])
    assert len(found) == job["trials_done"] == job["trials_planned"] == TRIALS
    assert {record.tuner for record in found} == {tuner}
    assert {record.key.toolchain for record in found} == {job["placement"]["toolchain"]}
    assert {record.key.device_key for record in found} == {job["placement"]["device_key"]}
    assert job["placement"]["toolchain"].startswith(ENGINES[tuner])
    assert any(record.latency for record in found)
    assert all(record.latency or record.error for record in found)
    artifact = service.artifact(job["id"])
    assert (artifact.verified, artifact.toolchain) == (True, job["placement"]["toolchain"])
    assert {Variant.REFERENCE, Variant.UNTUNED, Variant.TUNED} <= set(artifact.report.timings)
    assert all(each.passed for each in artifact.report.verifications.values())
    assert (artifact.report.speedup_over_untuned > 1) == (artifact.report.published is Variant.TUNED)
    best = service.client.get("/v1/best", params={"model": job["model"]}).json()
    assert best["artifact"]["id"] in {service.artifact(each["id"]).id for each in tuned.values()}


@pytest.mark.parametrize("tuner", JOBS)
def test_the_bundle_runs(service: Service, tuned: Jobs, tuner: str, tmp_path: Path) -> None:
    job = tuned[tuner]
    bundle = service.download(job["id"], tmp_path / "bundle.tar")
    with tarfile.open(bundle) as archive:
        manifest, evidence, won = (
            json.loads(archive.extractfile(name).read())  # type: ignore[union-attr]
            for name in ("manifest.json", "evidence.json", "records.json")
        )
    report = service.artifact(job["id"]).report
    assert (manifest["model_digest"], evidence["published"]) == (job["model_digest"], report.published)
    assert set(won["records"]) <= {record.schedule.rstrip("\n") for record in service.records(job["id"])}
    assert bool(won["records"]) == (report.published is Variant.TUNED)
    ran = local.run_bundle(
        bundle, inputs=None, outputs=tmp_path / "y.npz", threads=None, repeat=3, number=1, fill="random"
    )
    assert [spec["shape"] for spec in ran.outputs] == [[16, 16] if tuner == "metaschedule" else [1, 5]]
    assert len(ran.samples) == 3
    # Which one is faster depends on the machine.
    other = report.runtime is Runtime.ONNXRUNTIME
    assert (manifest["runtime"] is not None, ran.runtime.startswith("onnxruntime ")) == (other, other)
    assert (tmp_path / "y.npz").stat().st_size > 0


@pytest.mark.parametrize("tuner", ["ansor", "metaschedule"])
def test_the_same_job_again_needs_no_trials(service: Service, tuned: Jobs, tuner: str) -> None:
    again = service.finish(content(tuner), tuner=tuner, trials=TRIALS, **JOBS[tuner])
    assert (again["trials_done"], again["trials_planned"], service.records(again["id"])) == (0, 0, [])
    assert again["planned"]["trials_on_record"] == TRIALS
    assert Variant.TUNED in service.artifact(again["id"]).report.timings
    seconds = {stage["stage"]: stage["seconds"] for stage in again["timeline"]}
    assert seconds["tune"] < 1


@pytest.mark.parametrize("tuner", ["ansor", "metaschedule"])
def test_records_brought_in_from_elsewhere_are_used(service: Service, tuned: Jobs, tuner: str, tmp_path: Path) -> None:
    job = tuned[tuner]
    exported = service.client.get("/v1/records", params={"tuner": tuner, "job": job["id"], "format": "native"})
    place = job["placement"]
    known = {"target": place["target"], "device": place["device_key"], "toolchain": place["toolchain"]}
    with serving(tmp_path) as other:
        taken = other.client.post("/v1/records", params={"tuner": tuner, **known}, content=exported.content)
        assert (taken.status_code, taken.json()["imported"]) == (200, TRIALS), taken.text
        # A job that measures nothing has no other records to build with.
        second = other.finish(content(tuner), tuner=tuner, runner="none", **JOBS[tuner])
        assert second["planned"]["trials_on_record"] == 0, "what is imported is only claimed"
        artifact = other.artifact(second["id"])
        assert (artifact.report.published, artifact.verified) == (Variant.TUNED, False)
        with tarfile.open(other.download(second["id"], tmp_path / "bundle.tar")) as archive:
            won = json.loads(archive.extractfile("records.json").read())["records"]  # type: ignore[union-attr]
    assert won
    assert set(won) <= {record.schedule.rstrip("\n") for record in service.records(job["id"])}


def test_an_engine_and_a_worker_killed_in_mid_search_cost_no_trial_twice(service: Service) -> None:
    measured: list[tuple[str, str]] = []
    killed: list[EngineSession] = []

    def hear(engine: EngineSession, kind: str, data: dict[str, Any]) -> None:
        if kind != "trial":
            return
        measured.append((data["workload_key"], data["schedule_digest"]))
        # The trial is in the engine's spool by now, and not yet stored.
        if len(measured) == 3:
            killed.append(engine)
            kill(engine)
        # What the first engine had measured by then may still come before its end is noticed.
        if len(measured) >= 6 and engine is not killed[0] and not has_ended:
            has_ended.append(True)
            raise Killed

    has_ended: list[bool] = []
    service.hear = hear
    job_id = service.submit(networks.matmul(rows=24), tuner="metaschedule", trials=10)
    with pytest.raises(Killed):
        service.work(job_id)
    assert len(killed) == 1
    service.bury(job_id)
    job = service.work(job_id)
    assert (job["state"], job["trials_done"], job["attempts"]) == ("succeeded", 10, 2)
    assert any("continuing with a new engine" in note for note in service.notes(job_id))
    assert len(set(measured)) == len(measured)
    stored = {(record.key.workload_key, record.schedule_digest) for record in service.records(job_id)}
    assert len(stored) == 10
    assert set(measured) <= stored
