"""Conversion of large products to bfloat16 inputs with float32 sums; everything else stays float32.

Inputs of convolutions are stored as bfloat16 for all readers, so that each image is written once, in half the bytes:
the conversion is the last of the elementwise operators fused into its producer. Other tensors are small compared to the
weights they meet and stay float32 for operators that add to them: a text encoder's error is a third smaller that way.
The conversion is moved through operators that only move numbers to their inputs, which changes no result. A product
whose data is converted from float32 to float32 stays in float32: so the onnx engine's ``narrowing`` marks layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relay

from tuner.engines.relay.templates import bf16_batch_matmul, narrow_conv2d, narrow_dense
from tuner.engines.relay.templates import bf16_products as products

_PRODUCTS: dict[str, Callable[[Any], bool]] = {
    "nn.batch_matmul": bf16_batch_matmul.is_worth,
    "nn.conv2d": narrow_conv2d.is_worth,
    "nn.dense": narrow_dense.is_worth,
}
_CHANNELS = 1
"""Channel axis of NCHW data, input channel axis of OIHW kernels."""
_IMAGE = 4
"""Number of dimensions of NCHW data."""
_MOVING = {
    "nn.batch_flatten",
    "expand_dims",
    "reshape",
    "squeeze",
    "strided_slice",
    "transpose",
}
"""Operators that only move numbers. Pools select them too, but TVM would round again with each comparison; and TVM 0.19
computes some concatenations of bfloat16 tensors wrongly if they are blocked unlike the result."""


class ControlFlow(Exception):
    """The network contains branches, loops or function calls."""


def narrow(module: Any) -> Any:
    """Return the module with large products in bfloat16. Fold scales into weights first. Raises ControlFlow."""
    module = relay.transform.InferType()(module)
    main = module["main"]
    order: list[Any] = []
    relay.analysis.post_order_visit(main.body, order.append)
    for each in order:
        if not isinstance(each, relay.Call | relay.Var | relay.Constant | relay.Tuple | relay.TupleGetItem | tvm.ir.Op):
            raise ControlFlow(f"the network has control flow ({type(each).__name__})")
        if isinstance(each, relay.Call) and not isinstance(each.op, tvm.ir.Op):
            raise ControlFlow("the network calls functions")
    body = _Narrowing(order).of(main.body)
    narrowed = relay.Function(main.params, body, main.ret_type, main.type_params, main.attrs)
    return relay.transform.InferType()(tvm.IRModule({module.get_global_var("main"): narrowed}))


def _is_product(call: Any) -> bool:
    is_one = isinstance(call, relay.Call) and call.op.name in _PRODUCTS
    return is_one and not _is_marked(call) and _PRODUCTS[call.op.name](call)


def _is_marked(product: Any) -> bool:
    data = product.args[0]
    # The importer reshapes the data of some products.
    while _is_moving(data):
        data = data.args[0]
    return _is_mark(data)


def _is_mark(node: Any) -> bool:
    if not isinstance(node, relay.Call) or node.op.name != "cast" or node.attrs.dtype != "float32":
        return False
    return bool(node.args[0].checked_type.dtype == "float32")


def _is_moving(call: Any) -> bool:
    return isinstance(call, relay.Call) and call.op.name in _MOVING


def _is_image(node: Any) -> bool:
    """Return whether a node is data of convolutions, large enough for a single copy to pay off."""
    return len(node.checked_type.shape) == _IMAGE


class _Narrowing:
    """Rewriter of a network; ``order`` is topologically sorted."""

    def __init__(self, order: list[Any]) -> None:
        self._wanted = _wanted(order)
        self._wide: dict[Any, Any] = {}
        self._narrow: dict[Any, Any] = {}
        for node in order:
            if node in self._wanted:
                self._narrow[node] = self._narrowed(node)
            else:
                self._wide[node] = self._rebuilt(node)

    def of(self, node: Any) -> Any:
        """Return the replacement of a node, in the node's own dtype."""
        if node not in self._wide:
            self._wide[node] = relay.cast(self._narrow[node], "float32") if _is_image(node) else self._rebuilt(node)
        return self._wide[node]

    def _narrowed(self, node: Any) -> Any:
        if _is_moving(node):
            return relay.Call(node.op, [self._narrow[each] for each in node.args], node.attrs)
        wide = self._rebuilt(node)
        if not _is_image(node):
            self._wide[node] = wide
        return relay.cast(wide, products.DTYPE)

    def _narrow_operand(self, node: Any) -> Any:
        return self._narrow[node] if node in self._narrow else relay.cast(self.of(node), products.DTYPE)

    def _rebuilt(self, node: Any) -> Any:
        if isinstance(node, relay.Tuple):
            return relay.Tuple([self.of(field) for field in node.fields])
        if isinstance(node, relay.TupleGetItem):
            return relay.TupleGetItem(self.of(node.tuple_value), node.index)
        if not isinstance(node, relay.Call):
            return node
        if _is_mark(node):
            return self.of(node.args[0])
        if _is_product(node):
            return _product(node, *(self._narrow_operand(each) for each in node.args))
        return relay.Call(node.op, [self.of(each) for each in node.args], node.attrs)


def _wanted(order: list[Any]) -> set[Any]:
    """Return the nodes to store as bfloat16."""
    wanted: set[Any] = set()
    for node in reversed(order):
        if _is_product(node):
            wanted.update(each for each in node.args if not isinstance(each, relay.Constant))
        elif node in wanted and _is_moving(node):
            wanted.update(node.args)
    return wanted


def _product(call: Any, data: Any, weights: Any) -> Any:
    attrs = call.attrs
    if call.op.name == "nn.dense":
        return relay.nn.dense(data, weights, units=attrs.units, out_dtype="float32")
    if call.op.name == "nn.batch_matmul":
        return relay.nn.batch_matmul(data, weights, "float32", transpose_a=False, transpose_b=True)
    if int(call.args[1].checked_type.shape[_CHANNELS]) % products.NUMBERS.group:
        # A channel of zeros completes the pairs of an odd number of channels.
        width = ((0, 0), (0, 1), (0, 0), (0, 0))
        zero = relay.const(0.0, products.DTYPE)
        data, weights = (relay.nn.pad(each, width, zero) for each in (data, weights))
    kept = {name: attrs[name] for name in narrow_conv2d.ATTRIBUTES}
    return relay.nn.conv2d(data, weights, **kept, out_dtype="float32")
