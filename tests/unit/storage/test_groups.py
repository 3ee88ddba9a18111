"""Groups are what the jobs say."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import Budget, JobRequest, JobState
from storage import groups, jobs
from tests.support.storage.factories import DIGEST, NOW, add_job, add_model


def make(session: Session, group: str | None, *, seconds: int = 0, owner: str = "ann", priority: int = 5) -> str:
    add_model(session)
    request = JobRequest(model_digest=DIGEST, budget=Budget(trials=1), group=group, priority=priority)
    return jobs.create(session, request, now=NOW + timedelta(seconds=seconds), owner=owner).id


def listed(session: Session, *, owner: str | None = None, limit: int = 2) -> list[tuple[str, str]]:
    """Name and owner of all, page by page."""
    names: list[tuple[str, str]] = []
    token: str | None = None
    while True:
        found, token = groups.page(session, owner=owner, limit=limit, page_token=token)
        assert len(found) <= limit
        names += [(group.name, group.owner) for group in found]
        if token is None:
            return names


def test_a_group_counts_its_jobs_by_state(session: Session) -> None:
    make(session, "nightly")
    canceled, newest = make(session, "nightly", seconds=1), make(session, "nightly", seconds=2)
    make(session, "nightly", seconds=9, owner="bob")
    make(session, None, seconds=9)
    jobs.request_cancel(session, canceled, now=NOW)
    group = groups.get(session, "nightly", owner="ann")
    assert group.counts == {JobState.QUEUED: 2, JobState.CANCELED: 1}
    assert (group.newest_job, group.newest_at) == (newest, NOW + timedelta(seconds=2))
    assert groups.page(session, owner="ann", limit=5) == ([group], None)
    with pytest.raises(errors.GroupNotFound, match="weekly"):
        groups.get(session, "weekly", owner="ann")


def test_groups_are_listed_newest_first_in_stable_pages(session: Session) -> None:
    for number in range(5):
        make(session, f"g{number}", seconds=number // 2)
    make(session, "g0", seconds=7)
    make(session, "g3", owner="bob", seconds=1)
    anns = [("g0", "ann"), ("g4", "ann"), ("g3", "ann"), ("g2", "ann"), ("g1", "ann")]
    assert listed(session, owner="ann") == anns
    assert listed(session) == [*anns[:2], ("g3", "bob"), *anns[2:]]
    assert listed(session, limit=1) == listed(session, limit=50)
    assert listed(session, owner="bob") == [("g3", "bob")]


def test_nobody_has_made_any(session: Session) -> None:
    add_job(session)
    assert groups.page(session, limit=5) == ([], None)


@pytest.mark.parametrize("token", ["x", "", "a" * 400])
def test_a_made_up_page_token_is_refused(session: Session, token: str) -> None:
    with pytest.raises(errors.InvalidPageToken):
        groups.page(session, limit=1, page_token=token)


def test_what_is_unfinished_ends_least_urgent_first(session: Session) -> None:
    urgent, usual = make(session, "g", priority=0), make(session, "g")
    later, canceled = make(session, "g", seconds=1), make(session, "g")
    make(session, "g", owner="bob")
    jobs.request_cancel(session, canceled, now=NOW)
    assert groups.unfinished(session, "g", owner="ann") == [later, usual, urgent]
