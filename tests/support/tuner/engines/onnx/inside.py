"""Programs for the onnx engine's interpreter, which has numpy and onnx; the tests' own has neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.tuner.engines import asking


def write_operators(folder: Path) -> None:
    """Write the models of ``operators.py``."""
    program = "import sys; from tests.support.tuner.engines.onnx import operators; operators.write(sys.argv[1])"
    asking.inside("onnx", program, folder)


def run(program: str, *arguments: Any) -> Any:
    """What the program leaves in ``told``, by way of JSON; ``sys.argv`` has the arguments."""
    return asking.told_inside("onnx", f"import json, sys\n{program}\nprint(json.dumps(told))", *arguments)
