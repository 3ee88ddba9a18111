"""The reasons for which models are refused are documented, in the words that the code has for them."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]


def reasons() -> dict[str, str]:
    """Read, not imported: the package needs onnx."""
    source = (ROOT / "tuner/engines/onnx/vetting.py").read_text()
    assigned = {
        target.id: statement.value
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    found: dict[str, str] = ast.literal_eval(assigned["REASONS"])
    return found


def test_every_reason_is_documented() -> None:
    document = (ROOT / "docs/reference/errors.md").read_text()
    for reason, meaning in reasons().items():
        assert f"| `{reason}` | {meaning} |" in document, reason
