"""For TVM 0.19: an operator with an AutoTVM template of its own, one without, and a converter of Relay operators."""

from __future__ import annotations

from typing import Any

from tvm import autotvm, relay, te


@autotvm.register_topi_compute("example_wave.cpu")
def wave(cfg: Any, data: Any, weight: Any, amplitude: float) -> Any:
    """``data`` [rows, columns] times ``weight`` [columns], summed over columns, through a sine: [rows]."""
    rows, columns = data.shape
    column = te.reduce_axis((0, columns), name="column")
    total = te.compute((rows,), lambda row: te.sum(data[row, column] * weight[column], axis=column), name="total")
    cfg.add_flop(2 * int(rows) * int(columns))
    return te.compute((rows,), lambda row: amplitude * te.sin(total[row]), name="wave", tag="example_wave")


@autotvm.register_topi_schedule("example_wave.cpu")
def schedule_wave(cfg: Any, outputs: Any) -> Any:
    """Tiles the sum, which AutoTVM chooses: ``tile`` columns are unrolled or vectorized together."""
    output = outputs[0]
    schedule = te.create_schedule(output.op)
    total = output.op.input_tensors[0]
    [column] = schedule[total].op.reduce_axis
    cfg.define_split("tile", column, num_outputs=2)
    cfg.define_knob("unroll", [False, True])
    _, inner = cfg["tile"].apply(schedule, total, column)
    if cfg["unroll"].val:
        schedule[total].unroll(inner)
    schedule[total].compute_at(schedule[output], output.op.axis[0])
    schedule[output].parallel(output.op.axis[0])
    return schedule


def register(registry: Any) -> None:
    registry.add_operator(
        "example.wave",
        lambda attributes, data, weight: wave(data, weight, attributes["amplitude"]),
        schedule_wave,
    )
    # Without a schedule: an elementwise operator, which the engine schedules itself.
    registry.add_operator(
        "example.soften", lambda attributes, data: te.compute(data.shape, lambda *at: te.tanh(data(*at)) * 0.5)
    )

    def convert_wave(inputs: Any, attributes: Any) -> Any:
        data, weight = inputs
        return registry.call("example.wave", [data, weight], {"amplitude": float(attributes.get("amplitude", 1))})

    def convert_halves(inputs: Any, attributes: Any) -> Any:
        # Two outputs, out of operators that Relay has.
        return [relay.nn.relu(inputs[0]), relay.nn.relu(relay.negative(inputs[0]))]

    registry.add_converter("Wave", convert_wave, domain="example.domain")
    registry.add_converter(
        "Relu", lambda inputs, attributes: registry.call("example.soften", inputs), domain="example.domain"
    )
    registry.add_converter("Halves", convert_halves, domain="example.domain")
