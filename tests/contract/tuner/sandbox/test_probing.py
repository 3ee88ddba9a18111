"""What is said about the sandbox, and what keeps the host's own memory from engines."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tuner.sandbox import limits, probing
from tuner.sandbox.probing import Strength

WHOLE = {"network": True, "files": True, "writes": True, "calls": True, "signals": True, "privileges": True}


def test_a_whole_sandbox_is_told_in_a_few_words() -> None:
    assert Strength(**WHOLE).missing == ()
    assert "without" not in Strength(**WHOLE).summary()


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_missing_is_named(name: str) -> None:
    weak = Strength(**{**WHOLE, name: False})
    assert len(weak.missing) == 1
    assert weak.missing[0] in weak.summary()
    assert "docs/explanation/threat-model.md" in weak.summary()


def test_this_machine_gives_up_privileges_at_least() -> None:
    strength = probing.probe()
    assert strength.privileges
    assert strength.network or strength.calls


def test_a_probe_that_fails_promises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_PROBE", "raise SystemExit(1)")
    assert probing.probe() == Strength()


def test_the_hosts_environment_is_kept_from_its_user() -> None:
    """As seen by somebody of the same user; root may read anything."""
    setpriv = [] if os.geteuid() else ["setpriv", "--reuid=65534", "--clear-groups"]
    system_python = sys.executable if os.geteuid() else "/usr/bin/python3"
    imports = "import sys; sys.path.insert(0, sys.argv[1]); from tuner.sandbox import probing"
    say = imports + "; {}; print(1, flush=True); input()"
    for how, readable in (("pass", True), ("probing.keep_private()", False)):
        command = [*setpriv, system_python, "-c", say.format(how), str(limits.ROOT)]
        environment = {**os.environ, "TUNESMITH_TOKEN": "secret"}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/"
        ) as process:
            assert process.stdout is not None
            if process.stdout.readline() != b"1\n":
                pytest.skip("nobody may not read these files here")
            look = [*setpriv, "cat", f"/proc/{process.pid}/environ"]
            seen = subprocess.run(look, capture_output=True, check=False).stdout
            assert (b"secret" in seen) is readable
            process.stdin.close() if process.stdin else None
