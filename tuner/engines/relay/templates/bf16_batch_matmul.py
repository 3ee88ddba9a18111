"""AutoTVM template ``batch_matmul_bf16.x86``: bfloat16 batch matrix products of two non-constant operands."""

from __future__ import annotations

from typing import Any

from tvm import autotvm, te, tir
from tvm.relay.op import op as operators
from tvm.relay.op.strategy.generic import wrap_topi_schedule
from tvm.topi.utils import get_const_tuple

from tuner.engines.relay.templates import bf16_products, dispatching, narrow_dense, tiles

TASK = "batch_matmul_bf16.x86"
_TAG = "batch_matmul_bf16"
_OPERATOR = "nn.batch_matmul"
_NUMBERS = bf16_products.NUMBERS
_PAIR = _NUMBERS.group
_FEWEST = 16
"""Minimum number of columns, and of products per sum, for which packing one side at every run pays off."""


@autotvm.register_topi_compute(TASK)
def batch_product(cfg: Any, left: Any, right: Any) -> Any:
    """Multiply ``(b, m, k)`` by ``(b, n, k)``, both bfloat16, into ``(b, m, n)`` of float32."""
    batch, rows, depth = get_const_tuple(left.shape)
    columns = int(right.shape[1])
    narrow_dense.define_tiles(cfg, rows, columns)
    cfg.add_flop(2 * batch * rows * columns * depth)
    block = cfg["tile_x"].size[-1]
    packed = te.compute(
        (batch, columns // block, depth // _PAIR, block, _PAIR),
        lambda n, o, p, k, t: _NUMBERS.bits(right[n, o * block + k, p * _PAIR + t]),
        name="packed_right",
    )
    p, t = te.reduce_axis((0, depth // _PAIR)), te.reduce_axis((0, _PAIR))
    return te.compute(
        (batch, rows, columns),
        lambda n, y, x: te.sum(
            _NUMBERS.value(left[n, y, p * _PAIR + t]) * _NUMBERS.value(packed[n, x // block, p, x % block, t]),
            axis=[p, t],
        ),
        name=_TAG,
        tag=_TAG,
    )


@autotvm.register_topi_schedule(TASK)
def schedule_batch_product(cfg: Any, outs: Any) -> Any:
    """Schedule ``batch_product`` and the elementwise operators that follow it."""

    def plan(schedule: Any, op: Any, out: Any) -> None:
        narrow_dense.schedule_product(_NUMBERS, schedule, cfg, op.output(0), out)

    return dispatching.of_tagged(outs, _TAG, plan)


def is_worth(call: Any) -> bool:
    """Return whether a Relay call of ``nn.batch_matmul`` should use bfloat16."""
    left, right = (argument.checked_type for argument in call.args)
    return call.checked_type.dtype == "float32" and _fits(call.attrs, left.shape, right.shape)


def _fits(attrs: Any, left: Any, right: Any) -> bool:
    static = all(isinstance(size, int | tir.IntImm) for size in (*left, *right))
    if attrs.transpose_a or not attrs.transpose_b or not static:
        return False
    (batch, _, depth), (other, columns, _) = ([int(size) for size in shape] for shape in (left, right))
    return batch == other and columns % tiles.MULTIPLE == 0 and depth % _PAIR == 0 and min(columns, depth) >= _FEWEST


def _takes(attrs: Any, tensors: list[Any], target: Any) -> bool:
    left, right = tensors[:2]
    return _NUMBERS.are(left, right) and _NUMBERS.available(target) and _fits(attrs, left.shape, right.shape)


def _compute(_: Any, inputs: Any, __: Any) -> list[Any]:
    return [batch_product(*inputs)]


def _offer(_attrs: Any, _inputs: list[Any], _out_type: Any, _target: Any, _strategy: Any) -> Any:
    """Offer the only implementation: TVM's own would compute in float32 what it reads as bfloat16."""
    strategy = operators.OpStrategy()
    strategy.add_implementation(_compute, wrap_topi_schedule(schedule_batch_product), name=TASK)
    return strategy


def _alter(*_: Any) -> None:
    """Keep the operator: neither side can be packed before it is computed."""


TEMPLATE = dispatching.Template(operators=(_OPERATOR,), task=TASK, takes=_takes, offer=_offer, alter=_alter)
