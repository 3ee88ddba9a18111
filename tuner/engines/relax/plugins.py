"""Plugins in the relax engine: converters return Relax expressions, operators are tensor expressions of TVM 0.27.

Schedules of operators are ignored: the engine or MetaSchedule schedules every tensor expression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from tuner.engines.protocol import plugins
from tuner.engines.protocol.plugins import Converter, Registry

_builders: list[Any] = []
"""Stack of ``relax.BlockBuilder`` objects; the last belongs to the current import."""


@lru_cache(maxsize=1)
def install() -> Registry:
    """Load the configured plugins into this process's TVM, once. Raises PluginError."""
    registry = Registry(engine="relax")
    registry.call = lambda name, inputs, attributes=None: _call(registry, name, inputs, attributes or {})
    plugins.load(registry)
    if registry.converters:
        added = {
            plugins.shown(converter.domain, converter.operator): _adapted(converter)
            for converter in registry.converters.values()
        }
        original = onnx_frontend._get_convert_map
        onnx_frontend._get_convert_map = lambda: {**original(), **added}
    return registry


def _adapted(converter: Converter) -> SimpleNamespace:
    """Adapt a converter to the importer's interface: ``get_converter(opset)(builder, inputs, attributes, …)``."""

    def convert(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], _: Any) -> Any:
        _builders.append(builder)
        try:
            answer = plugins.convert(converter, list(inputs), attributes)
        finally:
            _builders.pop()
        if not isinstance(answer, list | tuple):
            return answer
        return answer[0] if len(answer) == 1 else relax.Tuple([builder.normalize(each) for each in answer])

    return SimpleNamespace(get_converter=lambda _: convert)


def _call(registry: Registry, name: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    operator = registry.operators[name]

    def compute(*tensors: Any) -> Any:
        return operator.compute(dict(attributes), *tensors)

    return _builders[-1].emit_te(compute, *inputs, primfunc_name_hint=name.replace(".", "_"))
