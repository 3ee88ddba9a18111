"""For TVM 0.27: tensor expressions, which MetaSchedule tunes without a template, and a converter of Relax operators."""

from __future__ import annotations

from typing import Any

from tvm import relax, te


def wave(attributes: Any, data: Any, weight: Any) -> Any:
    """``data`` [rows, columns] times ``weight`` [columns], summed over columns, through a sine: [rows]."""
    rows, columns = data.shape
    column = te.reduce_axis((0, columns), name="column")
    total = te.compute((rows,), lambda row: te.sum(data[row, column] * weight[column], axis=column), name="total")
    return te.compute((rows,), lambda row: attributes["amplitude"] * te.sin(total[row]), name="wave")


def register(registry: Any) -> None:
    registry.add_operator("example.wave", wave)
    registry.add_operator(
        "example.soften", lambda attributes, data: te.compute(data.shape, lambda *at: te.tanh(data(*at)) * 0.5)
    )

    def convert_wave(inputs: Any, attributes: Any) -> Any:
        return registry.call("example.wave", inputs, {"amplitude": float(attributes.get("amplitude", 1))})

    def convert_halves(inputs: Any, attributes: Any) -> Any:
        return [relax.op.nn.relu(inputs[0]), relax.op.nn.relu(relax.op.negative(inputs[0]))]

    registry.add_converter("Wave", convert_wave, domain="example.domain")
    registry.add_converter(
        "Relu", lambda inputs, attributes: registry.call("example.soften", inputs), domain="example.domain"
    )
    registry.add_converter("Halves", convert_halves, domain="example.domain")
