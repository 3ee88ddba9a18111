"""Plugins in the relay engine: converters return Relay expressions, operators are tensor expressions of TVM 0.19."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import tvm
from tvm import autotvm, relay, te
from tvm.relay.op import op as operators

from tuner.engines.protocol import plugins
from tuner.engines.protocol.plugins import Converter, Operator, Registry
from tuner.engines.relay import converters


@lru_cache(maxsize=1)
def install() -> Registry:
    """Load the configured plugins into this process's TVM, once. Raises PluginError."""
    registry = Registry(engine="relay", call=call)
    plugins.load(registry)
    for operator in registry.operators.values():
        _register(operator)
    for converter in registry.converters.values():
        converters.add(plugins.shown(converter.domain, converter.operator), _adapted(converter))
    return registry


def call(name: str, inputs: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> Any:
    """Return a Relay call of a registered operator; ``attributes`` must be JSON-serializable."""
    packed = tvm.ir.make_node("DictAttrs", json=json.dumps(dict(attributes or {}), sort_keys=True))
    return relay.Call(operators.get(name), list(inputs), packed)


def _adapted(converter: Converter) -> converters.Converter:
    def convert(inputs: Sequence[Any], attributes: Mapping[str, Any], _: Any) -> Any:
        answer = plugins.convert(converter, list(inputs), attributes)
        if not isinstance(answer, list | tuple):
            return answer
        return answer[0] if len(answer) == 1 else relay.expr.TupleWrapper(relay.Tuple(list(answer)), len(answer))

    return convert


def _register(operator: Operator) -> None:
    """Register a tensor expression as a Relay operator; its type is inferred by computing on placeholders."""
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
        # The shape depends neither on the target nor on a schedule, but templates query both.
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
    # Opaque, so nothing is fused into it and its schedule need not handle fusion.
    operators.register_pattern(operator.name, operators.OpPattern.OPAQUE)


def parallel_schedule(outputs: Sequence[Any]) -> Any:
    """Schedule one parallel loop over all output elements; preceding elementwise stages are inlined."""
    schedule = te.create_schedule([output.op for output in outputs])
    te.schedule.AutoInlineInjective(schedule)
    for output in outputs:
        stage = schedule[output]
        stage.parallel(stage.fuse(*stage.op.axis))
    return schedule
