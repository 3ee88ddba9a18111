"""More than the usual: one model built by two toolchains, records of several places, workers of several kinds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import update

from domain import ids
from domain.artifacts import Artifact, Report, Timing, Variant
from domain.jobs import Precision, Tuner
from domain.records import ImportedRecord, Record, RecordKey, TrialError
from domain.targets import Device, Target
from domain.workers import Worker
from storage import artifacts, imports, records, workers
from storage.record_filters import RecordFilter
from storage.tables import ArtifactRow, digest_of
from tests.support.api.factories import Service
from tests.support.dashboard.networks import CLASSIFIER, RESNET
from tests.support.dashboard.seeding import Seeder
from tests.support.dashboard.stories import DEVICE, RELAX, TARGET

GPU = Device(key="cuda/nvidia-h200/sm_90", name="NVIDIA H200", threads=1)
CUDA = Target(text="cuda -arch=sm_90", threads=1)


@dataclass(frozen=True)
class Various:
    auto: str
    ansor: str
    quantized: str
    """Jobs of one model."""
    by_relax: str
    """An artifact of the same model, by another toolchain and by somebody else's job."""
    running: str
    """A job of another model."""


def add(service: Service) -> Various:
    """In a database that has nothing of it yet."""
    seeder = Seeder(service, seed=7)
    hours = iter(range(2, 40, 7))

    def job(**how: Any) -> str:
        return seeder.succeeded(RESNET, age=timedelta(hours=next(hours)), trials=2, **how)

    found = Various(
        auto=job(gain=1.9),
        ansor=job(gain=1.6, tuner=Tuner.ANSOR, priority=2),
        quantized=_quantized(service, job(gain=2.6, precision=Precision.INT8)),
        by_relax=_by_relax(service, job(gain=1.8, owner="someone-else")),
        running=seeder.running(CLASSIFIER, share=0.5, age=timedelta(minutes=1), trials=2),
    )
    seeder.fleet(found.running)
    _fleet(service)
    _records(service)
    return found


def _quantized(service: Service, job_id: str) -> str:
    with service.database.transaction() as session:
        changed = update(ArtifactRow).where(ArtifactRow.job_id == job_id).values(precision=Precision.INT8)
        session.execute(changed)
    return job_id


def _by_relax(service: Service, job_id: str) -> str:
    with service.database.transaction() as session:
        made = artifacts.of_job(session, job_id)
        assert made is not None
        digest = digest_of("by relax")
        again: Artifact = replace(
            made, id=ids.artifact(digest), digest=digest, toolchain=RELAX.identity, report=_slower(made.report, 1.3)
        )
        return artifacts.add(session, again).id


def _slower(report: Report, times: float) -> Report:
    builds = {
        variant: scaled(timing, times) for variant, timing in report.timings.items() if variant is not Variant.REFERENCE
    }
    return replace(report, timings={**report.timings, **builds})


def scaled(timing: Timing, times: float) -> Timing:
    return replace(
        timing,
        **{name: times * value for name, value in vars(timing).items() if isinstance(value, float)},
        samples=tuple(times * sample for sample in timing.samples),
    )


def _fleet(service: Service) -> None:
    now = datetime.now(UTC)
    gpu = Worker(
        id="gpu-07:99:1",
        hostname="gpu-07",
        pid=99,
        device=DEVICE,
        native_target=TARGET,
        accelerators=(GPU,),
        toolchains=(RELAX,),
        current_job=None,
        started_at=now - timedelta(hours=3),
        last_seen_at=now,
    )
    gone = replace(gpu, id="old:1:1", hostname="old-box", accelerators=(), last_seen_at=now - timedelta(hours=2))
    with service.database.transaction() as session:
        workers.beat(session, gpu)
        workers.beat(session, gone)
        workers.quarantine(
            session,
            "boards:9190/pi4/10.0.0.17:9091",
            job_id="j-somebodys",
            reason="the session ended while <b>a trial</b> ran: connection reset by peer",
            now=now - timedelta(minutes=4),
            seconds=1800,
        )


def _records(service: Service) -> None:
    """Of workloads whose keys alone say what they are, on a GPU, and imported ones."""
    found = [
        Record(
            key=RecordKey(
                workload_key=f"matmul <i>{number}</i>",
                target=CUDA.identity,
                device_key=GPU.key,
                toolchain=RELAX.identity,
            ),
            tuner="metaschedule",
            schedule=f'["{number}", {trial}]',
            schedule_digest=digest_of(f"{number} {trial}"),
            latencies=() if trial == 0 else (1e-6 * (number + trial),),
            error=TrialError.BUILD_ERROR if trial == 0 else None,
            trial_number=trial,
            job_id="j-elsewhere",
            worker_id="elsewhere",
            finished_at=datetime.now(UTC),
        )
        for number in range(30)
        for trial in range(3)
    ]
    claimed = [
        ImportedRecord(
            key=each.key,
            tuner=each.tuner,
            schedule=f"{each.schedule} ",
            schedule_digest=digest_of(f"imported {each.schedule}"),
            latencies=(1e-12,),
            error=None,
            finished_at=each.finished_at,
            owner="local",
            imported_at=each.finished_at,
        )
        for each in found[:7]
    ]
    with service.database.transaction() as session:
        records.add(session, found)
        imports.add_unknown(session, claimed)
        imports.invalidate(session, RecordFilter(ids=(1, 2)))
