"""Whom a new job tells of its end."""

from __future__ import annotations

from sqlalchemy.orm import Session

from api.jobs.drafts import JobDraft
from api.settings import ApiSettings
from domain import destinations, signatures
from domain.destinations import AllowedHosts
from domain.webhooks import Webhook
from storage import jobs, webhooks
from tunesmith.job_draft import WebhookDraft


def asked_for(draft: JobDraft, settings: ApiSettings) -> Webhook | None:
    """Raises InvalidWebhook."""
    return _checked(draft.webhook, AllowedHosts.parse(settings.webhook_hosts)) if draft.webhook else None


def of_original(session: Session, draft: JobDraft, owner: str) -> Webhook | None:
    """That of the job which the new one is like, unless the request says otherwise; another owner's is not called."""
    if draft.like is None or "webhook" in draft.said:
        return None
    return webhooks.of_job(session, draft.like) if jobs.get(session, draft.like).owner == owner else None


def _checked(draft: WebhookDraft, allowed: AllowedHosts) -> Webhook:
    destinations.check_host(destinations.parse(draft.url), allowed)
    secret = draft.secret or signatures.make_secret()
    signatures.check_secret(secret)
    return Webhook(url=draft.url, secret=secret)
