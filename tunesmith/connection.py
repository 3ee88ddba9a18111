"""Selection of the server and token."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from tunesmith import errors

DEFAULT_HOME = "~/.local/share/tunesmith"


@dataclass(frozen=True, kw_only=True)
class Connection:
    url: str
    token: str | None = field(repr=False)


def home() -> Path:
    return Path(os.environ.get("TUNESMITH_HOME") or DEFAULT_HOME).expanduser().absolute()


def find(url: str | None = None, token: str | None = None) -> Connection:
    """Return the arguments, else TUNESMITH_URL and TUNESMITH_TOKEN, else the server of the home folder.

    TUNESMITH_TOKEN_FILE is a file with the token. The token of the home folder is sent to the server of the home
    folder only. Raises ServerUnreachable if no server is known, and ConfigurationError for an invalid URL.
    """
    url = url or os.environ.get("TUNESMITH_URL")
    token = token or os.environ.get("TUNESMITH_TOKEN") or _token_file()
    local = _local(home() / "server.json")
    if url is None and local is None:
        raise errors.ServerUnreachable(f"no server is running for {home()}")
    if url is None or (local is not None and url.rstrip("/") == local.url):
        assert local is not None  # noqa: S101 - just looked
        return Connection(url=local.url, token=token or local.token)
    if not url.startswith(("http://", "https://")):
        raise errors.ConfigurationError(f"invalid server URL: {url!r}", hint="Use a URL such as http://host:8000.")
    return Connection(url=url.rstrip("/"), token=token)


def _token_file() -> str | None:
    path = os.environ.get("TUNESMITH_TOKEN_FILE")
    if not path:
        return None
    try:
        return Path(path).read_text().strip() or None
    except (OSError, ValueError) as error:
        raise errors.ConfigurationError(f"the file in TUNESMITH_TOKEN_FILE cannot be read: {error}") from error


def _local(path: Path) -> Connection | None:
    try:
        written = json.loads(path.read_text())
        return Connection(url=str(written["url"]).rstrip("/"), token=written.get("token"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.ConfigurationError(
            f"{path} cannot be read", hint="Delete it and restart the server: ./run serve."
        ) from error
