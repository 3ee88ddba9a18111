"""Wrong builds that verification must catch, and right ones that it must accept: ``./run bench planted``.

Prints JSON: how many of either there are, how many were caught and accepted, and which came closest to their limits.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tuner.host import catalogue, environments


def main(_: Sequence[str] = ()) -> int:
    python = environments.interpreter(catalogue.get("onnx"), Path(os.environ["TUNESMITH_HOME"]))
    return subprocess.run([python, "-m", "bench.planted_suite"], check=False).returncode
