"""A service's database with jobs in every state, as real jobs leave them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from domain import errors
from domain.data_sets import DataFacts
from domain.jobs import Budget, Failure, JobRequest, JobState, Stage, Tuner
from domain.models import Model, TensorSpec
from domain.tokens import LOCAL_OWNER
from domain.workers import Worker
from storage import data_sets, jobs, models, owners, workers
from tests.support.api.factories import Service
from tests.support.dashboard.networks import CLASSIFIER, HOSTILE, MOBILENET, RESNET, SEGMENTER, Network
from tests.support.dashboard.stories import DEVICE, RELAX, RELAY, TARGET, WORKER, Story

_NO_VALID_TRIAL = Failure(
    code="no_valid_trial",
    message="every trial of every tuning task failed: 32 × run_timeout",
    hint="None was measured in time: raise timeout, or lower number, repeat or min_repeat_ms.",
    details={"failures": {"run_timeout": 32}},
)
_UNSUPPORTED = Failure(
    code="unsupported_operators",
    message="no engine imports the model: 2 operators are missing",
    hint=errors.UnsupportedOperators.default_hint,
    details={"operators": {"GridSample": 2, "<b>Evil</b>": 1}},
)


@dataclass(frozen=True)
class Seeded:
    """Ids of jobs by what became of them."""

    succeeded: str
    gained_nothing: str
    running: str
    beginning: str
    queued: str
    canceling: str
    canceled: str
    failed: str
    untunable: str
    hostile: str
    others: str
    """Of another owner."""

    @property
    def all(self) -> dict[str, str]:
        return dict(vars(self))


class Seeder:
    """Makes jobs of one service; every number comes from ``seed``."""

    def __init__(self, service: Service, *, seed: int = 0) -> None:
        self._service = service
        self._now = datetime.now(UTC)
        self._models: dict[tuple[str, str], Model] = {}
        self._chance = random.Random(seed)  # noqa: S311 - for numbers that are looked at

    def model(self, network: Network, *, owner: str = LOCAL_OWNER) -> Model:
        if (network.name, owner) not in self._models:
            self._models[network.name, owner] = self._upload(network, owner)
        return self._models[network.name, owner]

    def _upload(self, network: Network, owner: str) -> Model:
        blob = self._service.blobs.put([f"the bytes of {network.name}\n".encode() * 1000])
        added = self._now - timedelta(days=9)
        with self._service.database.transaction() as session:
            found, _ = models.add(
                session,
                digest=blob.digest,
                name=network.name,
                size_bytes=blob.size_bytes,
                facts=network.facts,
                now=added,
            )
            owners.add_model(session, blob.digest, owner, now=added)
        return found

    @contextmanager
    def story(
        self,
        network: Network,
        *,
        age: timedelta,
        trials: int = 12,
        gain: float = 1.9,
        owner: str = LOCAL_OWNER,
        **request: Any,
    ) -> Iterator[Story]:
        """A queued job, ``age`` ago, to be told on; committed at the end."""
        model, created = self.model(network, owner=owner), self._now - age
        wanted = JobRequest(
            model_digest=model.digest,
            input_shapes=network.shapes,
            budget=Budget(trials=trials * len(network.operators)),
        )
        with self._service.database.transaction() as session:
            job = jobs.create(session, replace(wanted, **request), now=created, owner=owner)
            chance = random.Random(self._chance.random())  # noqa: S311 - likewise
            yield Story(session, job.id, model, network, created, trials, gain, chance)

    def succeeded(self, network: Network, **how: Any) -> str:
        with self.story(network, **how) as story:
            lease = story.claim()
            story.prepare(lease)
            story.tune(lease)
            story.publish(lease, self._service.blobs)
        self.log(story.job_id)
        return story.job_id

    def running(self, network: Network, *, share: float, **how: Any) -> str:
        with self.story(network, **how) as story:
            lease = story.claim()
            story.prepare(lease)
            story.tune(lease, share=share)
        self.log(story.job_id)
        return story.job_id

    def log(self, job_id: str) -> None:
        self._service.logs.mkdir(parents=True, exist_ok=True)
        lines = [f"[relay] task {place % 12}: measured a batch of 8 candidates" for place in range(120)]
        lines += ["[relay] warning: <b>no</b> cached schedule for dense_pack.x86", "[relay] GFLOPS 84.1"]
        (self._service.logs / f"{job_id}.log").write_text("\n".join(lines) + "\n")

    def data_set(self, name: str) -> None:
        blob = self._service.blobs.put([f"the rows of {name}\n".encode()])
        rows = TensorSpec(name="input", dtype="float32", shape=(64, 3, 224, 224))
        with self._service.database.transaction() as session:
            data_sets.add(
                session,
                digest=blob.digest,
                name=name,
                owner=LOCAL_OWNER,
                size_bytes=blob.size_bytes,
                facts=DataFacts(arrays=(rows,), rows=64),
                now=self._now - timedelta(days=3),
            )

    def fleet(self, current_job: str | None = None) -> None:
        worker = Worker(
            id=WORKER,
            hostname="bench-01",
            pid=4711,
            device=DEVICE,
            native_target=TARGET,
            toolchains=(RELAY, RELAX),
            current_job=current_job,
            started_at=self._now - timedelta(hours=30),
            last_seen_at=self._now,
        )
        with self._service.database.transaction() as session:
            workers.beat(session, worker)


def seed(service: Service, *, trials: int) -> Seeded:
    """``trials`` of each tuning task: what takes the time."""
    seeder = Seeder(service)
    nightly = {"labels": {"branch": "main", "commit": "4f2c9e1"}, "group": "nightly"}
    succeeded = seeder.succeeded(RESNET, age=timedelta(hours=5), trials=trials, **nightly)
    nothing = seeder.succeeded(CLASSIFIER, age=timedelta(days=2), trials=min(trials, 8), gain=0.99)
    seeded = Seeded(
        succeeded=succeeded,
        gained_nothing=nothing,
        hostile=seeder.succeeded(
            HOSTILE, age=timedelta(hours=4), trials=3, labels={"<b>team</b>": "<script>1</script>"}, group="<i>g</i>"
        ),
        failed=_failed(seeder),
        untunable=_untunable(seeder),
        canceled=_canceled(seeder),
        canceling=_canceling(seeder),
        others=seeder.succeeded(CLASSIFIER, age=timedelta(minutes=50), trials=2, owner="someone-else"),
        running=seeder.running(MOBILENET, share=0.6, age=_age(trials), trials=trials, **nightly),
        beginning=_beginning(seeder),
        queued=_queued(seeder),
    )
    seeder.fleet(seeded.running)
    seeder.data_set("val")
    return seeded


def _age(trials: int) -> timedelta:
    """So that 0.6 of the trials have just been done."""
    return timedelta(seconds=40 + 0.6 * 0.8 * trials * len(MOBILENET.operators))


def _failed(seeder: Seeder) -> str:
    with seeder.story(HOSTILE, age=timedelta(days=1)) as story:
        lease = story.claim()
        story.place(lease)
        story.begin(lease, Stage.IMPORT)
        story.at += timedelta(seconds=3)
        story.fail(lease, _UNSUPPORTED)
    return story.job_id


def _untunable(seeder: Seeder) -> str:
    with seeder.story(SEGMENTER, age=timedelta(hours=20), trials=8) as story:
        lease = story.claim(after=95)
        story.prepare(lease)
        story.tune(lease, share=0.99, failing=True)
        story.fail(lease, _NO_VALID_TRIAL)
    seeder.log(story.job_id)
    return story.job_id


def _canceled(seeder: Seeder) -> str:
    with seeder.story(MOBILENET, age=timedelta(hours=7), trials=4) as story:
        lease = story.claim()
        story.prepare(lease)
        story.tune(lease, share=0.4)
        jobs.request_cancel(story.session, story.job_id, now=story.at)
        story.finish(lease, JobState.CANCELED)
    return story.job_id


def _canceling(seeder: Seeder) -> str:
    with seeder.story(RESNET, age=timedelta(minutes=2), trials=4) as story:
        lease = story.claim()
        story.prepare(lease)
        story.tune(lease, share=0.3)
        jobs.request_cancel(story.session, story.job_id, now=story.at)
    return story.job_id


def _beginning(seeder: Seeder) -> str:
    with seeder.story(MOBILENET, age=timedelta(seconds=8), tuner=Tuner.METASCHEDULE) as story:
        lease = story.claim()
        story.place(lease)
        story.begin(lease, Stage.IMPORT)
    return story.job_id


def _queued(seeder: Seeder) -> str:
    with seeder.story(RESNET, age=timedelta(seconds=5), target="cuda -arch=sm_90", tuner=Tuner.METASCHEDULE) as story:
        pass
    return story.job_id


def many(service: Service, count: int) -> None:
    """Queued jobs of several models, for pages that must not grow with them."""
    seeder = Seeder(service)
    for number in range(count):
        network = (RESNET, MOBILENET, CLASSIFIER)[number % 3]
        with seeder.story(network, age=timedelta(days=3, minutes=number)):
            pass
