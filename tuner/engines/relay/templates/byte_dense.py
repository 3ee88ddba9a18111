"""AutoTVM template ``dense_pack_bytes.x86``: matrix products of bytes with int32 sums in registers and packed weights.

TVM's own, ``dense_int8.x86``, keeps a row's 16 sums in memory and adds to them one product after the other: it reaches
the rate of float32. The tiles are those of ``bf16_dense``, whose instruction has the same lanes and latency.
"""

from __future__ import annotations

from typing import Any

from tvm import autotvm, relay, te
from tvm.relay.op import op as operators
from tvm.relay.op.strategy.generic import wrap_compute_dense, wrap_topi_schedule
from tvm.topi.utils import get_const_tuple

from tuner.engines.relay.templates import bf16_dense, bf16_products, byte_products, dispatching

TASK = "dense_pack_bytes.x86"
_TAG = "dense_pack_bytes"
_GROUP = byte_products.GROUP


@autotvm.register_topi_compute(TASK)
def dense_packed(cfg: Any, data: Any, weight: Any, bias: Any = None, _out_dtype: str = "") -> Any:
    """Multiply data ``(m, k)`` by weights ``(n, k)`` or ``(n / b, k / 4, b, 4)`` into ``(m, n)``.

    Data is uint8, weights are int8, the result is int32.
    """
    rows, depth = get_const_tuple(data.shape)
    shape = get_const_tuple(weight.shape)
    columns = shape[0] if len(shape) == 2 else shape[0] * shape[2]
    bf16_dense.define_tiles(cfg, rows, columns)
    cfg.add_flop(2 * rows * columns * depth)
    if len(shape) == 2:
        weight = _packed(weight, cfg["tile_x"].size[-1])
    block = int(weight.shape[2])
    p, t = te.reduce_axis((0, depth // _GROUP)), te.reduce_axis((0, _GROUP))
    product = te.compute(
        (rows, columns),
        lambda y, x: te.sum(
            data[y, p * _GROUP + t].astype("int32") * weight[x // block, p, x % block, t].astype("int32"), axis=[p, t]
        ),
        name=_TAG,
        tag=_TAG,
    )
    return product if bias is None else te.compute((rows, columns), lambda y, x: product[y, x] + bias[x])


@autotvm.register_topi_schedule(TASK)
def schedule_dense_packed(cfg: Any, outs: Any) -> Any:
    """Schedule ``dense_packed`` and the elementwise operators that follow it."""
    return dispatching.of_tagged(
        outs, _TAG, lambda schedule, op, out: bf16_dense.schedule_product(schedule, cfg, op.output(0), out)
    )


def _packed(weight: Any, block: int) -> Any:
    """Return blocked weights; while tuning as a placeholder, since inside a network they are blocked already."""
    columns, depth = get_const_tuple(weight.shape)
    shape = (columns // block, depth // _GROUP, block, _GROUP)
    if autotvm.GLOBAL_SCOPE.in_tuning:
        return te.placeholder(shape, weight.dtype, name="packed_weight")
    return te.compute(shape, lambda o, p, k, t: weight[o * block + k, p * _GROUP + t], name="packed_weight")


def _takes(_: Any, tensors: list[Any], target: Any) -> bool:
    data, weight = tensors[:2]
    if (data.dtype, weight.dtype) != ("uint8", "int8") or not byte_products.available(target):
        return False
    return len(weight.shape) == 4 or (len(weight.shape) == 2 and _fits(weight))


def _fits(weight: Any) -> bool:
    """Return whether the rows of weights ``(n, k)`` fill lanes and their columns form groups."""
    columns, depth = (int(size) for size in weight.shape)
    return columns % bf16_products.MULTIPLE == 0 and depth % _GROUP == 0


def _offer(_attrs: Any, _inputs: list[Any], _out_type: Any, _target: Any, _strategy: Any) -> Any:
    strategy = operators.OpStrategy()
    strategy.add_implementation(wrap_compute_dense(dense_packed), wrap_topi_schedule(schedule_dense_packed), name=TASK)
    return strategy


def _alter(_: Any, inputs: list[Any], tinfos: list[Any], out_type: Any, workload: Any) -> Any:
    target, context = dispatching.target(), autotvm.task.DispatchContext.current
    cfg = context.query(target, workload)
    (rows, depth), (columns, _) = (get_const_tuple(tensor.shape) for tensor in tinfos)
    if cfg.is_fallback:
        bf16_dense.set_default(cfg, rows, columns)
    block = cfg["tile_x"].size[-1]
    packed = te.placeholder((columns // block, depth // _GROUP, block, _GROUP), tinfos[1].dtype)
    altered = autotvm.task.args_to_workload([tinfos[0], packed, None, out_type.dtype], TASK)
    context.update(target, altered, cfg)
    return relay.nn.contrib_dense_pack(*inputs, f"NC{block}n{_GROUP}c", None, out_type.dtype)


TEMPLATE = dispatching.Template(
    operators=("nn.dense", "nn.contrib_dense_pack"), task=TASK, takes=_takes, offer=_offer, alter=_alter
)
