"""Programs in the sandbox, as the user who runs the tests and as one without privileges."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tuner.sandbox import limits as sandbox
from tuner.sandbox.limits import Limits

_NOBODY = 65534
_SYSTEM_PYTHON = "/usr/bin/python3"
"""One that nobody may run, wherever the tests' own lies."""
NO_NAMESPACES = "namespaces._unshare = lambda flags: False"
"""As in most containers."""
NO_LANDLOCK = "landlock._syscall = lambda *_: -1"
"""As in kernels before 5.13."""


def as_user(user: int) -> list[str]:
    return [] if user == os.geteuid() else ["setpriv", f"--reuid={user}", "--clear-groups"]


def python(user: int) -> str:
    return sys.executable if user == os.geteuid() else _SYSTEM_PYTHON


def run(limits: Limits, *arguments: str, user: int | None = None) -> str:
    """Run Python; return what it printed."""
    user = os.geteuid() if user is None else user
    command = [*as_user(user), python(user), *limits.command()[1:], python(user), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/")
    return ended.stdout + ended.stderr


def strength(user: int | None = None) -> dict[str, Any]:
    """Return which restrictions this host grants."""
    user = os.geteuid() if user is None else user
    return _told((*as_user(user), python(user), *sandbox.probe_command()[1:]))


@functools.cache
def _told(command: tuple[str, ...]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return said


def users() -> list[int]:
    """Nobody too, where the tests may become nobody and nobody may read them."""
    others = os.geteuid() == 0 and shutil.which("setpriv") and Path(_SYSTEM_PYTHON).exists()
    if not others:
        return [os.geteuid()]
    reads = subprocess.run([*as_user(_NOBODY), "test", "-r", sandbox.__file__], check=False).returncode == 0
    return [os.geteuid(), _NOBODY] if reads else [os.geteuid()]


def weaken(monkeypatch: pytest.MonkeyPatch, changes: Sequence[str]) -> None:
    """Execute ``changes`` of the sandbox's modules before anything enters it."""
    imports = "from tuner.sandbox import devices, entering, filters, landlock, namespaces"
    for name, called in (("_ENTER", "main"), ("_PROBE", "probe")):
        code = "; ".join(
            ["import sys", "sys.path.insert(0, sys.argv.pop(1))", imports, *changes, f"entering.{called}()"]
        )
        monkeypatch.setattr(sandbox, name, code)
