"""A request that becomes a job, or that was answered before."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from api.jobs import drafts, hooks, rerunning
from api.jobs.drafts import JobDraft
from api.jobs.requests import job_request
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
    owner = principal.owner

    def make() -> str:
        job_id = jobs.create(session, request, now=now, owner=owner, token_id=principal.token_id).id
        webhook = asked or hooks.of_original(session, draft, owner)
        if webhook:
            webhooks.attach(session, job_id, webhook)
        return job_id

    repeated = idempotency.Request.of(key, owner, _said(draft))
    job_id, is_new = idempotency.once(session, repeated, make, now=now)
    webhook = webhooks.of_job(session, job_id)
    shows_secret = is_new and asked is not None
    return Creation(job=jobs.get(session, job_id), is_new=is_new, webhook=webhook, shows_secret=shows_secret)


def _said(draft: JobDraft) -> str:
    # With like, what is null and what is not said at all are two things.
    return json.dumps(draft.said if draft.like else drafts.whole(draft), sort_keys=True)
