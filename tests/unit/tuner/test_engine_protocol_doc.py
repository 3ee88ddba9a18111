"""docs/reference/engine-protocol.md has every method of every engine."""

from __future__ import annotations

import ast
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_PAGE = (_ROOT / "docs" / "reference" / "engine-protocol.md").read_text()


def test_every_method_is_described() -> None:
    tables = [
        node.value
        for program in (_ROOT / "tuner" / "engines").glob("*/__main__.py")
        for node in ast.parse(program.read_text()).body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict)
    ]
    methods = {key.value for table in tables for key in table.keys if isinstance(key, ast.Constant)}
    assert {"tune", "quantize"} <= methods
    assert sorted(name for name in methods if f"| `{name}` " not in _PAGE) == []
