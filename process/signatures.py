"""Webhook signatures according to the Standard Webhooks specification.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from domain import errors

_PREFIX = "whsec_"
_LEAST_BYTES, _MOST_BYTES = 24, 64


def make_secret() -> str:
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(text: str) -> None:
    """Check the form of a secret. Raises InvalidWebhook."""
    try:
        fits = text.startswith(_PREFIX) and _LEAST_BYTES <= len(_key(text)) <= _MOST_BYTES
    except (binascii.Error, ValueError):
        fits = False
    if not fits:
        raise errors.InvalidWebhook(
            f"the webhook's secret must be {_PREFIX} followed by the base64 of {_LEAST_BYTES} to {_MOST_BYTES} bytes",
            hint="Omit it to get a generated secret, or create one: echo whsec_$(openssl rand -base64 32)",
        )


def headers(secret: str, *, message_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """Return the headers of a signed message; ``seconds`` is the time of sending since 1970."""
    signed = f"{message_id}.{seconds}.".encode() + body
    signature = base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{signature}",
    }


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
