"""Parts: the jobs that tune the sizes of another job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from domain import errors
from domain.artifacts import PART, Artifact, Runtime
from domain.jobs import Budget, BundleFormat, Job, JobRequest, JobState
from domain.sizes import Size
from domain.tokens import Quota
from storage import artifacts, counts, deletion, groups, job_queries, jobs, model_overviews, models, queue, quotas
from storage import tokens as token_rows
from tests.support.storage.factories import DIGEST, NOW, add_model, artifact

SIZES = tuple(
    Size(name=f"batch={batch}", values={"batch": batch}, input_shapes={"x": (batch, 3)}, share=share)
    for batch, share in ((1, 0.6), (4, 0.3), (8, 0.1))
)
RULES = queue.Rules(now=NOW + timedelta(hours=1), judging=NOW + timedelta(hours=1), max_attempts=3)


def create(session: Session, **changes: Any) -> Job:
    add_model(session)
    given: dict[str, Any] = {
        "budget": Budget(trials=20, seconds=100.0, total_seconds=500.0),
        "sizes": SIZES,
        "padding": {"x": 0.0},
        "labels": {"branch": "main"},
        "group": "night",
        "priority": 2,
        "bundle_format": BundleFormat.WHEEL,
    } | changes
    token_id = given.pop("token_id", None)
    return jobs.create(session, JobRequest(model_digest=DIGEST, **given), now=NOW, owner="team", token_id=token_id)


def claim(session: Session, job_id: str, *, after: float = 0) -> Job:
    at = NOW + timedelta(seconds=after)
    job = jobs.claim(session, job_id, worker_id="w", now=at, lease_seconds=60, max_attempts=3)
    assert job is not None
    return job


def test_each_size_becomes_a_part_in_order(session: Session) -> None:
    job = create(session)
    parts = jobs.parts(session, job.id)
    assert [part.request.input_shapes for part in parts] == [size.input_shapes for size in SIZES]
    assert [part.request.budget.trials for part in parts] == [12, 6, 2]
    assert [part.request.budget.seconds for part in parts] == pytest.approx([60.0, 30.0, 10.0])
    assert sorted(part.id for part in parts) == [part.id for part in parts]
    for part in parts:
        assert (part.part_of, part.owner, part.state, part.request.priority) == (job.id, "team", JobState.QUEUED, 2)
        assert (part.request.sizes, part.request.padding, part.request.labels, part.request.group) == ((), {}, {}, None)
        assert (part.request.runtimes, part.request.bundle_format) == ((Runtime.TVM,), BundleFormat.SHARED)
        assert part.request.budget.total_seconds == 500.0
    assert job.part_of is None
    assert jobs.get(session, job.id).request.sizes == SIZES
    assert jobs.parts(session, parts[0].id) == []


def test_every_part_has_a_trial(session: Session) -> None:
    job = create(session, budget=Budget(trials=2))
    assert [part.request.budget.trials for part in jobs.parts(session, job.id)] == [1, 1, 1]


def test_the_queue_has_no_parts(session: Session) -> None:
    job = create(session)
    assert list(queue.in_order(session, RULES)) == [job.id]
    assert queue.outlook(session, RULES, most=10) == [job.id]
    assert counts.jobs_by_state(session)[JobState.QUEUED] == 1
    assert {priority: waiting.jobs for priority, waiting in counts.queued_by_priority(session).items()} == {2: 1}
    claim(session, job.id, after=3600)
    claim(session, jobs.parts(session, job.id)[0].id)
    # Its lease has expired, that of the job has not.
    assert list(queue.in_order(session, RULES)) == []


def test_listings_show_parts_on_request(session: Session) -> None:
    job = create(session)
    parts = jobs.parts(session, job.id)
    assert [each.id for each in jobs.page(session, limit=9)[0]] == [job.id]
    assert jobs.page(session, limit=9, text=parts[0].id)[0] == []
    found, _ = jobs.page(session, limit=9, part_of=job.id)
    assert found == parts[::-1]
    assert groups.get(session, "night", owner="team").counts == {JobState.QUEUED: 1}
    assert model_overviews.of_models(session, [DIGEST])[DIGEST].jobs == 1
    assert job_queries.summary(session, parts[0].id).owner == "team"


def test_a_job_counts_once_for_quotas(session: Session) -> None:
    quota = Quota(queued_jobs=2, running_jobs=1)
    token, _ = token_rows.create(session, name="ci", owner="team", scopes=frozenset(), quota=quota, now=NOW)
    job = create(session, token_id=token.id)
    create(session, token_id=token.id)
    with pytest.raises(errors.QuotaExceeded):
        create(session, token_id=token.id)
    claim(session, job.id)
    assert claim(session, jobs.parts(session, job.id)[0].id).state == JobState.RUNNING
    assert quotas.jobs_of(session, token.id, JobState.RUNNING) == 1


def states(session: Session, job: Job) -> list[str]:
    return [part.state.value for part in jobs.parts(session, job.id)]


def test_canceling_a_queued_job_cancels_its_parts(session: Session) -> None:
    job = create(session)
    jobs.request_cancel(session, job.id, now=NOW)
    assert states(session, job) == ["canceled"] * 3


def test_canceling_a_running_job_asks_for_its_part(session: Session) -> None:
    job = claim(session, create(session).id)
    first, second, _ = jobs.parts(session, job.id)
    first, second = claim(session, first.id), claim(session, second.id)
    assert first.lease is not None
    jobs.finish(session, first.id, first.lease, state=JobState.SUCCEEDED, now=NOW)
    jobs.request_cancel(session, job.id, now=NOW)
    assert states(session, job) == ["succeeded", "canceling", "canceled"]
    assert jobs.get(session, job.id).state == JobState.CANCELING


def test_the_end_of_a_job_ends_its_parts(session: Session) -> None:
    job = claim(session, create(session).id)
    assert job.lease is not None
    claim(session, jobs.parts(session, job.id)[0].id)
    jobs.finish(session, job.id, job.lease, state=JobState.FAILED, now=NOW)
    assert states(session, job) == ["canceled"] * 3


def test_cancel_all_cancels_parts_once(session: Session) -> None:
    job = create(session)
    assert jobs.cancel_all(session, reason="restored", now=NOW) == 1
    assert states(session, job) == ["canceled"] * 3


def test_a_part_is_not_canceled_alone(session: Session) -> None:
    job = create(session)
    part = jobs.parts(session, job.id)[0]
    with pytest.raises(errors.JobIsPart, match=job.id) as refused:
        jobs.request_cancel(session, part.id, now=NOW)
    assert refused.value.details == {"job": job.id}


def test_a_model_in_use_names_the_job(session: Session) -> None:
    job = create(session)
    with pytest.raises(errors.ModelInUse) as refused:
        deletion.delete_model(session, models.get(session, DIGEST), owner=None, now=NOW)
    assert refused.value.details == {"jobs": [job.id]}


def joint(job: Job, text: str = "joint", *, sizes: tuple[Size, ...] = SIZES) -> Artifact:
    return artifact(job.id, text, input_shapes={"x": (0, 3)}, sizes=sizes)


def test_a_joint_artifact_keeps_its_sizes(session: Session) -> None:
    made = artifacts.add(session, joint(create(session)))
    assert artifacts.get(session, made.id).sizes == SIZES
    assert artifacts.get(session, artifacts.add(session, artifact(made.job_id)).id).sizes == ()


def test_the_best_artifact_has_one_of_the_sizes(session: Session) -> None:
    made = artifacts.add(session, joint(create(session)))
    for batch in (1, 4, 8):
        assert artifacts.best(session, model_digest=DIGEST, input_shapes={"x": (batch, 3)}).id == made.id
    with pytest.raises(errors.ArtifactNotFound):
        artifacts.best(session, model_digest=DIGEST, input_shapes={"x": (2, 3)})


def test_artifacts_of_parts_are_not_offered(session: Session) -> None:
    job = create(session)
    part = jobs.parts(session, job.id)[0]
    made = artifacts.add(session, artifact(part.id, bundle_format=PART))
    with pytest.raises(errors.ArtifactNotFound):
        artifacts.best(session, model_digest=DIGEST)
    assert artifacts.page(session, limit=9) == ([], None)
    assert model_overviews.fastest(session, DIGEST) == []
    assert artifacts.of_job(session, part.id) == made


def test_joint_artifacts_of_other_sizes_are_listed_apart(session: Session) -> None:
    job = create(session)
    artifacts.add(session, joint(job))
    artifacts.add(session, joint(job, "fewer", sizes=SIZES[:2]))
    assert len(model_overviews.fastest(session, DIGEST)) == 2
