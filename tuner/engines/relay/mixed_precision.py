"""Reduced-precision networks: narrow numbers inside, unchanged dtypes of inputs and outputs.

* float16 uses TVM's own conversion, for any processor.
* bfloat16 is our conversion (``templates.bf16_narrowing``) of large products only, for processors with an instruction
  for them, scheduled by AutoTVM templates only.
* int8 requires a quantized model (QDQ) and, like bfloat16, suitable instructions and AutoTVM templates.

Without narrowing, quantized models are built as for int8 where builds may be rewritten: it is their own arithmetic.

For int8, products of dequantized bytes become products of bytes with sums in int32 (``integer_products``,
``templates.byte_products``). The other operators stay in float32, with conversions around them.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
from tvm import relay
from tvm.relay.transform import mixed_precision as conversion
from tvm.target.codegen import llvm_cpu_has_features

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import corrections, fast_math, importing, integer_products
from tuner.engines.relay.templates import bf16_narrowing, bf16_products, byte_products, grouped
from tuner.engines.runtime import faults

_OVER_DEFAULT = 11
"""Level of a registration that replaces TVM's own, which has 10."""
_CONVERSIONS = ("DequantizeLinear", "QuantizeLinear")


def _is_quantized(imported: importing.Imported) -> bool:
    return any(imported.operators.get(name) for name in _CONVERSIONS)


def _int8(imported: importing.Imported) -> importing.Imported:
    """Convert a quantized model to products of integers. Raises EngineFailure ``unsupported_dtype``."""
    if not _is_quantized(imported):
        raise EngineFailure("unsupported_dtype", "an int8 build needs a quantized model")
    corrections.use_threads(1)
    passes = tvm.transform.Sequential(
        [
            relay.transform.InferType(),
            # The importer puts reshapes and transpositions between kernels, scales and their constants.
            relay.transform.FoldConstant(),
            tvm.transform.module_pass(lambda module, _: integer_products.convert(module), opt_level=0),
        ]
    )
    try:
        with tvm.transform.PassContext(opt_level=3):
            return dataclasses.replace(imported, module=passes(imported.module))
    except Exception as error:
        # Type relations raise TVMError, ValueError or DiagnosticError.
        raise _unsupported(f"TVM cannot convert the quantized model: {faults.text_of(error)}") from error


_SUMMING = (
    "nn.conv1d",
    "nn.conv2d",
    "nn.conv3d",
    "nn.conv1d_transpose",
    "nn.conv2d_transpose",
    "nn.conv3d_transpose",
    "nn.dense",
    "nn.batch_matmul",
)
"""Operators that sum many products."""
PRECISIONS = ("f32", "bf16", "fp16", "int8")
_NATIVE: dict[str, Callable[[Any], bool]] = {
    "bf16": bf16_products.NUMBERS.available,
    "fp16": lambda target: target.kind.name == "llvm" and bool(llvm_cpu_has_features("avx512fp16", target)),
    "int8": byte_products.NUMBERS.available,
}
"""Whether a target has instructions for a precision."""
_INSTRUCTIONS = {"bf16": "bfloat16 (AVX512-BF16)", "int8": "products of bytes (AVX512-VNNI)"}
"""Instructions without which a precision is not built at all."""
_ABOUT_DTYPES = re.compile(r"float16|dtype|data type|\bhalf\b", re.IGNORECASE)
_AS_IT_IS = 1
"""Value for operators without a rule in ``ToMixedPrecision``: keep their dtype and convert around them."""


def _sum_in_float32(_: Any, mixed_precision_type: str) -> list[Any]:
    """Return category, accumulation dtype and result dtype; TVM accumulates in float16, where 2048 + 1 is 2048."""
    return [conversion.MIXED_PRECISION_ALWAYS, "float32", mixed_precision_type]


for _name in _SUMMING:
    tvm.ir.register_op_attr(_name, "FTVMMixedPrecisionConversionType", _sum_in_float32, _OVER_DEFAULT)


def load(path: str, precision: str, *, rewrite: bool = False) -> importing.Imported:
    """Import a model in a precision; with ``rewrite`` also apply ``fast_math``.

    Raises EngineFailure as ``importing.load``, and ``invalid_option`` or ``unsupported_dtype``.
    """
    faults.require_known("precision", precision, PRECISIONS)
    # Reports errors in the file itself first.
    importing.load(path)
    return _load(path, Path(path).stat().st_mtime_ns, precision, rewrite)


@lru_cache(maxsize=4)
def _load(path: str, modified_ns: int, precision: str, rewrite: bool) -> importing.Imported:  # noqa: ARG001 - part of the key
    if precision == "bf16":
        return _bf16(load(path, "f32", rewrite=rewrite))
    if precision == "int8":
        imported = _int8(importing.load(path))
        return dataclasses.replace(imported, module=fast_math.apply(imported.module)) if rewrite else imported
    if rewrite:
        imported = load(path, precision)
        module = fast_math.keep_apart(fast_math.apply(imported.module))
        return dataclasses.replace(imported, module=grouped.preferred(module))
    return importing.load(path) if precision == "f32" else _fp16(importing.load(path))


def of_bytes(path: str, target: Any) -> importing.Imported | None:
    """Import a quantized model with products of bytes, as for int8; None if the model or the target has none.

    The bytes are the model's own and their sums are exact, so results differ from those in float32 by rounding alone.
    """
    if "int8" not in of_target(target) or not _is_quantized(importing.load(path)):
        return None
    try:
        return load(path, "int8", rewrite=True)
    except EngineFailure as error:
        logging.getLogger(__name__).warning("products of a quantized model stay in float32: %s", error)
        return None


def of_target(target: Any) -> list[str]:
    """Return the precisions that a ``tvm.target.Target`` has instructions for, ``f32`` first."""
    return [each for each in PRECISIONS if each not in _NATIVE or _NATIVE[each](target)]


def require(params: Json, target: Any) -> None:
    """Raise EngineFailure ``unsupported_dtype`` if the request's target or tuner does not support its precision."""
    precision = str(params.get("precision"))
    if precision not in _INSTRUCTIONS:
        return
    if precision not in of_target(target):
        raise EngineFailure(
            "unsupported_dtype",
            f"{params['target']!r} lacks instructions for {_INSTRUCTIONS[precision]}",
            hint="Use precision f32, or a target that has them: 'llvm -mcpu=znver4', 'llvm -mcpu=sapphirerapids'.",
        )
    if (params.get("tuner") or "autotvm") != "autotvm":
        raise EngineFailure(
            "unsupported_dtype",
            f"the {params['tuner']} tuner has no schedules for {precision}",
            hint="Use the autotvm tuner, or precision f32.",
        )


@contextmanager
def blamed(precision: str | None) -> Iterator[None]:
    """Convert compile failures that float16 caused to EngineFailure ``unsupported_dtype``."""
    try:
        yield
    except EngineFailure as failure:
        if precision != "fp16" or failure.code != "compile_failed" or not _is_about_dtypes(failure):
            raise
        raise _unsupported(failure.message) from failure


def _is_about_dtypes(failure: EngineFailure) -> bool:
    return bool(_ABOUT_DTYPES.search(f"{failure.message} {failure.details.get('trace')}"))


def _unsupported(message: str) -> EngineFailure:
    return EngineFailure("unsupported_dtype", message, hint="Use precision f32.")


def _fp16(imported: importing.Imported) -> importing.Imported:
    """Convert with TVM's own pass, which leaves exponentials, divisions and long sums in float32."""
    corrections.use_threads(1)
    passes = tvm.transform.Sequential(
        [
            relay.transform.InferType(),
            relay.transform.SimplifyInference(),
            relay.transform.ToMixedPrecision("float16", _AS_IT_IS),
            # Two operators that read the same tensor would each convert it. Weights are converted here, once.
            relay.transform.EliminateCommonSubexpr(),
            relay.transform.FoldConstant(),
            relay.transform.InferType(),
        ]
    )
    context = tvm.transform.PassContext(opt_level=3, config={"relay.ToMixedPrecision.keep_orig_output_dtype": True})
    try:
        with context:
            return dataclasses.replace(imported, module=passes(imported.module))
    except Exception as error:
        # Type relations raise TVMError, ValueError or DiagnosticError.
        raise _unsupported(f"TVM cannot convert the model to fp16: {faults.text_of(error)}") from error


def _bf16(imported: importing.Imported) -> importing.Imported:
    """Convert large products to bfloat16; scales are folded into the weights first, which is impossible afterwards."""
    corrections.use_threads(1)
    transform = relay.transform
    fold = [transform.FoldConstant(), transform.FoldScaleAxis(), transform.FoldConstant()]
    before = tvm.transform.Sequential([transform.InferType(), transform.SimplifyInference(), *fold])
    after = tvm.transform.Sequential([transform.FoldConstant(), transform.InferType()])
    try:
        with tvm.transform.PassContext(opt_level=3):
            module = after(bf16_narrowing.narrow(before(imported.module)))
    except bf16_narrowing.ControlFlow as error:
        raise _unsupported(f"TVM cannot convert the model to bf16: {error}") from error
    return dataclasses.replace(imported, module=module)
