"""A worker by script: it does to the database what a real one does, without measuring anything."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from domain import ids
from domain.artifacts import (
    Artifact,
    Conditions,
    Contender,
    DataUse,
    FailedTask,
    LabelledAccuracy,
    OutputError,
    Report,
    RowsCompared,
    Timing,
    Variant,
    Verification,
    WorstRow,
)
from domain.jobs import Budget, EventKind, Failure, JobState, Lease, Placement, Stage
from domain.progress import share
from domain.records import Record, RecordKey, TrialError
from domain.targets import Device, Target
from domain.tuning_tasks import ExtractedTask, TuningTask
from domain.workers import Worker
from storage import artifacts, codec, convergence, events, jobs, models, records, stages, tuning_tasks, workers
from storage.convergence import Estimator
from storage.tables import digest_of
from tests.support import stage_results
from tests.support.api.factories import TOOLCHAINS, Service

WORKER = "host:1:1"
TARGET = Target(text="llvm -mcpu=znver3", threads=2)
DEVICE = Device(key="AMD EPYC 7R13/avx2/t2", name="AMD EPYC 7R13", threads=2)
TOOLCHAIN = TOOLCHAINS["relay"]
PLACEMENT = Placement(target=TARGET, device=DEVICE, toolchain=TOOLCHAIN)
_CHOICES = {Stage.BASELINE: ("relax is slower untuned.",), Stage.PLAN: ("autotvm promises most.",)}
_TASKS = (
    ("conv2d_NCHWc.x86", "conv2d 1×3×48×192 ∗ 16×3×3×3 /2", 1, 1.99e6),
    ("depthwise_conv2d_NCHWc.x86", "depthwise 1×16×24×96 ∗ 16×1×3×3", 2, 6.6e5),
    ("conv2d_NCHWc.x86", "conv2d 1×16×24×96 ∗ 8×16×1×1", 3, 5.9e5),
    ("dense_pack.x86", "dense 1×200 ∗ 2×200", 1, 800.0),
)


class ScriptedWorker:
    def __init__(self, service: Service, *, pace: float = 0.0, trials: int = 4) -> None:
        """``pace``: seconds between two trials; ``trials``: of each of the four tuning tasks."""
        self._service = service
        self._pace = pace
        self._trials = trials
        self.names = [f'["{name}", {position}]' for position, (name, *_) in enumerate(_TASKS)]
        """Workload keys of the tuning tasks."""
        self._estimator: Estimator | None = None

    def beat(self, **changes: Any) -> None:
        now = datetime.now(UTC)
        described = Worker(
            id=WORKER,
            hostname="host",
            pid=1,
            device=DEVICE,
            native_target=TARGET,
            toolchains=(TOOLCHAIN,),
            current_job=None,
            started_at=now,
            last_seen_at=now,
        )
        with self._service.database.transaction() as session:
            workers.beat(session, replace(described, **changes))

    def claim(self, job_id: str) -> Lease:
        with self._service.database.transaction() as session:
            job = jobs.claim(session, job_id, worker_id=WORKER, now=datetime.now(UTC), lease_seconds=60, max_attempts=3)
            assert job is not None
            assert job.lease is not None
            jobs.set_placement(session, job_id, job.lease, PLACEMENT)
        return job.lease

    def run(self, job_id: str, *, gain: float = 1.4) -> None:
        """The whole job; ``gain`` is the speed-up over untuned, 1 or less for none."""
        lease = self.begin(job_id)
        if lease is not None:
            self.finish(job_id, lease, gain=gain)

    def begin(self, job_id: str) -> Lease | None:
        """Up to and with tuning; None when the job was canceled meanwhile."""
        lease = self.claim(job_id)
        for stage in (Stage.IMPORT, Stage.BASELINE, Stage.PLAN):
            self.stage(job_id, lease, stage)
        self._plan(job_id)
        self._tell(job_id, EventKind.STAGE, {"stage": "tune", "status": "started"})
        return lease if self._tune(job_id, lease) else None

    def finish(self, job_id: str, lease: Lease, *, gain: float = 1.4) -> Artifact:
        self._tell(job_id, EventKind.STAGE, {"stage": "tune", "status": "finished", "seconds": 2.0})
        for stage in (Stage.COMPILE, Stage.VERIFY, Stage.BENCHMARK, Stage.PUBLISH):
            self.stage(job_id, lease, stage)
        artifact = self._publish(job_id, gain)
        self._end(job_id, lease, JobState.SUCCEEDED, artifact_id=artifact.id)
        return artifact

    def fail(self, job_id: str, failure: Failure) -> None:
        lease = self.claim(job_id)
        self.stage(job_id, lease, Stage.IMPORT)
        self._end(job_id, lease, JobState.FAILED, failure=failure)

    def stage(self, job_id: str, lease: Lease, stage: Stage) -> None:
        now = datetime.now(UTC)
        self._tell(job_id, EventKind.STAGE, {"stage": stage.value, "status": "started"})
        time.sleep(self._pace)
        with self._service.database.transaction() as session:
            jobs.set_stage(session, job_id, lease, stage)
            result = replace(stage_results.of(stage), choice=_CHOICES.get(stage, ()))
            stages.save(session, job_id, lease, result, started_at=now, finished_at=datetime.now(UTC))
        told = codec.dump(result) if stage is Stage.PLAN else {}
        self._tell(job_id, EventKind.STAGE, {"stage": stage.value, "status": "finished", "seconds": self._pace, **told})

    def _plan(self, job_id: str) -> None:
        tasks = [
            ExtractedTask(
                position=position,
                name=name,
                workload_key=self.names[position],
                description=description,
                weight=weight,
                flop=flop,
                space_size=1000,
            )
            for position, (name, description, weight, flop) in enumerate(_TASKS)
        ]
        self._tasks = tasks
        with self._service.database.transaction() as session:
            planned = [TuningTask(job_id=job_id, extracted=task, trials_planned=self._trials) for task in tasks]
            tuning_tasks.save_plan(session, job_id, planned)

    def _tune(self, job_id: str, lease: Lease) -> bool:
        planned, done, started = self._trials * len(self._tasks), 0, time.monotonic()
        self._estimator = None
        with self._service.database.transaction() as session:
            jobs.set_stage(session, job_id, lease, Stage.TUNE)
        for task in self._tasks:
            for number in range(self._trials):
                time.sleep(self._pace)
                done += 1
                if not self._trial(job_id, lease, task, number, done, planned, time.monotonic() - started):
                    return False
        return True

    def _trial(
        self, job_id: str, lease: Lease, task: ExtractedTask, number: int, done: int, planned: int, seconds: float
    ) -> bool:
        latency = task.flop / (20e9 + 5e9 * number)
        failed = number == 1
        identity = RecordKey(
            workload_key=task.workload_key,
            target=TARGET.identity,
            device_key=DEVICE.key,
            toolchain=TOOLCHAIN.identity,
        )
        line = f'{{"task": {task.position}, "trial": {number}}}'
        record = Record(
            key=identity,
            tuner="autotvm",
            schedule=line,
            schedule_digest=digest_of(line),
            latencies=() if failed else (latency, latency),
            error=TrialError.RUN_TIMEOUT if failed else None,
            trial_number=number,
            job_id=job_id,
            worker_id=WORKER,
            finished_at=datetime.now(UTC),
        )
        now = datetime.now(UTC)
        with self._service.database.transaction() as session:
            if jobs.get(session, job_id).state is JobState.CANCELING:
                jobs.finish(session, job_id, lease, state=JobState.CANCELED, now=now)
                return False
            records.add(session, [record])
            jobs.set_progress(session, job_id, lease, trials_done=done, trials_planned=planned)
            estimator = self._estimate(session, job_id, record)
            told = {
                "position": task.position,
                "name": task.name,
                "description": task.description,
                "trials_done": number + 1,
                "trials_planned": self._trials,
                "best_latency": latency,
                "best_gflops": task.flop / latency / 1e9,
            }
            progress = {
                "trials_done": done,
                "trials_planned": planned,
                "seconds": seconds,
                "seconds_left": round(seconds / done * (planned - done), 1),
                "share": share(Budget(trials=planned), Stage.TUNE, done / planned),
                "estimate": estimator.estimate,
                "untuned": estimator.level.untuned,
                "basis": estimator.basis,
                "tasks": [told],
            }
            events.append(session, job_id, EventKind.PROGRESS, progress, now=now)
        return True

    def _estimate(self, session: Session, job_id: str, newest: Record) -> Estimator:
        """As a worker does it: begun again when a trial may be of a default schedule, brought forward otherwise."""
        if self._estimator is None or newest.trial_number == 0:
            self._estimator = convergence.begin(session, jobs.get(session, job_id))
            self._estimator.follow(convergence.trials_of_job(session, job_id))
        elif newest.latency is not None:
            self._estimator.learn(digest_of(newest.key.workload_key), newest.latency)
        return self._estimator

    def _publish(self, job_id: str, gain: float) -> Artifact:
        blob = self._service.blobs.put([f"bundle of {job_id} {gain}".encode() * 100])
        with self._service.database.transaction() as session:
            job = jobs.get(session, job_id)
            model = models.get(session, job.request.model_digest)
            artifact = Artifact(
                id=ids.artifact(blob.digest),
                digest=blob.digest,
                size_bytes=blob.size_bytes,
                job_id=job_id,
                model_digest=model.digest,
                input_shapes=job.request.input_shapes,
                target=TARGET.identity,
                device_key=DEVICE.key,
                toolchain=TOOLCHAIN.identity,
                precision=jobs.get(session, job_id).request.precision,
                report=replace(
                    report(gain) if job.request.data is None else on_rows(report(gain), job.request.data),
                    precision=str(jobs.get(session, job_id).request.precision),
                ),
                created_at=datetime.now(UTC),
            )
            return artifacts.add(session, artifact)

    def _end(
        self,
        job_id: str,
        lease: Lease,
        state: JobState,
        *,
        failure: Failure | None = None,
        artifact_id: str | None = None,
    ) -> None:
        with self._service.database.transaction() as session:
            won = jobs.finish(
                session, job_id, lease, state=state, failure=failure, artifact_id=artifact_id, now=datetime.now(UTC)
            )
        assert won

    def _tell(self, job_id: str, kind: EventKind, data: dict[str, object]) -> None:
        with self._service.database.transaction() as session:
            events.append(session, job_id, kind, data, now=datetime.now(UTC))


def report(gain: float) -> Report:
    untuned = 0.0008
    medians = {Variant.REFERENCE: 0.00057, Variant.UNTUNED: untuned, Variant.TUNED: untuned / gain}
    gained = gain > 1
    error = {"max_abs": 3.6e-7, "max_rel": 4e-7, "atol": 1e-5, "rtol": 1e-4, "top1": 1.0}
    output = OutputError(output="y", dtype="float32", passed=True, **error)
    return Report(
        timings={variant: _timing(median) for variant, median in medians.items()},
        verifications={
            variant: Verification(variant=variant, seeds=(0, 1, 2), outputs=(output,), inputs={"x": "image"})
            for variant in (Variant.UNTUNED, Variant.TUNED)
        },
        published=Variant.TUNED if gained else Variant.UNTUNED,
        speedup_over_untuned=max(1.0, gain),
        speedup_over_reference=medians[Variant.REFERENCE] / min(medians[Variant.UNTUNED], medians[Variant.TUNED]),
        summary=f"Tuning made it {gain:.2f}× as fast: {untuned / gain * 1e3:.3f} ms against {untuned * 1e3:.3f} ms "
        "untuned."
        if gained
        else "Tuning gained nothing: untuned is published.",
        engines={Variant.UNTUNED: TOOLCHAIN.identity, Variant.TUNED: TOOLCHAIN.identity},
        failed_tasks=(
            FailedTask(position=3, name="dense_pack.x86", failures={"run_timeout": 4}, hint="Allow more time."),
        ),
        choice=("relay imports the model and agrees with ONNX Runtime: its tuner autotvm led.",),
        portfolio=(
            Contender(
                name="autotvm", tuner="autotvm", engine="relay", records=3, trials=64, seconds_tuned=9.5,
                seconds=untuned / gain, verified=True, verdict="published" if gained else "no gain",
            ),
            Contender(name="untuned relay", tuner=None, engine="relay", seconds=untuned, verdict="slower"),
            Contender(name="ansor", tuner="ansor", engine="relay", trials=16, verdict="too slow"),
        ),
        conditions=Conditions(
            device="Zen", threads=2, megahertz=(3000.0, 3700.0), load=0.25, drift=0.08, attempts=3, noisy=True,
            reasons=("the calibration loop varied by 8%",),
        ),
    )  # fmt: skip


def on_rows(found: Report, data: str) -> Report:
    """The report of a job with a labelled data set."""
    labelled = LabelledAccuracy(
        output="y", measure="top1", count=150, reference=0.86, build=0.85, reference_top5=0.98, build_top5=0.975
    )
    worst = (WorstRow(row=17, output="y", max_rel=3e-3), WorstRow(row=4, output="y", max_rel=2e-3))
    rows = RowsCompared(rows=150, elements=15_000, worst=worst, labelled=labelled)
    use = DataUse(id=data, name="val", digest="d" * 64, rows=200, calibration_rows=50, judging_rows=150)
    verifications = {variant: replace(each, seeds=(), rows=rows) for variant, each in found.verifications.items()}
    return replace(found, verifications=verifications, data=use)


def _timing(median: float) -> Timing:
    return Timing(
        samples=(median, median * 1.1),
        mean=median * 1.05,
        median=median,
        p90=median * 1.1,
        p99=median * 1.1,
        min=median,
        max=median * 1.1,
        std=median * 0.05,
        ci_low=median * 0.99,
        ci_high=median * 1.02,
    )
