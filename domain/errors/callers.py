"""Who calls may not do this, or not that much of it."""

from __future__ import annotations

from domain.errors.base import TunesmithError


class Unauthorized(TunesmithError):
    code = "unauthorized"
    default_hint = "Send 'Authorization: Bearer TOKEN'; the service's own token is in server.json or TUNESMITH_TOKEN."


class TokenExpired(Unauthorized):
    code = "token_expired"
    default_hint = "Ask an admin for a new one: tunesmith token create."


class Forbidden(TunesmithError):
    code = "forbidden"
    default_hint = "Ask an admin, or whoever it belongs to."


class MissingScope(Forbidden):
    code = "missing_scope"
    default_hint = "Use a token that has the scope; an admin makes one: tunesmith token create --scope."


class TooMuch(TunesmithError):
    code = "too_much"
    default_hint = "Wait a while, and ask less often or for less at a time."


class RateLimited(TooMuch):
    code = "rate_limited"
    default_hint = "Wait as long as Retry-After says; follow a job by its events instead of asking again and again."


class QuotaExceeded(TooMuch):
    code = "quota_exceeded"
    default_hint = "Wait for jobs to end or cancel some; an admin can make a token with a larger quota."
