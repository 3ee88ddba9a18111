"""Sockets of this host that lead out of the cage: whoever reaches a service manager, a container engine or an agent
has it do what the cage forbids.

They are files, so that a network namespace keeps nobody from them; and Landlock keeps nobody from connecting to files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.catalogue import PROGRAM

_OF_HOST = (
    # Messages between programs, what starts programs for others, and screens with their keyboards.
    *("/run/dbus", "/run/systemd/private", "/run/snapd.socket", "/run/libvirt", "/tmp/.X11-unix"),  # noqa: S108
    # Container engines.
    *("/run/docker.sock", "/var/run/docker.sock", "/run/containerd", "/run/podman", "/run/crio"),
    *("/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket"),
    # Servers that know a user by name alone.
    *("/run/postgresql", "/run/mysqld", "/run/redis", "/run/valkey"),
)
_OF_USER = ("", "bus", "systemd", "docker.sock", "containerd", "podman", "gnupg", "keyring")
"""In the user's folder of sockets: all of it, and what to hide where the home or temporary folder lies in there."""


def leading_out(home: Path | None, outer: Mapping[str, str]) -> tuple[str, ...]:
    """Those that exist, and folders that hold little else. ``outer`` is the host's environment."""
    folders = [f"/run/user/{os.getuid()}", outer.get("XDG_RUNTIME_DIR", "")]
    paths = [
        *_OF_HOST,
        *(str(Path(folder) / name) for folder in folders if folder for name in _OF_USER),
        *_agent(outer.get("SSH_AUTH_SOCK", "")),
        # Of the broker, where the home folder's path is too long for a socket: see ``worker.broker``.
        *(f"{root}/tunesmith-{os.getuid()}" for root in (tempfile.gettempdir(), "/tmp")),  # noqa: S108
    ]
    needed = [os.path.realpath(path) for path in (tempfile.gettempdir(), home, *PROGRAM) if path is not None]
    chosen = [path for path in dict.fromkeys(paths) if os.path.isabs(path) and _may_be_hidden(path, needed)]  # noqa: PTH117
    return tuple(chosen)


def _agent(path: str) -> list[str]:
    """The folder that an agent made for its socket, or the socket alone where it put it among others' files."""
    if not path:
        return []
    folder = Path(path).parent
    try:
        alone = all(entry.is_socket() for entry in folder.iterdir())
    except OSError:
        return [path]
    return [str(folder) if alone else path]


def _may_be_hidden(path: str, needed: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return os.path.exists(real) and not any(f"{other}/".startswith(f"{real}/") for other in needed)  # noqa: PTH110
