"""Landlock: restrictions that need no privileges, also in most containers. Linux 5.13 and later.

Landlock has no exceptions from allowed paths. To deny reading some files, all of their present neighbours are allowed
one by one. Writing is allowed to a few paths only.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Equal on all machines."""
_WRITE_FILE, _READ_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 2, 1 << 13, 1 << 14
_CHANGE = _WRITE_FILE | 0b1_1111_1111 << 4
"""To write, remove and create files and folders."""
_SCOPES = 0b11
"""Scopes for abstract sockets and signals; Linux 6.12 and later."""
_BENEATH = 1
_ASK_VERSION = 1
_KNOWS_REFER, _KNOWS_TRUNCATE = 2, 3
"""Landlock versions that can allow moving and linking files between folders (Linux 5.19; otherwise, this is always
forbidden), and that can forbid truncating them (Linux 6.2)."""
_OF_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE
"""Rights of files that are not folders."""

_syscall = ctypes.CDLL(None, use_errno=True).syscall


def restrict(hidden: list[str], shown: list[str], writable: list[str] | None, devices: list[str]) -> set[str]:
    """Restrict signals to this process and its children, deny reading ``hidden`` files except ``shown``, and deny
    changing anything except ``writable`` paths, where files may be created, and existing files of ``devices``.

    With None as ``writable``, writing is not restricted. Returns which of ``signals``, ``files`` and ``writes`` is
    restricted. Sockets remain reachable.
    """
    reading = _READ_FILE if hidden else 0
    changing = 0 if writable is None else _changing()
    scoped = {"signals"}
    ruleset = _create(reading | changing, _SCOPES)
    if ruleset < 0:
        scoped = set()
        ruleset = _create(reading | changing, 0)
    if ruleset < 0:
        return set()
    try:
        if hidden:
            _allow_around("/", {os.path.realpath(path) for path in hidden}, ruleset, reading)
            _allow_all(shown, ruleset, reading)
        if writable is not None:
            _allow_all(writable, ruleset, changing)
            _allow_all(devices, ruleset, changing & _OF_FILES)
        restricted = _syscall(_RESTRICT, ruleset, 0) == 0
    finally:
        os.close(ruleset)
    kept = {"files": bool(hidden), "writes": writable is not None}
    return {*scoped, *(name for name, denied in kept.items() if denied)} if restricted else set()


def knows_moves() -> bool:
    """Return whether files can be moved between folders that are writable."""
    return _version() >= _KNOWS_REFER


def _version() -> int:
    return int(_syscall(_CREATE, None, ctypes.c_size_t(0), _ASK_VERSION))


def _changing() -> int:
    version = _version()
    return _CHANGE | (_REFER if version >= _KNOWS_REFER else 0) | (_TRUNCATE if version >= _KNOWS_TRUNCATE else 0)


def _create(access: int, scopes: int) -> int:
    rules = struct.pack("QQQ", access, 0, scopes)
    return int(_syscall(_CREATE, ctypes.c_char_p(rules), ctypes.c_size_t(len(rules)), 0))


def _allow_around(folder: str, hidden: set[str], ruleset: int, access: int) -> None:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.path in hidden or entry.is_symlink():
            continue
        if any(path.startswith(f"{entry.path}/") for path in hidden):
            _allow_around(entry.path, hidden, ruleset, access)
        else:
            _allow(entry.path, ruleset, access)


def _allow_all(paths: list[str], ruleset: int, access: int) -> None:
    for path in paths:
        folder, name = os.path.split(path)
        # A link is not followed, as an engine may have created it.
        _allow(f"{os.path.realpath(folder)}/{name}", ruleset, access)


def _allow(path: str, ruleset: int, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        allowed = access if stat.S_ISDIR(os.fstat(descriptor).st_mode) else access & _OF_FILES
        rule = struct.pack("=Qi", allowed, descriptor)
        _syscall(_ADD, ruleset, _BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(descriptor)
