"""Whole lives of jobs, written to the database as a worker writes them, at times of their own."""

from __future__ import annotations

import hashlib
import io
import random
import tempfile
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from domain import ids, progress
from domain.artifacts import Artifact, Conditions, Contender, FailedTask, OutputError, Report, Variant, Verification
from domain.jobs import Budget, EventKind, Failure, Job, JobState, Lease, Placement, Stage, Tuner
from domain.models import Model
from domain.profiles import Bandwidth, Bound, OperatorTime, Peak, Profile
from domain.records import Record, RecordKey, TrialError
from domain.stage_results import RESULTS
from domain.targets import Device, Target, Toolchain
from domain.tuning_tasks import ExtractedTask, TuningTask
from storage import artifacts, events, jobs, records, stages, tuning_tasks
from storage.blobs.local import LocalBlobStore
from storage.tables import digest_of
from tests.support import stage_results
from tests.support.dashboard.networks import Network, Operator
from tuner.results import benchmark, bundle, timing
from tuner.results.manifest import Manifest

WORKER = "bench-01:4711:1"
TARGET = Target(text="llvm -mcpu=znver3", threads=2)
DEVICE = Device(key="x86_64/amd-epyc-7r13/avx2+fma/t2", name="AMD EPYC 7R13", threads=2)
RELAY = Toolchain(engine="relay", tvm="0.19.0", llvm="22.1.8")
RELAX = Toolchain(engine="relax", tvm="0.27.0", llvm="22.1.8")
PLACEMENT = Placement(target=TARGET, device=DEVICE, toolchain=RELAY)
SECONDS = {
    Stage.IMPORT: 4.2,
    Stage.BASELINE: 21.7,
    Stage.PLAN: 6.3,
    Stage.COMPILE: 38.4,
    Stage.VERIFY: 5.1,
    Stage.BENCHMARK: 18.9,
    Stage.PUBLISH: 0.3,
}
_SECONDS_A_TRIAL = 0.8
_FAILURES = (TrialError.RUN_TIMEOUT, TrialError.BUILD_ERROR, TrialError.INVALID_SCHEDULE)
_LEASE_SECONDS = 1e6
"""Seeded jobs stay with the worker that has them, however long somebody looks."""


@dataclass
class Story:
    """One job's life, told forward; ``at`` is the time it has come to."""

    session: Session
    job_id: str
    model: Model
    network: Network
    at: datetime
    trials: int
    """Of each tuning task; with none, earlier searches cover them all."""
    gain: float = 1.9
    """What a whole search would reach, over untuned; 1 and less for nothing."""
    chance: random.Random = field(default_factory=random.Random)
    tuned_at: datetime | None = None
    best: dict[int, float] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        name = self.network.name
        return [f'["{each.name}", "{name}", {place}]' for place, each in enumerate(self.network.operators)]

    def claim(self, *, after: float = 2.0) -> Lease:
        self.at += timedelta(seconds=after)
        job = jobs.claim(
            self.session, self.job_id, worker_id=WORKER, now=self.at, lease_seconds=_LEASE_SECONDS, max_attempts=3
        )
        assert job is not None
        assert job.lease is not None
        return job.lease

    def place(self, lease: Lease) -> None:
        jobs.set_placement(self.session, self.job_id, lease, PLACEMENT)

    def stage(self, lease: Lease, stage: Stage, **changes: Any) -> None:
        self.begin(lease, stage)
        self.end(lease, stage, SECONDS[stage], **changes)

    def begin(self, lease: Lease, stage: Stage) -> None:
        jobs.set_stage(self.session, self.job_id, lease, stage)
        self.tell(EventKind.STAGE, {"stage": stage.value, "status": "started"})

    def end(self, lease: Lease, stage: Stage, took: float, **changes: Any) -> None:
        started, self.at = self.at, self.at + timedelta(seconds=took)
        self.keep(lease, stage, started, **changes)

    def keep(self, lease: Lease, stage: Stage, started: datetime, **changes: Any) -> None:
        times = {"started_at": started, "finished_at": self.at}
        result = stage_results.made(RESULTS[stage], **changes)
        assert stages.save(self.session, self.job_id, lease, result, **times)
        seconds = round((self.at - started).total_seconds(), 3)
        self.tell(EventKind.STAGE, {"stage": stage.value, "status": "finished", "seconds": seconds})

    def prepare(self, lease: Lease) -> None:
        """Up to and with the plan."""
        self.place(lease)
        self.stage(lease, Stage.IMPORT, choice=("The model was rewritten for tuning: 13 layers padded to vectors.",))
        told = {Variant.UNTUNED: self.network.untuned, Variant.REFERENCE: self.network.reference}
        engines = {"relay": self.network.untuned, "relax": 1.3 * self.network.untuned}
        choice = ("relay is right, and runs untuned faster: it leads.", "relax is right, and slower untuned.")
        self.stage(lease, Stage.BASELINE, seconds=told, engine="relay", engines=engines, choice=choice)
        tasks = [self._task(place) for place in range(len(self.network.operators))]
        planned = [TuningTask(job_id=self.job_id, extracted=task, trials_planned=self.trials) for task in tasks]
        tuning_tasks.save_plan(self.session, self.job_id, planned)
        self.stage(
            lease,
            Stage.PLAN,
            tuner=Tuner.AUTOTVM,
            tasks=len(tasks),
            covered=0 if self.trials else len(tasks),
            trials_planned=self.trials * len(tasks),
            choice=("autotvm promises most.",),
        )

    def tune(self, lease: Lease, *, share: float = 1.0, failing: bool = False) -> None:
        """``share`` of the planned trials; ends the stage when they are all done. ``failing``: none is valid."""
        self.begin(lease, Stage.TUNE)
        self.tuned_at = self.at
        operators = self.network.operators
        planned = self.trials * len(operators)
        for number in range(int(share * planned)):
            self._trial(lease, number % len(operators), number, planned, failing=failing)
        if share >= 1.0:
            seconds = (self.at - self.tuned_at).total_seconds()
            self.keep(lease, Stage.TUNE, self.tuned_at, trials=planned, seconds=seconds, strategies=(), failed_tasks=())

    def publish(self, lease: Lease, blobs: LocalBlobStore, report: Report | None = None) -> Artifact:
        """``report`` in place of what these timings come to; one without any is of a build that nobody ran."""
        self.stage(lease, Stage.COMPILE)
        self.stage(lease, Stage.VERIFY)
        found = report or self.report()
        profile = self._profile() if found.timings else None
        self.stage(lease, Stage.BENCHMARK, report=found, profile=profile, unprofiled="" if profile else "nothing ran")
        job = jobs.get(self.session, self.job_id)
        digest, size = _bundle(blobs, job, self.model, self.network, found)
        artifact = artifacts.add(
            self.session,
            Artifact(
                id=ids.artifact(digest),
                digest=digest,
                size_bytes=size,
                job_id=self.job_id,
                model_digest=self.model.digest,
                input_shapes=job.request.input_shapes,
                target=TARGET.identity,
                device_key=DEVICE.key,
                toolchain=RELAY.identity,
                precision=found.precision,
                report=found,
                verified=found.is_verified,
                created_at=self.at + timedelta(seconds=SECONDS[Stage.PUBLISH]),
            ),
        )
        self.stage(lease, Stage.PUBLISH, digest=digest, size_bytes=size)
        self.finish(lease, JobState.SUCCEEDED, artifact_id=artifact.id)
        return artifact

    def finish(self, lease: Lease, state: JobState, **how: Any) -> None:
        assert jobs.finish(self.session, self.job_id, lease, state=state, now=self.at, **how)

    def fail(self, lease: Lease, failure: Failure) -> None:
        self.finish(lease, JobState.FAILED, failure=failure)

    def tell(self, kind: EventKind, data: dict[str, Any]) -> None:
        events.append(self.session, self.job_id, kind, data, now=self.at)

    def report(self) -> Report:
        """As the service itself judges timings like these."""
        untuned = self.network.untuned
        medians = {
            Variant.REFERENCE: self.network.reference,
            Variant.UNTUNED: untuned,
            Variant.TUNED: untuned / self.gain,
        }
        timings = {variant: timing.of_samples(self._samples(median)) for variant, median in medians.items()}
        outputs = tuple(_output(spec.name) for spec in self.network.outputs)
        inputs = {spec.name: "image" for spec in self.network.inputs}
        verifications = {
            variant: Verification(variant=variant, seeds=(0, 1, 2), outputs=outputs, inputs=inputs)
            for variant in (Variant.UNTUNED, Variant.TUNED)
        }
        judged = benchmark.judge(timings, verifications, conditions=_CONDITIONS)
        return replace(
            judged,
            engines={Variant.UNTUNED: RELAY.identity, Variant.TUNED: RELAY.identity},
            choice=("relay is right, and runs untuned faster: it leads.", "autotvm promises most."),
            portfolio=_portfolio(self, judged),
            failed_tasks=tuple(
                _failed(operator, place)
                for place, operator in enumerate(self.network.operators)
                if place not in self.best
            ),
        )

    def _profile(self) -> Profile:
        """Every layer beside ONNX Runtime's, and what runs on one side alone."""
        layers = [self._layer(operator, place) for place, operator in enumerate(self.network.operators)]
        transforms = tuple(f"fused_layout_transform_{number}" for number in range(3))
        alone = [
            OperatorTime(
                name=transforms[0], kernels=transforms, nodes=(), seconds=2e-4, reference_seconds=0.0,
                openvino_seconds=0.0,
            ),
            OperatorTime(
                name="ReorderInput", kernels=(), nodes=("ReorderInput r",), seconds=0.0, reference_seconds=1e-4,
                openvino_seconds=0.0,
            ),
            OperatorTime(
                name="Reorder", kernels=(), nodes=(), seconds=0.0, reference_seconds=0.0,
                layers=("Reorder a", "Reorder b"), openvino_seconds=3e-4,
            ),
        ]  # fmt: skip
        operators = tuple(sorted([*layers, *alone], key=lambda each: -each.loss))
        return Profile(
            variant="tuned" if self.gain > 1 else "untuned", compared_with="ONNX Runtime", threads=TARGET.threads,
            seconds=self.network.rest + sum(each.seconds for each in operators),
            reference_seconds=0.00005 + sum(each.reference_seconds for each in operators),
            outside=self.network.rest, reference_outside=0.00005, operators=operators,
            peak=Peak(flops=180e9, bandwidths=(Bandwidth(size=2**18, speed=90e9), Bandwidth(size=2**26, speed=12e9))),
            openvino_seconds=0.0001 + sum(each.openvino_seconds or 0.0 for each in operators), openvino_outside=0.0001,
        )  # fmt: skip

    def _layer(self, operator: Operator, place: int) -> OperatorTime:
        best = self.best.get(place)
        seconds = operator.weight * (best or operator.default) * self.chance.uniform(1.0, 1.5)
        node = f"Conv /{self.network.name}/layer{place}/Conv"
        return OperatorTime(
            name=node.partition(" ")[2], kernels=(f"fused_{operator.name}_{place}",), nodes=(node,), seconds=seconds,
            reference_seconds=0.72 * operator.weight * operator.default, alone_seconds=best, task=place,
            flop=operator.flop, share=min(0.95, operator.flop / 180e9 / seconds), bound=Bound.COMPUTE,
            layers=(f"Convolution {node}",), openvino_seconds=0.8 * operator.weight * operator.default,
        )  # fmt: skip

    def _samples(self, median: float) -> list[float]:
        return [median * self.chance.lognormvariate(0.0, 0.03) for _ in range(60)]

    def _task(self, place: int) -> ExtractedTask:
        operator = self.network.operators[place]
        return ExtractedTask(
            position=place,
            name=operator.name,
            workload_key=self.keys[place],
            description=operator.description,
            weight=operator.weight,
            flop=operator.flop,
            space_size=12_000,
        )

    def _trial(self, lease: Lease, place: int, number: int, planned: int, *, failing: bool) -> None:
        operator, round_number = self.network.operators[place], number // len(self.network.operators)
        self.at += timedelta(seconds=_SECONDS_A_TRIAL * self.chance.uniform(0.6, 1.4))
        failed = failing or (round_number > 0 and self.chance.random() < 0.08)
        latency = None if failed else self._latency(operator, round_number)
        self._record(place, number, latency)
        counts = {"trials_done": number + 1, "trials_planned": planned}
        jobs.set_progress(self.session, self.job_id, lease, **counts)
        assert self.tuned_at is not None
        tasks = []
        if latency is not None and latency < self.best.get(place, float("inf")):
            self.best[place] = latency
            tasks.append(self._standing(place, round_number + 1))
        seconds = round((self.at - self.tuned_at).total_seconds(), 3)
        left = {"seconds_left": round((planned - number - 1) * _SECONDS_A_TRIAL, 1)}
        share = progress.share(Budget(trials=planned), Stage.TUNE, (number + 1) / planned)
        told = {**counts, **left, "seconds": seconds, "share": share, "estimate": None, "basis": "a story"}
        self.tell(EventKind.PROGRESS, {**told, "tasks": tasks})

    def _latency(self, operator: Operator, round_number: int) -> float:
        """The default first; then candidates that a learning search draws ever nearer to the best."""
        if round_number == 0:
            return operator.default
        reach = max(1.0, self.gain) / 1.9 * operator.default / operator.best
        nearest = operator.default / max(reach, 1.0)
        spread = 0.9 / (1 + round_number / 3)
        return nearest * (1 + abs(self.chance.gauss(0.0, spread)))

    def _record(self, place: int, number: int, latency: float | None) -> None:
        line = f'{{"job": "{self.job_id}", "task": {place}, "trial": {number}}}'
        identity = {"target": TARGET.identity, "device_key": DEVICE.key, "toolchain": RELAY.identity}
        record = Record(
            key=RecordKey(workload_key=self.keys[place], **identity),
            tuner="autotvm",
            schedule=line,
            schedule_digest=digest_of(line),
            latencies=() if latency is None else (latency, latency, latency),
            error=self.chance.choice(_FAILURES) if latency is None else None,
            trial_number=number // len(self.network.operators),
            job_id=self.job_id,
            worker_id=WORKER,
            finished_at=self.at,
        )
        records.add(self.session, [record])

    def _standing(self, place: int, done: int) -> dict[str, Any]:
        operator, best = self.network.operators[place], self.best[place]
        return {
            "position": place,
            "name": operator.name,
            "description": operator.description,
            "trials_done": done,
            "trials_planned": self.trials,
            "best_latency": best,
            "best_gflops": operator.flop / best / 1e9,
        }


_CONDITIONS = Conditions(
    device=DEVICE.name, threads=2, governor="performance", megahertz=(3400.0, 3700.0), load=0.04, drift=0.01, attempts=1
)


def _output(name: str) -> OutputError:
    """Of one that is named blank the reference has no finite number."""
    found = OutputError(
        output=name, dtype="float32", max_abs=3.6e-7, max_rel=4e-7, atol=1e-5, rtol=1e-4, passed=True, top1=1.0
    )
    return replace(found, max_abs=0.0, max_rel=0.0, not_compared=True) if name == "blank" else found


def _failed(operator: Operator, place: int) -> FailedTask:
    hint = "None was measured in time: raise timeout, or lower number, repeat or min_repeat_ms."
    return FailedTask(position=place, name=operator.name, failures={"run_timeout": 4}, hint=hint)


def _portfolio(story: Story, report: Report) -> tuple[Contender, ...]:
    tuned, untuned = report.timings[Variant.TUNED].median, report.timings[Variant.UNTUNED].median
    trials = story.trials * len(story.network.operators)
    won = report.published is Variant.TUNED
    searched = Contender(
        name="autotvm",
        tuner="autotvm",
        engine="relay",
        rewritten=True,
        records=len(story.best),
        trials=trials,
        seconds_tuned=trials * _SECONDS_A_TRIAL,
        seconds=tuned,
        verified=True,
        verdict="published" if won else "no faster than untuned",
    )
    plain = Contender(
        name="untuned relay", tuner=None, engine="relay", seconds=untuned, verdict="slower" if won else "published"
    )
    rewritten = replace(
        plain, name="rewritten", rewritten=True, seconds=None, verdict="1.12× the time of autotvm in the comparison"
    )
    left = Contender(name="metaschedule NCHW", tuner="metaschedule", engine="relax", trials=24, verdict="too slow")
    return (searched, plain, rewritten, left)


def _bundle(blobs: LocalBlobStore, job: Job, model: Model, network: Network, report: Report) -> tuple[str, int]:
    """A real one, but for what is in its compiled files."""
    manifest = Manifest(
        model_digest=model.digest,
        model_name=model.name,
        variant=str(report.published),
        target=TARGET.text,
        threads=TARGET.threads,
        device_key=DEVICE.key,
        toolchain={"engine": RELAY.engine, "tvm": RELAY.tvm, "llvm": RELAY.llvm},
        precision=report.precision,
        inputs=network.inputs,
        outputs=network.outputs,
        created_by=f"a story of {job.id}",
    )
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "compiled"
        compiled.mkdir()
        for name, size in (("libmodel.so", 1_600_000), ("tunesmith.h", 9_000)):
            (compiled / name).write_bytes(_bytes(f"{job.id} {name}", size))
        path = Path(folder) / "bundle.tar"
        bundle.write(path, compiled=compiled, manifest=manifest, report=report, records=["{}"])
        blob = blobs.put(iter(io.BytesIO(path.read_bytes())))
    return blob.digest, blob.size_bytes


def _bytes(name: str, size: int) -> bytes:
    """The same for the same name, and nothing that compresses."""
    return hashlib.shake_128(name.encode()).digest(size)
