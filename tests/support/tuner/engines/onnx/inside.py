"""Programs for the onnx engine's interpreter, which has numpy and onnx; the tests' own has neither."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.tuner.engines.fixtures import home
from tuner.host import catalogue, environments

ROOT = Path(__file__).parents[5]


def write_operators(folder: Path) -> None:
    """Write the models of ``operators.py``."""
    python = environments.interpreter(catalogue.get("onnx"), home())
    command = [str(python), "-m", "tests.support.tuner.engines.onnx.operators", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def run(program: str, *arguments: Any, seconds: float = 120) -> Any:
    """What the program leaves in ``told``, by way of JSON; ``sys.argv`` has the arguments."""
    python = environments.interpreter(catalogue.get("onnx"), home())
    code = f"import json, sys\n{program}\nprint(json.dumps(told))"
    done = subprocess.run(
        [python, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=seconds, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
