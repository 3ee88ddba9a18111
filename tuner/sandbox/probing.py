"""Strength of the sandbox on this machine: some containers and kernels do not support all of it."""

from __future__ import annotations

import ctypes
import json
import subprocess
from dataclasses import dataclass

from tuner.sandbox import limits

_SECONDS = 30.0
_DUMPABLE = 4
"""PR_SET_DUMPABLE of prctl(2)."""
_MISSING = {
    "network": "network isolation (no network namespace)",
    "files": "hiding credentials and files of other jobs (no mount namespace, no Landlock)",
    "writes": "write protection of files (no mount namespace of Linux 5.12, no Landlock)",
    "calls": "filtering of dangerous system calls (no seccomp filter)",
    "signals": "signal isolation (needs Landlock of Linux 6.12)",
    "privileges": "dropping privileges permanently (no_new_privs)",
}


@dataclass(frozen=True, kw_only=True)
class Strength:
    """The restrictions of engines that work here."""

    network: bool = False
    files: bool = False
    writes: bool = False
    calls: bool = False
    signals: bool = False
    privileges: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(text for name, text in _MISSING.items() if not getattr(self, name))

    def summary(self) -> str:
        """Return a sentence for logs."""
        if not self.missing:
            return (
                "engines are sandboxed: isolated network, no credentials, read-only files, no privileges, "
                "filtered system calls"
            )
        return f"engines are sandboxed, but without {'; '.join(self.missing)}; see docs/explanation/threat-model.md"


def probe() -> Strength:
    """Test the sandbox in a separate process; the weakest result if that fails."""
    try:
        done = subprocess.run(
            limits.probe_command(), capture_output=True, text=True, timeout=_SECONDS, check=True, env={}
        )
        return Strength(**json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return Strength()


def keep_private() -> None:
    """Prevent other processes of this user from reading this one's memory and environment, which contain credentials.

    Engines run as the same user; without namespaces, this keeps them out.
    """
    try:
        ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        return
