"""The passes of ``relay.build`` that come before any choice of a schedule, run once for a network and target.

Extraction, the choice of layouts and every build need their result, and they took more than a third of the build of a
small network. Two passes of TVM 0.19 are slow:

* ``SimplifyExpr`` goes through the whole network again for each round of changes; when nothing is left to change, it
  takes twice as long.
* ``FoldConstant`` lowers and builds a program for each call whose arguments are constants, to run it once: 250 programs
  for a small network, 30 to 40 ms each. Nearly all give a bias its missing dimensions or pack a weight into the blocks
  of a schedule, which numpy does in microseconds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import autotvm, relay
from tvm.relay import dataflow_pattern as patterns

from tuner.engines.relay import corrections, fast_math, importing

Made = TypeVar("Made")
Array = Any
"""``numpy.ndarray``."""

_prefix = tvm.get_global_func("relay.backend.GetPassPrefixSeq")
"""First passes of ``relay.build``; arguments: whether there is one target, whether it is for the virtual machine."""
_FIRST_WITH_SCHEDULES = "AlterOpLayout"
_OF_EVERY_MODULE = {"RemoveUnusedFunctions", "ToBasicBlockNormalForm", "InferType", "FoldConstant"}


def _first() -> list[Any]:
    passes = list(_prefix(True, False).passes)
    return passes[: [each.info.name for each in passes].index(_FIRST_WITH_SCHEDULES)]


DONE = frozenset(each.info.name for each in _first()) - _OF_EVERY_MODULE
"""Names of passes that have nothing to do in the build of a simplified network."""


def with_last_kept(make: Callable[[importing.Imported, Any], Made]) -> Callable[[importing.Imported, Any], Made]:
    """Return ``make(network, target)`` with its last result cached, as the stages of a job ask for the same one."""
    last: list[tuple[Any, str, Made]] = []

    @functools.wraps(make)
    def find(imported: importing.Imported, target: Any) -> Made:
        if not last or last[0][0] is not imported.module or last[0][1] != str(target):
            last[:] = [(imported.module, str(target), make(imported, target))]
        return last[0][2]

    return find


@with_last_kept
def simplified(imported: importing.Imported, target: Any) -> importing.Imported:
    """Return the network as it is in ``relay.build`` just before ``AlterOpLayout``, its weights bound as constants."""
    corrections.use_threads(1)
    main = relay.build_module.bind_params_by_name(imported.module["main"], imported.params)
    functions = {**dict(imported.module.functions.items()), imported.module.get_global_var("main"): main}
    module = tvm.IRModule(functions, imported.module.type_definitions)
    context = tvm.transform.PassContext(opt_level=3, instruments=[Folding()])
    # An explicit context keeps TVM from querying TopHub.
    with autotvm.task.ApplyHistoryBest([]), target, context:
        return replace(imported, module=tvm.transform.Sequential(_first())(module), params={})


@tvm.instrument.pass_instrument
class Folding:
    """Folds these operators just before TVM's own pass, which then finds what is left."""

    def run_before_pass(self, module: Any, info: Any) -> None:
        if info.name == "FoldConstant":
            for variable, function in module.functions.items():
                if isinstance(function, relay.Function):
                    module.update_func(variable, patterns.rewrite(_Folded(), function))


class _Folded(patterns.DFPatternCallback):
    def __init__(self) -> None:
        super().__init__()
        self.pattern = fast_math.any_of(_FOLDS)(patterns.is_constant())

    def callback(self, _: Any, post: Any, __: Any) -> Any:
        constant = post.args[0].data
        found = _FOLDS[post.op.name](constant.numpy(), post.attrs)
        if found is None:
            return post
        # numpy has bfloat16 as uint16.
        return relay.Constant(tvm.nd.empty(found.shape, constant.dtype).copyfrom(found))


def relaid(array: Array, source: str, destination: str) -> Array | None:
    """Return an array in another of TVM's layouts, such as OIHW in OIHW4i16o.

    None if ``source`` is blocked, an axis is blocked twice, or a block does not divide its axis.
    """
    axes = re.findall(r"(\d*)([A-Za-z])", destination)
    blocks = {letter.upper(): int(size) for size, letter in axes if size}
    sizes = dict(zip(source, array.shape, strict=True)) if source.isupper() else {}
    twice = len(axes) > len(sizes) + len(blocks)
    if not sizes or twice or any(sizes[axis] % block for axis, block in blocks.items()):
        return None
    # Each axis in two; an axis without a block is one block.
    split = [part for axis, size in sizes.items() for part in (size // blocks.get(axis, 1), blocks.get(axis, 1))]
    places = {letter: place for axis in sizes for letter, place in _places(axis, source)}
    order = [places[letter] for _, letter in axes]
    rest = [place for place in places.values() if place not in order]
    moved = array.reshape(split).transpose(order + rest)
    return np.ascontiguousarray(moved.reshape([split[place] for place in order]))


def _places(axis: str, source: str) -> tuple[tuple[str, int], tuple[str, int]]:
    place = 2 * source.index(axis)
    return (axis, place), (axis.lower(), place + 1)


def _with_axes(array: Array, attributes: Any) -> Array:
    axis, count = int(attributes.axis), int(attributes.num_newaxis)
    at = axis if axis >= 0 else array.ndim + axis + 1
    return array.reshape(*array.shape[:at], *[1] * count, *array.shape[at:])


_FOLDS: dict[str, Callable[[Array, Any], Array | None]] = {
    "expand_dims": _with_axes,
    "layout_transform": lambda array, attributes: relaid(array, attributes.src_layout, attributes.dst_layout),
}
