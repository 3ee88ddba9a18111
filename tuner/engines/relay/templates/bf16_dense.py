"""AutoTVM template ``dense_pack_bf16.x86``: matrix products of bfloat16 with float32 sums and packed weights."""

from __future__ import annotations

from typing import Any

from tvm import autotvm, relay, te
from tvm.autotvm.task.space import SplitEntity
from tvm.relay.op import op as operators
from tvm.relay.op.strategy.generic import wrap_compute_dense, wrap_topi_schedule
from tvm.topi.utils import get_const_tuple

from tuner.engines.relay.templates import bf16_products as products
from tuner.engines.relay.templates import byte_products, dispatching

TASK = "dense_pack_bf16.x86"
_TAG = "dense_pack_bf16"
_PAIR = products.PAIR


@autotvm.register_topi_compute(TASK)
def dense_packed(cfg: Any, data: Any, weight: Any, bias: Any = None, _out_dtype: str = "") -> Any:
    """Multiply data ``(m, k)`` by weights ``(n, k)`` or ``(n / b, k / 2, b, 2)`` into ``(m, n)``.

    Operands are bfloat16, the result is float32.
    """
    rows, depth = get_const_tuple(data.shape)
    shape = get_const_tuple(weight.shape)
    columns = shape[0] if len(shape) == 2 else shape[0] * shape[2]
    define_tiles(cfg, rows, columns)
    cfg.add_flop(2 * rows * columns * depth)
    if len(shape) == 2:
        weight = _packed(weight, cfg["tile_x"].size[-1])
    block = int(weight.shape[2])
    p, t = te.reduce_axis((0, depth // _PAIR)), te.reduce_axis((0, _PAIR))
    product = te.compute(
        (rows, columns),
        lambda y, x: te.sum(
            products.value(data[y, p * _PAIR + t]) * products.value(weight[x // block, p, x % block, t]), axis=[p, t]
        ),
        name=_TAG,
        tag=_TAG,
    )
    return product if bias is None else te.compute((rows, columns), lambda y, x: product[y, x] + bias[x])


@autotvm.register_topi_schedule(TASK)
def schedule_dense_packed(cfg: Any, outs: Any) -> Any:
    """Schedule ``dense_packed`` and the elementwise operators that follow it."""
    return dispatching.of_tagged(
        outs, _TAG, lambda schedule, op, out: schedule_product(schedule, cfg, op.output(0), out)
    )


def define_tiles(cfg: Any, rows: int, columns: int) -> None:
    """Define the search space of a product, and its default for a fallback configuration."""
    cfg.define_split("tile_y", rows, num_outputs=2, filter=lambda entity: entity.size[-1] <= 30)
    cfg.define_split("tile_x", columns, num_outputs=2, filter=products.fits_registers)
    if cfg.is_fallback:
        set_default(cfg, rows, columns)


def set_default(cfg: Any, rows: int, columns: int) -> None:
    """Set the tiles of a fallback configuration."""
    block = products.output_block(columns, rows)
    if rows == 1:
        # Nothing shares a load of weights: more columns at once hide the latency of their sums.
        block = max(each for each in products.divisors(columns) if each % block == 0 and products.vectors(each) <= 8)
    height = products.outputs(rows, block)
    cfg["tile_y"] = SplitEntity([rows // height, height])
    cfg["tile_x"] = SplitEntity([columns // block, block])


def _packed(weight: Any, block: int) -> Any:
    """Return blocked weights; while tuning as a placeholder, since inside a network they are blocked already."""
    columns, depth = get_const_tuple(weight.shape)
    shape = (columns // block, depth // _PAIR, block, _PAIR)
    if autotvm.GLOBAL_SCOPE.in_tuning:
        return te.placeholder(shape, weight.dtype, name="packed_weight")
    # As uint16: TVM would keep a bfloat16 buffer inside a function as float32.
    return te.compute(
        shape, lambda o, p, k, t: products.bits(weight[o * block + k, p * _PAIR + t]), name="packed_weight"
    )


def schedule_product(schedule: Any, cfg: Any, product: Any, last: Any) -> None:
    """Tile rows and columns, the innermost axes of ``last``, which is ``product`` or what it is inlined into.

    The product is one of bfloat16 numbers or of bytes.
    """
    data, weight = product.op.input_tensors
    if isinstance(weight.op, te.ComputeOp):
        schedule[weight].parallel(weight.op.axis[0])
    height, block = cfg["tile_y"].size[-1], cfg["tile_x"].size[-1]
    lanes = products.lanes_of(block)
    sums = schedule.cache_write(product, "global") if product == last else product
    stage = schedule[last]
    *batch, y, x = stage.op.axis
    (outer_y, inner_y), (outer_x, inner_x) = stage.split(y, factor=height), stage.split(x, factor=block)
    stage.reorder(*batch, outer_x, outer_y, inner_y, inner_x)
    fused = stage.fuse(*batch, outer_x, outer_y)
    vectors, lane = stage.split(inner_x, factor=lanes)
    stage.unroll(vectors)
    stage.vectorize(lane)
    stage.parallel(fused)
    numbers = products if product.dtype == "float32" else byte_products
    stage.pragma(fused, "import_llvm", numbers.function(lanes))
    schedule[sums].compute_at(stage, fused)
    _schedule_sums(schedule[sums], lanes, numbers.product(data.dtype, weight.dtype, lanes))


def _schedule_sums(stage: Any, lanes: int, product: Any) -> None:
    *_, y, x = stage.op.axis
    p, t = stage.op.reduce_axis
    vectors, lane = stage.split(x, factor=lanes)
    stage.reorder(p, y, vectors, lane, t)
    stage.unroll(y)
    stage.unroll(vectors)
    stage.tensorize(lane, product)


def is_worth(call: Any) -> bool:
    """Return whether a Relay call of ``nn.dense`` should use bfloat16; its weights must be packable before it runs."""
    weight = call.args[1]
    return isinstance(weight, relay.Constant) and fits(weight.checked_type) and call.checked_type.dtype == "float32"


def fits(weight: Any) -> bool:
    """Return whether the rows of weights ``(n, k)`` fill lanes and their columns form pairs."""
    columns, depth = (int(size) for size in weight.shape)
    return columns % products.MULTIPLE == 0 and depth % _PAIR == 0


def _takes(_: Any, tensors: list[Any], target: Any) -> bool:
    data, weight = tensors[:2]
    if data.dtype != products.DTYPE or weight.dtype != products.DTYPE or not products.available(target):
        return False
    return len(weight.shape) == 4 or (len(weight.shape) == 2 and fits(weight))


def _offer(_attrs: Any, _inputs: list[Any], _out_type: Any, _target: Any, _strategy: Any) -> Any:
    """Offer the only implementation: TVM's own would compute in float32 what it reads as bfloat16."""
    strategy = operators.OpStrategy()
    strategy.add_implementation(wrap_compute_dense(dense_packed), wrap_topi_schedule(schedule_dense_packed), name=TASK)
    return strategy


def _alter(_: Any, inputs: list[Any], tinfos: list[Any], out_type: Any, workload: Any) -> Any:
    target, context = dispatching.target(), autotvm.task.DispatchContext.current
    cfg = context.query(target, workload)
    (rows, depth), (columns, _) = (get_const_tuple(tensor.shape) for tensor in tinfos)
    if cfg.is_fallback:
        set_default(cfg, rows, columns)
    block = cfg["tile_x"].size[-1]
    packed = te.placeholder((columns // block, depth // _PAIR, block, _PAIR), tinfos[1].dtype)
    altered = autotvm.task.args_to_workload([tinfos[0], packed, None, out_type.dtype], TASK)
    context.update(target, altered, cfg)
    return relay.nn.contrib_dense_pack(*inputs, f"NC{block}n{_PAIR}c", None, out_type.dtype)


TEMPLATE = dispatching.Template(
    operators=("nn.dense", "nn.contrib_dense_pack"), task=TASK, takes=_takes, offer=_offer, alter=_alter
)
