"""Send webhooks: tell callers' servers that a job has ended.

A message is claimed, sent, and marked as delivered or failed. If the process dies in between, the claim expires and the
message is due again: it may arrive twice, with the same webhook-id, and is never lost. One message at a time goes to
each host, so a slow host delays only its own messages.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from sqlalchemy.orm import Session

from domain import destinations, errors, release
from domain.jobs import Failure, Job
from domain.webhooks import Delivery
from process import signatures
from storage import artifacts, codec, jobs, models, webhooks
from storage.database import Database
from worker import clock
from worker.http_client import HttpClient, Response, Unreachable

_log = logging.getLogger(__name__)

PAUSES = (10.0, 60.0, 300.0, 1800.0, 7200.0, 21600.0)
"""Seconds before each further attempt, plus up to a fifth; after the last attempt a message is given up."""
_JITTER = 0.2
LONGEST_ASKED = 3600.0
"""Largest Retry-After that is honored, in seconds."""
_ASKING = frozenset({429, 503})
UNNOTED_SECONDS = 120.0
"""Claims expire after this time, which is longer than any attempt takes."""
_AT_ONCE = 4
_DUE_AT_ONCE = 500
_GONE = 410
_HEADERS = {"Content-Type": "application/json", "User-Agent": f"Tunesmith/{release.VERSION}"}
_MOST_FAILURE_CHARACTERS = 2000


@dataclass(kw_only=True)
class WebhookDispatcher:
    """Sends due messages from one worker process; the dispatchers of other workers share the queue."""

    database: Database
    client: HttpClient
    stopping: threading.Event = field(default_factory=threading.Event)
    now: Callable[[], datetime] = clock.now
    chance: Callable[[], float] = random.random
    """From 0 up to 1."""
    _turns: dict[str, int] = field(default_factory=dict)
    """The turn in which each host was last served: the host that waits longest comes first."""
    _busy: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send_due(self) -> None:
        """Start sending due messages in threads; return at once."""
        while (claimed := self._take()) is not None:
            threading.Thread(target=self._send_all, args=[claimed], name="webhook", daemon=True).start()

    def _send_all(self, claimed: Delivery | None) -> None:
        try:
            while claimed is not None:
                try:
                    self.send(claimed)
                finally:
                    with self._lock:
                        self._busy.discard(_host(claimed))
                claimed = self._take()
        except Exception:  # noqa: BLE001 - a database that is away; what was not noted is due again in a while
            _log.warning("webhooks: a dispatcher thread failed; the next round continues", exc_info=True)

    def _take(self) -> Delivery | None:
        """Claim a message to a host that no message is being sent to; None without any."""
        with self._lock:
            if len(self._busy) >= _AT_ONCE or self.stopping.is_set():
                return None
            for found in self._due():
                with self.database.transaction() as session:
                    claimed = webhooks.claim(session, found, now=self.now(), seconds=UNNOTED_SECONDS)
                if claimed is not None:
                    self._busy.add(_host(claimed))
                    self._turns[_host(claimed)] = max(self._turns.values(), default=0) + 1
                    return claimed
            return None

    def _due(self) -> list[Delivery]:
        """The oldest due message of each free host; the host that waits longest comes first."""
        with self.database.reading() as session:
            due = webhooks.due(session, now=self.now(), limit=_DUE_AT_ONCE)
        first: dict[str, Delivery] = {}
        for delivery in due:
            first.setdefault(_host(delivery), delivery)
        self._turns = {host: turn for host, turn in self._turns.items() if host in first}
        free = [host for host in first if host not in self._busy]
        return [first[host] for host in sorted(free, key=lambda host: self._turns.get(host, 0))]

    def send(self, claimed: Delivery) -> None:
        """Make one attempt and store its result."""
        answer: Response | None = None
        try:
            answer = self._post(claimed)
            error = _refusal(answer.status)
        except (Unreachable, errors.InvalidWebhook) as failure:
            error = str(failure)
        except Exception as failure:  # noqa: BLE001 - otherwise it would be retried every two minutes for ever
            _log.warning("webhooks: cannot send message %s", claimed.id, exc_info=True)
            error = f"cannot send it: {type(failure).__name__}"
        with self.database.transaction() as session:
            if error is None and answer is not None:
                webhooks.note_delivered(session, claimed, status=answer.status, now=self.now())
            else:
                again, status = self._next_attempt(claimed.attempts, answer), answer.status if answer else None
                webhooks.note_failed(session, claimed, status=status, error=str(error), next_attempt_at=again)

    def _post(self, claimed: Delivery) -> Response:
        with self.database.reading() as session:
            webhook = webhooks.of_job(session, claimed.job_id)
            body = compose(session, claimed.job_id)
        if webhook is None:
            raise LookupError(f"job {claimed.job_id} no longer has a webhook")
        seconds = int(self.now().timestamp())
        signed = signatures.headers(webhook.secret, message_id=claimed.id, seconds=seconds, body=body)
        return self.client.post(webhook.url, body, {**_HEADERS, **signed})

    def _next_attempt(self, attempts: int, answer: Response | None) -> datetime | None:
        """When to try again; None after the last attempt, and if the receiver is gone."""
        if attempts > len(PAUSES) or (answer is not None and answer.status == _GONE):
            return None
        now = self.now()
        own = PAUSES[attempts - 1] * (1 + _JITTER * self.chance())
        return now + timedelta(seconds=max(own, _asked_for(answer, now)))


def _asked_for(answer: Response | None, now: datetime) -> float:
    """Seconds of Retry-After, which is a number or a date (RFC 9110, section 10.2.3)."""
    if answer is None or answer.status not in _ASKING or not answer.retry_after:
        return 0.0
    text = answer.retry_after.strip()
    if text.isdecimal():
        return min(float(text), LONGEST_ASKED)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    # "-0000" in place of a time zone makes it naive.
    return min((at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds(), LONGEST_ASKED)


def _host(delivery: Delivery) -> str:
    try:
        destination = destinations.parse(delivery.url)
    except errors.InvalidWebhook:
        # An older release accepted the URL; sending it fails, which affects no other message.
        return ""
    return f"{destination.host}:{destination.port}"


def _refusal(status: int) -> str | None:
    """Why the response counts as a failure; None for a success."""
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return f"responded {status}; redirects are not followed"
    return f"answered {status}"


def compose(session: Session, job_id: str) -> bytes:
    """The JSON body; docs/how-to/webhooks.md describes it. Raises JobNotFound."""
    job = jobs.get(session, job_id)
    model = models.get(session, job.request.model_digest)
    ended = job.finished_at or job.created_at
    message = {
        "type": f"job.{job.state}",
        "timestamp": ended.isoformat().replace("+00:00", "Z"),
        "data": {
            "job": job.id,
            "state": job.state.value,
            "model": model.id,
            "model_name": model.name,
            "target": job.request.target,
            "labels": job.request.labels,
            "group": job.request.group,
            "artifact_id": job.artifact_id,
            "failure": _failure(job.failure) if job.failure else None,
            "summary": _summary(session, job),
        },
    }
    return codec.to_json(message).encode()


def _failure(failure: Failure) -> dict[str, Any]:
    """Without the details, which may be large: ``GET /v1/jobs/{id}`` has them."""
    return {
        "code": failure.code,
        "message": failure.message[:_MOST_FAILURE_CHARACTERS],
        "hint": failure.hint[:_MOST_FAILURE_CHARACTERS] if failure.hint else None,
    }


def _summary(session: Session, job: Job) -> str | None:
    if job.artifact_id is None:
        return None
    try:
        return artifacts.get(session, job.artifact_id).report.summary
    except errors.ArtifactNotFound:
        return None
