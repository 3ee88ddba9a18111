"""Plugins in the relay engine: converters return Relay expressions, operators are tensor expressions of TVM 0.19."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import onnx
import onnx.inliner
import tvm
from tvm import autotvm, relay, te
from tvm.relay.op import op as operators

from tuner.engines.protocol import plugins
from tuner.engines.protocol.plugins import Converter, Operator, Registry
from tuner.engines.relay import converters

_SHOWN_BY_FRONTEND = "tvm_custom"
"""The importer's own entry among a node's attributes."""


@lru_cache(maxsize=1)
def install() -> Registry:
    """Load the plugins that the setting names into this process's TVM, once. Raises PluginError."""
    registry = Registry(engine="relay", call=call)
    plugins.load(registry)
    for operator in registry.operators.values():
        _register(operator)
    for converter in registry.converters.values():
        converters.add(plugins.shown(converter.domain, converter.operator), _adapted(converter))
    return registry


def call(name: str, inputs: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> Any:
    """A Relay call of a registered operator; ``attributes`` are whatever JSON can hold."""
    packed = tvm.ir.make_node("DictAttrs", json=json.dumps(dict(attributes or {}), sort_keys=True))
    return relay.Call(operators.get(name), list(inputs), packed)


def prepare(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its nodes of other domains than ONNX's named by domain and type, where plugins convert them.

    The importer knows operators by their type alone, and would take ``my.domain::Relu`` for ONNX's. Functions that the
    model defines are put in place of their calls, except those that a plugin converts.
    """
    own = {key for key in install().converters if key[0]}
    if model.functions:
        model = onnx.inliner.inline_selected_functions(model, sorted(own), exclude=True)
    if own:
        _rename(model.graph, own)
    return model


def _rename(graph: Any, own: set[tuple[str, str]]) -> None:
    for node in graph.node:
        if (node.domain, node.op_type) in own:
            node.op_type = plugins.shown(node.domain, node.op_type)
        for attribute in node.attribute:
            for subgraph in [attribute.g] if attribute.HasField("g") else list(attribute.graphs):
                _rename(subgraph, own)


def _adapted(converter: Converter) -> converters.Converter:
    def convert(inputs: Sequence[Any], attributes: Mapping[str, Any], _: Any) -> Any:
        given = {name: _text(value) for name, value in attributes.items() if name != _SHOWN_BY_FRONTEND}
        answer = plugins.convert(converter, list(inputs), given)
        if not isinstance(answer, list | tuple):
            return answer
        return answer[0] if len(answer) == 1 else relay.expr.TupleWrapper(relay.Tuple(list(answer)), len(answer))

    return convert


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [_text(item) for item in value] if isinstance(value, list | tuple) else value


def _register(operator: Operator) -> None:
    """Make a Relay operator of a tensor expression: its type is found by computing on placeholders."""
    operators.register(operator.name, f"of the plugin {operator.plugin}")
    known = operators.get(operator.name)
    tensors = list(inspect.signature(operator.compute).parameters)[1:]
    known.set_num_inputs(len(tensors))
    for name in tensors:
        known.add_argument(name, "Tensor", f"the input {name}")
    known.set_attrs_type_key("DictAttrs")

    def compute(attributes: Any, inputs: Sequence[Any], _: Any) -> list[Any]:
        return [operator.compute(json.loads(attributes["json"]), *inputs)]

    def type_of(types: Sequence[Any], attributes: Any) -> Any:
        placeholders = [te.placeholder(each.shape, dtype=each.dtype) for each in types]
        # The shape depends neither on the target nor on a schedule, but templates ask for both.
        with tvm.target.Target.current(allow_none=True) or tvm.target.Target("llvm"), autotvm.FallbackContext():
            [output] = compute(attributes, placeholders, None)
        return relay.TensorType(output.shape, output.dtype)

    @tvm.target.override_native_generic_func(f"{operator.name}.strategy")
    def strategy(_: Any, __: Any, ___: Any, ____: Any) -> Any:
        chosen = relay.op.OpStrategy()
        chosen.add_implementation(compute, schedule, name=operator.name)
        return chosen

    def schedule(_: Any, outputs: Sequence[Any], target: Any) -> Any:
        with target:
            return (operator.schedule or parallel_schedule)(list(outputs))

    known.add_type_rel(f"{operator.name}.type", type_of)
    operators.register_strategy(operator.name, strategy)
    # Nothing is fused into it: its schedule need not be prepared for that.
    operators.register_pattern(operator.name, operators.OpPattern.OPAQUE)


def parallel_schedule(outputs: Sequence[Any]) -> Any:
    """One parallel loop over all elements of the output; elementwise steps before it are computed where needed."""
    schedule = te.create_schedule([output.op for output in outputs])
    te.schedule.AutoInlineInjective(schedule)
    for output in outputs:
        stage = schedule[output]
        stage.parallel(stage.fuse(*stage.op.axis))
    return schedule
