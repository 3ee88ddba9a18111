"""The access log: one line for each request, when its response has been sent."""

from __future__ import annotations

import logging
import time
from urllib.parse import quote

from starlette.types import Message, Receive, Scope, Send

from api.middleware import Middleware
from domain.tokens import Principal
from process import logs

_log = logging.getLogger(__name__)
_MOST_CHARACTERS = 500
"""Longer paths and methods are cut."""
_UNQUOTED = "/:@,;=+!$&'()*~"
"""Characters that URLs allow in a path; others, such as control characters, are written as %XX."""


class AccessLog(Middleware):
    """Logs method, path, status, duration and caller at level info. Queries are left out: those of login links are
    secret.

    The duration, in milliseconds, includes the transfer. The status is 500 if the application failed without a
    response, as an outer middleware then sends one, and 499 if the client left before the response.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _log.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        # Inner middleware may change it: HEAD becomes GET.
        method, started, status = scope["method"], time.monotonic(), 499

        async def noticed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noticed)
        except Exception:
            status = 500
            raise
        finally:
            _write(scope, method, status, round(1000 * (time.monotonic() - started), 1))


def _write(scope: Scope, method: str, status: int, milliseconds: float) -> None:
    caller = scope.get("state", {}).get("caller")
    known = caller if isinstance(caller, Principal) else None
    fields = {
        "method": method[:_MOST_CHARACTERS],
        "path": logs.without_secrets(quote(scope["path"][:_MOST_CHARACTERS], safe=_UNQUOTED)),
        "status": status,
        "ms": milliseconds,
        "owner": known.owner if known else None,
        "token": known.token_id if known else None,
        "address": scope["client"][0] if scope.get("client") else None,
    }
    named = f"{fields['owner'] or '-'} {fields['token'] or '-'} {fields['address'] or '-'}"
    line = f"{fields['method']} {fields['path']} {status} {milliseconds} ms {named}"
    _log.info("%s", line, extra={"fields": fields})
