"""Quantized ONNX models (QDQ) as networks that compute in int8 between their outer conversions.

TVM's ``FakeQuantizationToInteger`` replaces what stands between DequantizeLinear and QuantizeLinear by operators on
integers: products of bytes with sums in int32 (``templates.byte_products``), and rescaling in fixed point. What it has
no integer form of stays in float32, conversions around it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tvm
from tvm import relay
from tvm.ir import TensorAffineType
from tvm.relay import dataflow_pattern as patterns
from tvm.target.codegen import llvm_cpu_has_features

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import corrections, importing
from tuner.engines.runtime import faults

_FEATURES = ("avx512f", "avx512vnni")
"""Of the instruction that ``templates.byte_products`` calls."""
_OVER_DEFAULT = 11
"""Level of a registration that replaces TVM's own, which has 10."""
_CONVERSIONS = ("DequantizeLinear", "QuantizeLinear")


def available(target: Any) -> bool:
    """Whether a ``tvm.target.Target`` has the instruction."""
    return target.kind.name == "llvm" and bool(llvm_cpu_has_features(list(_FEATURES), target))


def convert(imported: importing.Imported) -> importing.Imported:
    """A quantized model with products of integers. Raises EngineFailure ``unsupported_dtype``."""
    if not any(imported.operators.get(name) for name in _CONVERSIONS):
        raise EngineFailure("unsupported_dtype", "an int8 build takes a quantized model, and this one is not quantized")
    corrections.use_threads(1)
    passes = tvm.transform.Sequential(
        [
            relay.transform.InferType(),
            # Kernels and their scales are constants behind reshapes and transpositions of the importer's.
            relay.transform.FoldConstant(),
            tvm.transform.module_pass(_with_units, opt_level=0),
            relay.transform.FakeQuantizationToInteger(hard_fail=False, use_qat=False),
            relay.transform.InferType(),
        ]
    )
    try:
        with tvm.transform.PassContext(opt_level=3):
            return dataclasses.replace(imported, module=passes(imported.module))
    except Exception as error:
        # Type relations raise TVMError, ValueError or DiagnosticError.
        message = f"TVM cannot convert the quantized model: {faults.told(error)}"
        raise EngineFailure("unsupported_dtype", message, hint="Use precision f32.") from error


def _with_units(module: Any, _: Any) -> Any:
    """Products that do not tell how many columns they have end the process when they become integer ones."""
    module = relay.transform.InferType()(module)
    main = patterns.rewrite(_Units(), module["main"], module)
    return relay.transform.InferType()(
        tvm.IRModule({**dict(module.functions.items()), module.get_global_var("main"): main}, module.type_definitions)
    )


class _Units(patterns.DFPatternCallback):
    def __init__(self) -> None:
        super().__init__(require_type=True, rewrite_once=True)
        self.pattern = patterns.is_op("nn.dense")(patterns.wildcard(), patterns.wildcard())

    def callback(self, pre: Any, post: Any, _: Any) -> Any:
        if post.attrs.units is not None:
            return post
        return relay.nn.dense(*post.args, units=pre.checked_type.shape[-1], out_dtype=post.attrs.out_dtype)


def _reshaped(expr: Any, types: Any) -> list[Any]:
    """As TVM's own, which loses the columns that scales belong to where the number of dimensions changes."""
    [given] = expr.args
    kind = types[given]
    before, after = (tuple(relay.transform.InferTypeLocal(each).shape) for each in (given, expr))
    if int(kind.axis) in (-1, len(before) - 1) and before[-1] == after[-1]:
        kind = TensorAffineType(kind.scale, kind.zero_point, kind.dtype, len(after) - 1)
    return [expr, kind]


tvm.ir.register_op_attr("reshape", "FTVMFakeQuantizationToInteger", _reshaped, _OVER_DEFAULT)
