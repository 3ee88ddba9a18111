"""Webhooks of jobs, their messages, and the deliveries.

::

    job ends ──▶ due ──claim──▶ under way ──note──▶ delivered, due again later, or given up
                  ▲                 │                      │
                  ├── claim expired ┘                      │
                  └──────────────── resend ────────────────┘

A claim is a compare-and-set that counts the attempt and sets when the message is due again if no result is noted: a
worker that dies in between causes a second message with the same id, never none.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, func, select, update
from sqlalchemy.orm import Session

from domain import errors, ids
from domain.webhooks import Delivery, Webhook
from storage import codec, statements
from storage.tables import JobRow, WebhookDeliveryRow, WebhookRow

_DUE_OF_ONE_OWNER = 50


def attach(session: Session, job_id: str, webhook: Webhook) -> None:
    session.add(WebhookRow(job_id=job_id, url=webhook.url, secret=webhook.secret))
    session.flush()


def of_job(session: Session, job_id: str) -> Webhook | None:
    row = session.get(WebhookRow, job_id, populate_existing=True)
    return codec.from_row(Webhook, row) if row else None


def enqueue(session: Session, job_id: str, *, now: datetime) -> None:
    """Create the message of a job's end, if it has a webhook, in the transaction that ends the job."""
    if session.get(WebhookRow, job_id) is None:
        return
    session.add(WebhookDeliveryRow(id=ids.delivery(now), job_id=job_id, created_at=now, next_attempt_at=now))
    session.flush()


def deliveries(session: Session, job_id: str) -> list[Delivery]:
    """Return the job's messages, oldest first."""
    return _found(session, WebhookDeliveryRow.job_id == job_id)


def due(session: Session, *, now: datetime, limit: int) -> list[Delivery]:
    """Return due messages, longest due first, with a share for each owner, so that one owner's backlog delays
    no others."""
    row = WebhookDeliveryRow
    rank = func.row_number().over(partition_by=JobRow.owner, order_by=(row.next_attempt_at, row.id))
    ranked = select(row.id, rank.label("rank")).join(JobRow, JobRow.id == row.job_id).where(row.next_attempt_at <= now)
    found = ranked.subquery()
    return _found(session, row.id.in_(select(found.c.id).where(found.c.rank <= _DUE_OF_ONE_OWNER)), limit=limit)


def claim(session: Session, delivery: Delivery, *, now: datetime, seconds: float) -> Delivery | None:
    """Claim the next attempt of a due message; None if another worker did.

    It is due again after ``seconds``, unless ``note_delivered`` or ``note_failed`` is called before.
    """
    unchanged = and_(WebhookDeliveryRow.attempts == delivery.attempts, WebhookDeliveryRow.next_attempt_at <= now)
    values = {"attempts": delivery.attempts + 1, "next_attempt_at": now + timedelta(seconds=seconds)}
    if not _set(session, delivery, unchanged, **values):
        return None
    return _found(session, WebhookDeliveryRow.id == delivery.id)[0]


def note_delivered(session: Session, claimed: Delivery, *, status: int, now: datetime) -> None:
    """Note the delivery, even if the claim has expired and the message is being sent again."""
    values = {"delivered_at": now, "next_attempt_at": None, "last_status": status, "last_error": None}
    _set(session, claimed, WebhookDeliveryRow.delivered_at.is_(None), **values)


def note_failed(
    session: Session, claimed: Delivery, *, status: int | None, error: str, next_attempt_at: datetime | None
) -> bool:
    """Note a failed attempt; ``next_attempt_at`` None gives up. Returns False without writing if a later
    attempt has started."""
    ours = and_(
        WebhookDeliveryRow.attempts == claimed.attempts,
        WebhookDeliveryRow.next_attempt_at == claimed.next_attempt_at,
        WebhookDeliveryRow.delivered_at.is_(None),
    )
    return _set(session, claimed, ours, next_attempt_at=next_attempt_at, last_status=status, last_error=error)


def resend(session: Session, job_id: str, *, now: datetime) -> list[Delivery]:
    """Make the job's messages due at once, whatever their state. Raises Conflict and JobNotFinished."""
    if session.get(WebhookRow, job_id) is None:
        raise errors.Conflict(
            f"job {job_id[:80]} was created without a webhook", hint="Set a webhook with a url when you create a job."
        )
    again = update(WebhookDeliveryRow).where(WebhookDeliveryRow.job_id == job_id)
    if not statements.changed(session, again.values(next_attempt_at=now, delivered_at=None)):
        raise errors.JobNotFinished(f"job {job_id[:80]} has not ended, so no message exists yet")
    return deliveries(session, job_id)


def give_up_all(session: Session, *, reason: str) -> int:
    """Give up all undelivered messages, and return their number; ``resend`` makes them due again."""
    row = WebhookDeliveryRow
    pending = update(row).where(row.next_attempt_at.is_not(None), row.delivered_at.is_(None))
    return statements.changed(session, pending.values(next_attempt_at=None, last_error=reason))


def _set(session: Session, delivery: Delivery, condition: ColumnElement[bool], **values: object) -> bool:
    statement = update(WebhookDeliveryRow).where(WebhookDeliveryRow.id == delivery.id, condition)
    return statements.changed(session, statement.values(**values)) == 1


def _found(session: Session, condition: ColumnElement[bool], *, limit: int | None = None) -> list[Delivery]:
    row = WebhookDeliveryRow
    query = select(row, WebhookRow.url).join(WebhookRow, WebhookRow.job_id == row.job_id).where(condition)
    query = query.order_by(row.next_attempt_at, row.id).limit(limit)
    found = session.execute(query, execution_options={"populate_existing": True})
    return [codec.from_row(Delivery, delivery, url=url) for delivery, url in found]
