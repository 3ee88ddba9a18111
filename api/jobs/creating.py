"""A request that becomes a job, or that was answered before."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from api.jobs import hooks, rerunning
from api.jobs.requests import JobDraft, job_request
from api.settings import ApiSettings
from domain.jobs import Job
from domain.tokens import Principal
from domain.webhooks import Webhook
from storage import idempotency, jobs, webhooks


@dataclass(frozen=True, kw_only=True)
class Creation:
    job: Job
    is_new: bool
    webhook: Webhook | None
    shows_secret: bool
    """Whether this very request brought the webhook."""


def create(
    session: Session, draft: JobDraft, principal: Principal, settings: ApiSettings, *, key: str | None, now: datetime
) -> Creation:
    """``key``: a request with the same one gets the same job. Raises what is wrong with the request."""
    whole, model = rerunning.complete(session, draft, principal)
    request = job_request(whole, model, settings)
    asked = hooks.asked_for(draft, settings)
    owner, print_ = principal.owner, fingerprint(draft)
    known = idempotency.recall(session, key, print_, owner=owner, now=now) if key else None
    if known:
        webhook = webhooks.of_job(session, known)
        return Creation(job=jobs.get(session, known), is_new=False, webhook=webhook, shows_secret=False)
    job = jobs.create(session, request, now=now, owner=owner, token_id=principal.token_id)
    if key:
        idempotency.remember(session, key, print_, job.id, owner=owner, now=now)
    webhook = asked or hooks.of_original(session, draft, owner)
    if webhook:
        webhooks.attach(session, job.id, webhook)
    return Creation(job=job, is_new=True, webhook=webhook, shows_secret=asked is not None)


def fingerprint(draft: JobDraft) -> str:
    """The same for the same request; JSON leaves secrets out."""
    secret = draft.webhook.secret if draft.webhook else None
    # With like, what is null and what is not said at all are two things.
    said = draft.model_dump_json(exclude_unset=draft.like is not None)
    text = said + (secret.get_secret_value() if secret else "")
    return hashlib.sha256(text.encode()).hexdigest()
