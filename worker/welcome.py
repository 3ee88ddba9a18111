"""What ``serve`` tells when it is ready: how a browser comes in, and whether everyone does."""

from __future__ import annotations

import json
import urllib.request

_SECONDS = 5.0


def lines(url: str, token: str) -> list[str]:
    """For people. The link is the service's own token's, and works once."""
    told = []
    link = _asked(f"{url}/v1/login-links", token, method="POST").get("url")
    if link:
        told.append(f"Dashboard: {link}  (works once, for ten minutes)")
    if _asked(f"{url}/v1/tokens/self", None):
        told.append(f"TUNESMITH_OPEN is set: whoever reaches {url} may do everything, without a token.")
    return told


def _asked(url: str, token: str | None, *, method: str = "GET") -> dict[str, str]:
    """Empty when it was refused or nothing answers: the service runs all the same."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # No proxy: it would be asked for an address of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310 - our own address
        with opener.open(request, timeout=_SECONDS) as answer:
            found: dict[str, str] = json.load(answer)
            return found
    except (OSError, ValueError):
        return {}
