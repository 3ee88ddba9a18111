"""AutoTVM templates ``dense_pack_bf16.x86`` and ``dense_pack_bytes.x86``: matrix products with packed weights.

TVM's own template of bytes, ``dense_int8.x86``, keeps a row's 16 sums in memory and adds to them one product after the
other: it reaches the rate of float32.
"""

from __future__ import annotations

from typing import Any

from tvm import autotvm, relay, te
from tvm.autotvm.task.space import SplitEntity
from tvm.relay.op import op as operators
from tvm.relay.op.strategy.generic import wrap_compute_dense, wrap_topi_schedule
from tvm.topi.utils import get_const_tuple

from tuner.engines.relay.templates import bf16_products, byte_products, dispatching, tiles
from tuner.engines.relay.templates.narrow_numbers import Numbers


def _template(numbers: Numbers) -> dispatching.Template:
    """Register the template of these numbers."""
    tag = f"dense_pack_{numbers.name}"
    task = f"{tag}.x86"

    @autotvm.register_topi_compute(task)
    def compute(cfg: Any, data: Any, weight: Any, bias: Any = None, _out_dtype: str = "") -> Any:
        return dense_packed(numbers, cfg, data, weight, bias)

    @autotvm.register_topi_schedule(task)
    def schedule(cfg: Any, outs: Any) -> Any:
        return dispatching.of_tagged(
            outs, tag, lambda schedule, op, out: schedule_product(numbers, schedule, cfg, op.output(0), out)
        )

    def offer(_attrs: Any, _inputs: list[Any], _out_type: Any, _target: Any, _strategy: Any) -> Any:
        """Offer the only implementation: TVM's own computes what it reads as bfloat16 in float32."""
        strategy = operators.OpStrategy()
        strategy.add_implementation(wrap_compute_dense(compute), wrap_topi_schedule(schedule), name=task)
        return strategy

    return dispatching.Template(
        operators=("nn.dense", "nn.contrib_dense_pack"),
        task=task,
        takes=lambda _, tensors, target: _takes(numbers, tensors, target),
        offer=offer,
        alter=lambda _, *arguments: _alter(numbers, task, *arguments),
    )


def dense_packed(numbers: Numbers, cfg: Any, data: Any, weight: Any, bias: Any = None) -> Any:
    """Multiply data ``(m, k)`` by weights ``(n, k)`` or, for a group of g, ``(n / b, k / g, b, g)`` into ``(m, n)``."""
    rows, depth = get_const_tuple(data.shape)
    shape, group = get_const_tuple(weight.shape), numbers.group
    columns = shape[0] if len(shape) == 2 else shape[0] * shape[2]
    define_tiles(cfg, rows, columns)
    cfg.add_flop(2 * rows * columns * depth)
    if len(shape) == 2:
        weight = _packed(numbers, weight, cfg["tile_x"].size[-1])
    block = int(weight.shape[2])
    p, t = te.reduce_axis((0, depth // group)), te.reduce_axis((0, group))
    product = te.compute(
        (rows, columns),
        lambda y, x: te.sum(
            numbers.value(data[y, p * group + t]) * numbers.value(weight[x // block, p, x % block, t]), axis=[p, t]
        ),
        name="dense_pack",
        tag=f"dense_pack_{numbers.name}",
    )
    return product if bias is None else te.compute((rows, columns), lambda y, x: product[y, x] + bias[x])


def define_tiles(cfg: Any, rows: int, columns: int) -> None:
    """Define the search space of a product, and its default for a fallback configuration."""
    cfg.define_split("tile_y", rows, num_outputs=2, filter=lambda entity: entity.size[-1] <= 30)
    cfg.define_split("tile_x", columns, num_outputs=2, filter=tiles.fits_registers)
    if cfg.is_fallback:
        set_default(cfg, rows, columns)


def set_default(cfg: Any, rows: int, columns: int) -> None:
    """Set the tiles of a fallback configuration."""
    block = tiles.output_block(columns, rows)
    if rows == 1:
        # Nothing shares a load of weights: more columns at once hide the latency of their sums.
        block = max(each for each in tiles.divisors(columns) if each % block == 0 and tiles.vectors(each) <= 8)
    height = tiles.outputs(rows, block)
    cfg["tile_y"] = SplitEntity([rows // height, height])
    cfg["tile_x"] = SplitEntity([columns // block, block])


def _packed(numbers: Numbers, weight: Any, block: int) -> Any:
    """Return blocked weights; while tuning as a placeholder, since inside a network they are blocked already."""
    columns, depth = get_const_tuple(weight.shape)
    group = numbers.group
    shape = (columns // block, depth // group, block, group)
    if autotvm.GLOBAL_SCOPE.in_tuning:
        return te.placeholder(shape, weight.dtype, name="packed_weight")
    return te.compute(
        shape, lambda o, p, k, t: numbers.bits(weight[o * block + k, p * group + t]), name="packed_weight"
    )


def schedule_product(numbers: Numbers, schedule: Any, cfg: Any, product: Any, last: Any) -> None:
    """Tile rows and columns, the innermost axes of ``last``, which is ``product`` or what it is inlined into."""
    data, weight = product.op.input_tensors
    if isinstance(weight.op, te.ComputeOp):
        schedule[weight].parallel(weight.op.axis[0])
    height, block = cfg["tile_y"].size[-1], cfg["tile_x"].size[-1]
    lanes = tiles.lanes_of(block)
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


def fits(weight: Any, group: int = bf16_products.NUMBERS.group) -> bool:
    """Return whether the rows of weights ``(n, k)`` fill lanes and their columns form groups."""
    columns, depth = (int(size) for size in weight.shape)
    return columns % tiles.MULTIPLE == 0 and depth % group == 0


def _takes(numbers: Numbers, tensors: list[Any], target: Any) -> bool:
    data, weight = tensors[:2]
    if not numbers.are(data, weight) or not numbers.available(target):
        return False
    return len(weight.shape) == 4 or (len(weight.shape) == 2 and fits(weight, numbers.group))


def _alter(numbers: Numbers, task: str, inputs: list[Any], tinfos: list[Any], out_type: Any, workload: Any) -> Any:
    target, context = dispatching.target(), autotvm.task.DispatchContext.current
    cfg, group = context.query(target, workload), numbers.group
    (rows, depth), (columns, _) = (get_const_tuple(tensor.shape) for tensor in tinfos)
    if cfg.is_fallback:
        set_default(cfg, rows, columns)
    block = cfg["tile_x"].size[-1]
    packed = te.placeholder((columns // block, depth // group, block, group), tinfos[1].dtype)
    altered = autotvm.task.args_to_workload([tinfos[0], packed, None, out_type.dtype], task)
    context.update(target, altered, cfg)
    return relay.nn.contrib_dense_pack(*inputs, f"NC{block}n{group}c", None, out_type.dtype)


BF16, BYTES = _template(bf16_products.NUMBERS), _template(byte_products.NUMBERS)
