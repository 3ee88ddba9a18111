"""Matrix products whose weights Ansor can rearrange; those of TVM 0.19 it cannot.

A layout is written as sizes and axes in turn, ``16k32j``, so an axis whose name ends in a digit is read as another.
TVM's products have such axes, ``i0`` and ``i1``, since they take more than two dimensions. Every schedule that tiles
one fails, in a search as in ``relay.build`` ("Check failed: (name_it != name_to_arg.end())"); rearranged weights would
then fail an assertion about their dimensions, ``len(tensor_b).shape``.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Sequence
from typing import Any

from tvm import auto_scheduler, te, topi

_MODULE = "tvm.topi.nn.dense"
"""Its name on ``topi.nn`` is the function's."""
_original = topi.nn.matmul


def install() -> None:
    """Correct this process's TVM; a second call changes nothing.

    Workloads with a product get other keys than plain TVM 0.19 gives them: its builds find none of their schedules, on
    which they would fail.
    """
    # ``topi.nn.dense`` asks the module, Relay's strategies ask the package.
    sys.modules[_MODULE].matmul = topi.nn.matmul = matmul  # type: ignore[attr-defined]


def matmul(
    tensor_a: Any,
    tensor_b: Any,
    bias: Any = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> Any:
    """As ``tvm.topi.nn.matmul``: […, m, k] ∗ [k, n] → […, m, n], either transposed where asked, plus ``bias`` [n]."""
    if meta_schedule_original_shape or not (auto_scheduler_rewritten_layout or len(tensor_b.shape) == 2):
        return _original(
            tensor_a, tensor_b, bias, out_dtype, transpose_a, transpose_b, "", meta_schedule_original_shape
        )
    columns = _columns(tensor_b, transpose_b, auto_scheduler_rewritten_layout)
    product = _product(tensor_a, tensor_b, columns, out_dtype or tensor_a.dtype, transpose_a, transpose_b)
    if bias is not None:
        product = topi.add(product, bias.astype(product.dtype))
    if auto_scheduler_rewritten_layout:
        product = auto_scheduler.rewrite_compute_body(product, auto_scheduler_rewritten_layout)
    return product


def _columns(weights: Any, transposed: bool, layout: str) -> Any:
    if not layout:
        return weights.shape[0 if transposed else 1]
    columns, _ = auto_scheduler.get_shape_from_rewritten_layout(layout, ["j", "k"])
    auto_scheduler.remove_index_check(weights)
    return columns


def _product(data: Any, weights: Any, columns: Any, dtype: str, transpose_data: bool, transpose_weights: bool) -> Any:
    rows, depth = reversed(data.shape[-2:]) if transpose_data else data.shape[-2:]
    outer = list(data.shape[:-2])
    k = te.reduce_axis((0, depth), name="k")

    def compute(*axes: Any) -> Any:
        *before, i, j = axes
        left = data[(*before, *_order(i, k, transpose_data))]
        right = weights[_order(k, j, transpose_weights)]
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=k)

    is_dense = transpose_weights and not transpose_data
    return te.compute(
        (*outer, rows, columns),
        compute,
        name=f"T_matmul_{'NT'[transpose_data]}{'NT'[transpose_weights]}",
        tag="dense" if is_dense else "matmul",
        # Relay infers wrong shapes where data is transposed and the layout of weights is another.
        attrs=None if transpose_data else {"layout_free_placeholders": [weights]},
        varargs_names=[*string.ascii_lowercase[: len(outer)], "i", "j"],
    )


def _order(first: Any, second: Any, swapped: bool) -> Sequence[Any]:
    return (second, first) if swapped else (first, second)
