"""Rounding of denormal constants to zero.

Cores compute with them in microcode: an instruction takes more than a hundred cycles. Training leaves such numbers in
channels that decayed to nothing, and exponentials of large distances are some.
"""

from __future__ import annotations

import numpy as np
import onnx

from tuner.engines.runtime import weights

_LEAST = np.finfo(np.float32).tiny
"""The least positive number that is not denormal."""


def apply(model: onnx.ModelProto, lanes: int) -> int:  # noqa: ARG001 - every pass is given them
    """Round denormal numbers of float32 constants that have others too; return the number of changed constants."""
    count = 0
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        values = weights.array(tensor)
        is_denormal = (np.abs(values) < _LEAST) & (values != 0)
        # An epsilon, which keeps a logarithm or a quotient finite, is alone or among zeros.
        if is_denormal.any() and (np.abs(values) >= _LEAST).any():
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.where(is_denormal, np.float32(0), values), tensor.name))
            count += 1
    return count
