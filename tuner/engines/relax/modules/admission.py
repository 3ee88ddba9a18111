"""Allowlist for IRModule JSON, applied to the text before TVM creates objects from it.

TVM would create any object that it knows, including functions looked up by name in this process. So only listed objects
are accepted, and TVM receives the checked text, serialized anew, never the original.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tuner.engines.protocol.serving import EngineFailure

MOST_BYTES = 16 * 1024**2
"""Same limit as in ``api.models.uploading``."""
_MOST_NODES = 400_000
HINT = (
    "Save one unscheduled tensor function with tvm.ir.save_json of TVM 0.27; docs/how-to/irmodules.md says what it may "
    "hold."
)

FLOATING = frozenset(
    f"tirx.{name}"
    for name in (
        "exp", "exp2", "exp10", "log", "log10", "log1p", "sqrt", "rsqrt", "pow", "fmod", "hypot", "copysign",
        "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh",
        "erf", "sigmoid", "floor", "trunc", "round", "nearbyint", "fabs",
    )
) | {"prim.ceil", "prim.log2"}  # fmt: skip
"""Functions of floating-point numbers whose result has the type of the arguments."""
TESTS = frozenset({"tirx.isnan", "tirx.isfinite", "tirx.isinf"})
CHOICE = "prim.if_then_else"
INTRINSICS = FLOATING | TESTS | {CHOICE}
"""All that a tensor function may call."""

_EXPRESSIONS = frozenset(
    f"prim.{name}"
    for name in (
        "Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max", "EQ", "NE", "LT", "LE", "GT", "GE",
        "And", "Or", "Not", "Select", "Cast",
    )
)  # fmt: skip
_PLAIN = frozenset({"None", "bool", "int", "float", "ffi.Array", "ffi.Map", "ffi.String"})
_IR = frozenset(
    f"ir.{name}"
    for name in (
        "Call", "DictAttrs", "FloatImm", "GlobalVar", "IRModule", "IntImm", "Op", "PrimType", "Range", "SourceMap",
        "TensorLoad", "TensorRegion", "TupleType", "Type", "Var",
    )
)  # fmt: skip
_TYPES = frozenset({"relax.FuncType", "relax.ShapeType", "relax.TensorType", "relax.expr.ShapeExpr"})
_STATEMENTS = frozenset(
    {
        "s_tir.SBlock", "s_tir.SBlockRealize", "tirx.BufferRegionType", "tirx.BufferStore", "tirx.BufferType",
        "tirx.For", "tirx.IfThenElse", "tirx.IterVar", "tirx.PrimFunc", "tirx.SeqStmt",
    }
)  # fmt: skip
OBJECTS = _PLAIN | _IR | _TYPES | _STATEMENTS | _EXPRESSIONS
_NUMBERS = frozenset({"data_alignment", "offset_factor", "kind", "iter_type", "ndim"})
"""Fields of objects that contain numbers; all other integers there are indices of nodes."""
_SOURCES = frozenset({"ir.Span", "ir.SequentialSpan", "ir.SourceName"})
"""Source locations, which are removed."""
_NAME = re.compile(r"[^\x00-\x1f\x7f]{0,500}")


def screen(content: bytes) -> str:
    """Return the module's text, serialized anew. Raises EngineFailure ``invalid_model`` for anything not allowed."""
    if len(content) > MOST_BYTES:
        raise refused(f"it has {len(content)} bytes; the limit is {MOST_BYTES}")
    try:
        graph = json.loads(content.decode())
        nodes = graph["nodes"]
        root = graph["root_index"]
        if not isinstance(nodes, list) or nodes[root]["type"] != "ir.IRModule":
            raise refused("its root is not an ir.IRModule")
        if len(nodes) > _MOST_NODES:
            raise refused(f"it has {len(nodes)} nodes; the limit is {_MOST_NODES}")
        nodes = [_judged(node, place) for place, node in enumerate(nodes)]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise refused(f"not the JSON of a TVM IRModule ({type(error).__name__})") from error
    return json.dumps({"root_index": root, "nodes": nodes, "metadata": {}})


def _judged(node: dict[str, Any], place: int) -> dict[str, Any]:
    kind = node["type"]
    if isinstance(kind, str) and kind in _SOURCES:
        return {"type": "None"}
    if not isinstance(kind, str) or kind not in OBJECTS:
        raise refused(f"it contains a {str(kind)[:80]}, which is not supported")
    if not node.keys() <= {"type", "data"}:
        raise refused("a node has unknown fields")
    if kind == "ffi.String" and not _NAME.fullmatch(node["data"]):
        raise refused(f"the name {node['data'][:40]!r} contains control characters or is too long")
    if kind == "ir.Op" and node["data"] not in INTRINSICS:
        raise refused(f"it calls {str(node['data'])[:80]}, which is not supported")
    _require_order(node.get("data"), place)
    return node


def _require_order(data: Any, place: int) -> None:
    """Check that nodes refer to earlier ones only, as TVM writes them; a cycle would overflow its loader's stack."""
    named = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, value in named:
        if isinstance(value, int) and not isinstance(value, bool) and name not in _NUMBERS and not 0 <= value < place:
            raise refused("a node refers to a later node")


def refused(reason: str) -> EngineFailure:
    return EngineFailure("invalid_model", f"the module was rejected: {reason}"[:1500], hint=HINT)
