"""JSON schemas of webhook deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from api import schemas as shared
from domain.webhooks import Delivery as DomainDelivery
from domain.webhooks import Webhook


class JobWebhook(BaseModel):
    """A URL that is called when the job ends."""

    url: str
    secret: str | None = Field(
        description="Secret that signs its messages; shown only in the response to the request that set the webhook."
    )


class Delivery(BaseModel):
    """The webhook message of a job, and the result of the latest attempt to deliver it."""

    id: str = Field(description="The message's webhook-id.")
    state: Literal["pending", "delivered", "given_up"]
    attempts: int
    created_at: datetime
    next_attempt_at: datetime | None = Field(description="Null once the message is delivered or given up.")
    delivered_at: datetime | None
    last_status: int | None = Field(description="HTTP status of the last response.")
    last_error: str | None


class Deliveries(BaseModel):
    url: str | None = Field(description="Null for a job without a webhook.")
    deliveries: list[Delivery] = Field(description="Oldest first; empty before the job has ended.")


def deliveries(webhook: Webhook | None, found: Sequence[DomainDelivery]) -> Deliveries:
    return Deliveries(url=webhook.url if webhook else None, deliveries=[_delivery(one) for one in found])


def _delivery(value: DomainDelivery) -> Delivery:
    state = "delivered" if value.delivered_at else "pending" if value.next_attempt_at else "given_up"
    return shared.fill(Delivery, value, state=state)
