"""Namespaces and privileges of a process that becomes an engine."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import stat
import struct
from typing import NoReturn

_NEW_MOUNTS, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x10000000, 0x40000000
"""Flags of unshare(2), which Python has since 3.12."""
_BIND, _RECURSIVE, _PRIVATE, _REMOUNT, _READ_ONLY = 0x1000, 0x4000, 1 << 18, 0x20, 0x1
_SEALED = _READ_ONLY | 0x2 | 0x4 | 0x8
"""Flags of mount(2): read-only, nosuid, nodev and noexec."""
_DETACH = 2
"""Flag of umount2(2)."""
_SET_ATTRIBUTES, _HERE, _BELOW = 442, -100, 0x8000
"""Number of mount_setattr(2), equal on all machines, and AT_FDCWD and AT_RECURSIVE."""
_SET_FLAGS, _UP = 0x8914, 0x1
_NO_NEW_PRIVILEGES, _DROP_BOUND = 38, 24
_CAPABILITY_VERSION, _OVERRIDE_ACCESS, _MOST_CAPABILITIES = 0x20080522, 1, 64

_C = ctypes.CDLL(None, use_errno=True)


def leave(*, network: bool) -> set[str]:
    """Enter new namespaces of mounts and, without ``network``, of the network.

    Returns which of ``files`` and ``network`` are isolated; containers often forbid both.
    """
    # Without root, only in a new user namespace.
    user = 0 if os.geteuid() == 0 else _NEW_USER
    ids = os.getuid(), os.getgid()
    flags = _NEW_MOUNTS | (0 if network else _NEW_NETWORK)
    if not _enter(flags, user):
        # If only one of them is allowed, it is usually this one.
        if network or not _enter(_NEW_NETWORK, user):
            return set()
        flags = _NEW_NETWORK
    if user:
        _keep_ids(*ids)
    if flags & _NEW_NETWORK:
        _raise_loopback()
    names = {"files": _NEW_MOUNTS, "network": _NEW_NETWORK}
    return {name for name, flag in names.items() if flags & flag}


def _enter(flags: int, user: int) -> bool:
    """Enter the namespaces; returns whether they are usable."""
    return (not user or _are_usable(flags)) and _unshare(flags | user)


def _are_usable(flags: int) -> bool:
    """Test the namespaces in a child, as entering them is irreversible. Since 23.10, Ubuntu creates user
    namespaces for everyone but denies all privileges inside of them, even mapping the own user."""
    ids = os.getuid(), os.getgid()
    try:
        child = os.fork()
        if child == 0:
            _try(flags, ids)
        return os.waitpid(child, 0)[1] == 0
    except OSError:
        return False


def _try(flags: int, ids: tuple[int, int]) -> NoReturn:
    status = 1
    try:
        if _unshare(flags | _NEW_USER):
            _keep_ids(*ids)
            status = 0 if not flags & _NEW_MOUNTS or _privately() else 1
    finally:
        # After any exception, the child must not continue as if it were its parent.
        os._exit(status)


def _unshare(flags: int) -> bool:
    return bool(_C.unshare(flags) == 0)


def _keep_ids(user: int, group: int) -> None:
    """Map the own user and group, as programs look themselves up."""
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        descriptor = os.open(f"/proc/self/{file}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _raise_loopback() -> None:
    """Enable the loopback interface, which TVM's local runners need."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))
    except OSError:
        # Without it, engines measure in their own processes.
        return


def hide(paths: list[str], shown: list[str]) -> bool:
    """Make paths appear empty to this process, except those ``shown``; returns whether all are hidden."""
    if not _privately():
        return False
    wanted = [_named(path) for path in shown if os.path.exists(path)]  # noqa: PTH110
    failed = [path for path in map(os.path.realpath, paths) if not _hidden(path, _beneath(path, wanted))]
    return not failed


def _privately() -> bool:
    """Make new mounts private; returns whether that worked."""
    return bool(_C.mount(b"none", b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None) == 0)


def _named(path: str) -> str:
    """Resolve the folder of a path; a link as the last part is not followed."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118


def _beneath(folder: str, paths: list[str]) -> list[str]:
    return [path for path in paths if path.startswith(f"{folder}/")]


def _hidden(path: str, shown: list[str]) -> bool:
    if not os.path.exists(path):  # noqa: PTH110 - as above
        return True
    if not os.path.isdir(path):  # noqa: PTH112
        return _mount("/dev/null", path, _BIND)
    if not shown:
        return _mount("tmpfs", path, _SEALED)
    return _hidden_around(path, shown)


def _hidden_around(folder: str, shown: list[str]) -> bool:
    """Open the paths to show before hiding their folder, to mount them again inside."""
    held: dict[str, int] = {}
    try:
        for path in shown:
            held[path] = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not _mount("tmpfs", folder, _SEALED & ~_READ_ONLY):
            return False
        if all(_put_back(path, descriptor) for path, descriptor in held.items()):
            return _mount("none", folder, _SEALED | _REMOUNT | _BIND)
    except OSError:
        pass
    finally:
        for descriptor in held.values():
            os.close(descriptor)
    # Otherwise, the engine would lack files that it needs when Landlock is used instead.
    _C.umount2(os.fsencode(folder), _DETACH)
    return False


def _put_back(path: str, descriptor: int) -> bool:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.makedirs(path, exist_ok=True)  # noqa: PTH103
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    # Including mounts below: only root may reveal what they cover.
    return _mount(f"/proc/self/fd/{descriptor}", path, _BIND | _RECURSIVE)


def _mount(source: str, target: str, flags: int) -> bool:
    kind, options = (b"tmpfs", b"size=4k") if source == "tmpfs" else (None, None)
    done = _C.mount(os.fsencode(source), os.fsencode(target), kind, ctypes.c_ulong(flags), options)
    return bool(done == 0)


def seal(writable: list[str], *, processes: bool) -> bool:
    """Make all files read-only to this process, except those in ``writable`` folders; with ``processes`` also except
    the entries of processes in ``/proc``. Needs Linux 5.12.

    Folders that do not exist, and those that are read-only already, are left out. Returns whether that worked.
    """
    if not _privately():
        return False
    apart = [path for path in map(_named, writable) if _is_set_apart(path)]
    if processes and all(_mount(path, path, _BIND | _RECURSIVE) for path in _not_of_processes()):
        apart.append("/proc")
    return _set_read_only("/", True, flags=_BELOW) and all(_set_read_only(path, False) for path in apart)


def _is_set_apart(path: str) -> bool:
    """Mount a writable folder on itself; a link is not followed, as an engine may have created it."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
            return False
        here = f"/proc/self/fd/{descriptor}"
        return _mount(here, here, _BIND | _RECURSIVE)
    finally:
        os.close(descriptor)


def _not_of_processes() -> list[str]:
    """Return entries of ``/proc`` with which root could change the machine."""
    others = [entry for entry in os.scandir("/proc") if not entry.name.isdigit() and not entry.is_symlink()]
    return [entry.path for entry in others if entry.is_dir() or entry.stat().st_mode & 0o222]


def _set_read_only(path: str, read_only: bool, *, flags: int = 0) -> bool:
    attributes = struct.pack("QQQQ", read_only, not read_only, 0, 0)
    done = _C.syscall(
        _SET_ATTRIBUTES, _HERE, os.fsencode(path), flags, ctypes.c_char_p(attributes), ctypes.c_size_t(len(attributes))
    )
    return bool(done == 0)


def drop_privileges() -> bool:
    """Drop all capabilities except, for root, that of opening files of others; no program can regain them.

    Returns whether that is guaranteed.
    """
    kept = _OVERRIDE_ACCESS if os.geteuid() == 0 else -1
    for capability in range(_MOST_CAPABILITIES):
        if capability != kept:
            _C.prctl(_DROP_BOUND, capability, 0, 0, 0)
    left = 1 << kept if kept >= 0 else 0
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    _C.capset(ctypes.c_char_p(header), ctypes.c_char_p(struct.pack("IIIIII", left, left, 0, 0, 0, 0)))
    return bool(_C.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0)
