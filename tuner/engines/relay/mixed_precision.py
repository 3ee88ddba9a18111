"""Networks in float16 inside, with unchanged dtypes of inputs and outputs, by TVM's own conversion.

Builds in bf16 and int8 are the relax engine's. Here quantized models are computed in float32 or, where the model
multiplies integers itself, in 16 bits with sums in int32 (``corrections``).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relay
from tvm.relay.transform import mixed_precision as conversion
from tvm.target.codegen import llvm_cpu_has_features

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import corrections, fast_math, importing
from tuner.engines.relay.templates import grouped
from tuner.engines.runtime import faults
from tuner.engines.runtime.importing import by_file

_OVER_DEFAULT = 11
"""Level of a registration that replaces TVM's own, which has 10."""
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
_PRECISIONS, _OF_RELAX = ("f32", "fp16"), ("bf16", "int8")
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
    if precision in _OF_RELAX:
        raise EngineFailure(
            "unsupported_dtype",
            f"the tuners autotvm and ansor have no schedules for {precision}",
            hint="Use the tuner auto or metaschedule, or precision f32.",
        )
    faults.require_known("precision", precision, _PRECISIONS)
    return _load(path, precision, rewrite)


def _loaded(path: str, precision: str, rewrite: bool) -> importing.Imported:
    if rewrite:
        imported = load(path, precision)
        module = fast_math.keep_apart(fast_math.apply(imported.module))
        return dataclasses.replace(imported, module=grouped.preferred(module))
    return importing.load(path) if precision == "f32" else _fp16(importing.load(path))


_load = by_file(_loaded, kept=4)


def of_target(target: Any) -> list[str]:
    """Return the precisions that a ``tvm.target.Target`` has instructions for, ``f32`` first."""
    is_half = target.kind.name == "llvm" and bool(llvm_cpu_has_features("avx512fp16", target))
    return ["f32", *(["fp16"] if is_half else [])]


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
