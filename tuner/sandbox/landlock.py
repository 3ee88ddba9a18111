"""Landlock: restrictions that need no privileges, also in most containers. Linux 5.13 and later.

Landlock has no exceptions from allowed paths. To deny some files, all of their present neighbours are allowed one by
one.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Equal on all machines."""
_READ_FILE, _REFER = 1 << 2, 1 << 13
_SCOPES = 0b11
"""Scopes for abstract sockets and signals; Linux 6.12 and later."""
_BENEATH = 1
_ASK_VERSION = 1
_KNOWS_REFER = 2
"""Landlock version that can allow moving and linking files between folders, Linux 5.19; otherwise, this is
always forbidden."""

_syscall = ctypes.CDLL(None, use_errno=True).syscall


def restrict(hidden: list[str], shown: list[str]) -> set[str]:
    """Restrict signals to this process and its children, and deny opening ``hidden`` files except ``shown``.

    Returns which of ``signals`` and ``files`` is restricted. Sockets remain reachable.
    """
    access = _access() if hidden else 0
    scoped = {"signals"}
    ruleset = _create(access, _SCOPES)
    if ruleset < 0:
        scoped = set()
        ruleset = _create(access, 0)
    if ruleset < 0:
        return set()
    try:
        if hidden:
            _allow_around("/", {os.path.realpath(path) for path in hidden}, ruleset, access)
            for path in shown:
                folder, name = os.path.split(path)
                # A link is not followed, as an engine may have created it.
                _allow(f"{os.path.realpath(folder)}/{name}", ruleset, access)
        restricted = _syscall(_RESTRICT, ruleset, 0) == 0
    finally:
        os.close(ruleset)
    return {*scoped, *({"files"} if hidden else set())} if restricted else set()


def _access() -> int:
    version = int(_syscall(_CREATE, None, ctypes.c_size_t(0), _ASK_VERSION))
    return _READ_FILE | (_REFER if version >= _KNOWS_REFER else 0)


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


def _allow(path: str, ruleset: int, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        # Moving files is a right of folders only.
        allowed = access if stat.S_ISDIR(os.fstat(descriptor).st_mode) else _READ_FILE
        rule = struct.pack("=Qi", allowed, descriptor)
        _syscall(_ADD, ruleset, _BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(descriptor)
