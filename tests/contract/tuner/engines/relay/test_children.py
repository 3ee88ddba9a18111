from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tuner import catalogue, environments

pytestmark = pytest.mark.engine

LOSSES = """
import json, os, signal, time
from tuner.engines.protocol import children

def ask(child, function, *arguments, timeout=20.0):
    child.submit(function, arguments, timeout)
    return child.fetch()

told = {}
child = children.Child("tuner.engines.relay.candidates", {})
told["raised"] = str(ask(child, "measure", "/no/such.so", [], 1, 1, 1, False).error)
os.kill(child._process.pid, signal.SIGSTOP)
child.submit("measure", ("/no/such.so", [], 1, 1, 1, False), 20.0)
os.kill(child._process.pid, signal.SIGKILL)
lost = child.fetch().error
told["died"] = [type(lost).__name__, str(lost)]
told["started_again"] = type(ask(child, "measure", "/no/such.so", [], 1, 1, 1, False).error).__name__
os.kill(child._process.pid, signal.SIGSTOP)
started = time.monotonic()
told["hung"] = type(ask(child, "measure", "/no/such.so", [], 1, 1, 1, False, timeout=0.5).error).__name__
told["waited"] = time.monotonic() - started
told["back"] = type(ask(child, "measure", "/no/such.so", [], 1, 1, 1, False).error).__name__
child.kill()
print(json.dumps(told))
"""


def test_a_crash_or_a_hang_costs_one_call() -> None:
    home = Path(os.environ.get("TUNESMITH_HOME") or Path.home() / ".local" / "share" / "tunesmith")
    python = environments.interpreter(catalogue.get("relay"), home)
    done = subprocess.run(
        [str(python), "-c", LOSSES], cwd=catalogue.ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert "/no/such.so" in told["raised"]
    assert told["died"] == ["ChildDied", "ended by signal 9"]
    assert told["started_again"] == "ChildRaised"
    assert told["hung"] == "ChildTimedOut"
    assert told["waited"] < 10
    assert told["back"] == "ChildRaised"
