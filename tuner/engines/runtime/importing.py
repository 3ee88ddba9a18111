"""ONNX models as read by TVM's importers. The environments of TVM 0.19 and 0.27 have different ``onnx`` packages."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError

from tuner.engines.protocol import plugins
from tuner.engines.protocol.plugins import Registry
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import environment, faults, progress, weights

Loaded = TypeVar("Loaded")

_FLOAT, _INT64 = 1, 7
"""``onnx.TensorProto.FLOAT`` and ``INT64``."""
_LARGE_BYTES = 256 << 20
"""Minimum bytes of a file for which memory is freed before and after it is imported."""
_TYPE_OF = {"value_float": _FLOAT, "value_floats": _FLOAT, "value_int": _INT64, "value_ints": _INT64}


def by_file(load: Callable[..., Loaded], *, kept: int) -> Callable[..., Loaded]:
    """Return ``load(path, *arguments)`` with an LRU cache of ``kept`` results, keyed by path and modification time.

    The wrapper raises EngineFailure ``invalid_model``, and whatever ``load`` raises.
    """

    @lru_cache(maxsize=kept)
    def cached(path: str, modified_ns: int, *arguments: Any) -> Loaded:  # noqa: ARG001 - part of the key
        return load(path, *arguments)

    def find(path: str, *arguments: Any) -> Loaded:
        try:
            modified_ns = Path(path).stat().st_mtime_ns
        except OSError as error:
            raise EngineFailure("invalid_model", f"cannot read the model: {error.strerror}") from error
        return cached(path, modified_ns, *arguments)

    return find


def once_a_file(load: Callable[[onnx.ModelProto], Loaded], *, most_kept: int | None = None) -> Callable[[str], Loaded]:
    """Return a cached reader, as ``by_file``, that passes the checked model of a file to ``load``.

    Large weights stay in the file: importers get their values by ``weights.array``. What is made of a file of more than
    ``most_kept`` bytes is not kept: its copy of the weights would count in all that an engine does.
    """

    def read(path: str) -> Loaded:
        try:
            model = weights.read(Path(path))
            onnx.checker.check_model(weights.checkable(model))
        except (DecodeError, onnx.checker.ValidationError, ValueError) as error:
            raise EngineFailure("invalid_model", f"not a valid ONNX model: {str(error)[:1500]}") from error
        return load(model)

    def load_and_release(path: str) -> Loaded:
        if Path(path).stat().st_size < _LARGE_BYTES:
            return read(path)
        environment.release()
        loaded = read(path)
        environment.release()
        return loaded

    cached = by_file(load_and_release, kept=2)

    def find(path: str) -> Loaded:
        is_kept = most_kept is None or not Path(path).is_file() or Path(path).stat().st_size <= most_kept
        return cached(path) if is_kept else load_and_release(path)

    return find


def prepare(model: onnx.ModelProto, registry: Registry) -> onnx.ModelProto:
    """Prepare a model in place for import: rename nodes that plugins convert, and store constants as tensors.

    The importers look operators up by type alone and would read ``my.domain::Relu`` as the ONNX operator, so a node of
    another domain is renamed to include its domain. Functions that the model defines are inlined, except those that a
    plugin converts.
    """
    own = {key for key in registry.converters if key[0]}
    if model.functions:
        model = onnx.inliner.inline_selected_functions(model, sorted(own), exclude=True)
    for node in every_node(model.graph.node) if own else ():
        if (node.domain, node.op_type) in own:
            node.op_type = plugins.shown(node.domain, node.op_type)
    use_tensors(model.graph)
    return model


def use_tensors(graph: onnx.GraphProto) -> None:
    """Rewrite every ``Constant``, including those in subgraphs, to hold a tensor."""
    for node in every_node(graph.node):
        for attribute in list(node.attribute):
            if node.op_type == "Constant" and attribute.name in _TYPE_OF:
                value = onnx.helper.get_attribute_value(attribute)
                shape, values = ([len(value)], value) if attribute.name.endswith("s") else ([], [value])
                tensor = onnx.helper.make_tensor(node.output[0], _TYPE_OF[attribute.name], shape, values)
                node.attribute.remove(attribute)
                node.attribute.append(onnx.helper.make_attribute("value", tensor))


def counts(graph: onnx.GraphProto, domains: Collection[str]) -> dict[str, int]:
    """Count the operators of a graph, including its branches and loop bodies.

    Operators of ``domains`` are named by type alone, others as ``domain::type``.
    """
    return Counter(
        node.op_type if node.domain in domains or "::" in node.op_type else f"{node.domain}::{node.op_type}"
        for node in every_node(graph.node)
    )


def every_node(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield all nodes, including those of branches and loop bodies, each after its parent node."""
    for node in nodes:
        yield node
        for subgraph in subgraphs(node.attribute):
            yield from every_node(subgraph.node)


def subgraphs(attributes: Iterable[onnx.AttributeProto]) -> list[onnx.GraphProto]:
    """Return the branches and loop bodies of a node with these attributes."""
    return [
        graph
        for attribute in attributes
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)
    ]


def refuse_unknown(operators: dict[str, int], known: Collection[str]) -> None:
    """Raise EngineFailure ``unsupported_operators``, with all unknown ones in ``details.operators {name: count}``.

    TVM's own checks name only the first one, or give no counts.
    """
    unknown = {name: count for name, count in operators.items() if name not in known}
    if unknown:
        shown = ", ".join(f"{name} ({count}×)" for name, count in sorted(unknown.items()))
        raise EngineFailure("unsupported_operators", f"TVM cannot import: {shown}", details={"operators": unknown})


@contextmanager
def reported(importer: Any, operators: Mapping[str, int]) -> Iterator[None]:
    """Begin the step ``import`` and convert exceptions of TVM's importer to EngineFailure ``import_failed``.

    The failure names the operator and its node.

    ``importer`` is the importer's class: its method ``_construct_nodes`` is called for one node at a time. An exception
    with the attribute ``node`` is due to that earlier node. ``operators`` are those of the model.
    """
    progress.begin("import", sum(operators.values()))
    construct = importer._construct_nodes
    known: dict[str | None, _Node] = {}

    def construct_each(self: Any, graph: Any) -> None:
        for node in graph.node:
            found = _Node(operator=node.op_type, name=node.name)
            with _blaming(found, known, operators):
                construct(self, SimpleNamespace(node=[node]))
            # Relay's importer names nodes that have no name.
            known[node.name] = found

    importer._construct_nodes = construct_each
    try:
        with _blaming(None, known, operators), warnings.catch_warnings():
            # The checker that the importers call misses weights that are in files.
            warnings.simplefilter("ignore")
            yield
    finally:
        importer._construct_nodes = construct


@dataclass(frozen=True, kw_only=True)
class _Node:
    operator: str
    name: str

    def __str__(self) -> str:
        return f"{self.operator} (the node {self.name})" if self.name else self.operator


@contextmanager
def _blaming(current: _Node | None, known: Mapping[str | None, _Node], operators: Mapping[str, int]) -> Iterator[None]:
    try:
        yield
    except EngineFailure:
        raise
    except Exception as error:
        node = known.get(getattr(error, "node", None), current)
        advice = faults.sizes_hint(operators) or (_to_replace(node.operator) if node else None)
        details = {"operator": node.operator, "node": node.name} if node else {}
        what = f"TVM cannot import {node or 'the model'}"
        raise faults.failure("import_failed", what, error, hint=advice, details=details) from error


def _to_replace(operator: str) -> str:
    return (
        f"Try the other engine, export the model with other operators instead of {operator}, or convert it in a "
        "plugin: docs/how-to/custom-operators.md."
    )
