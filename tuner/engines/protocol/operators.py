"""The operators of an ONNX graph, and those of them that an importer does not know."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tuner.engines.protocol.serving import EngineFailure


def counts(graph: Any, domains: Collection[str]) -> dict[str, int]:
    """How often a ``GraphProto`` has each operator, its branches and loops included.

    Operators of ``domains`` go by type alone, others by ``domain::type``.
    """
    found: dict[str, int] = {}
    for node in graph.node:
        name = node.op_type if node.domain in domains or "::" in node.op_type else f"{node.domain}::{node.op_type}"
        found[name] = found.get(name, 0) + 1
        for attribute in node.attribute:
            for subgraph in [attribute.g] if attribute.HasField("g") else list(attribute.graphs):
                for inner, count in counts(subgraph, domains).items():
                    found[inner] = found.get(inner, 0) + count
    return found


def refuse_unknown(operators: dict[str, int], known: Collection[str]) -> None:
    """Raises EngineFailure ``unsupported_operators``, with ``details.operators {name: count}`` of all unknown ones.

    TVM's own checks name the first one they meet, or count none.
    """
    unknown = {name: count for name, count in operators.items() if name not in known}
    if unknown:
        shown = ", ".join(f"{name} ({count}×)" for name, count in sorted(unknown.items()))
        raise EngineFailure("unsupported_operators", f"TVM cannot import: {shown}", details={"operators": unknown})
