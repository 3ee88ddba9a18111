"""One tensor: whether it is as large as it says, of a type that there is, and here."""

from __future__ import annotations

import math
from typing import Any

import onnx

from tuner.engines.reference.vetting.refusal import refuse, shown

_T = onnx.TensorProto
_LARGEST = 2**40
"""Elements, far more than a file can hold."""
_BITS = {
    **dict.fromkeys((_T.INT4, _T.UINT4, _T.FLOAT4E2M1), 4),
    **dict.fromkeys((_T.INT8, _T.UINT8, _T.BOOL), 8),
    **dict.fromkeys((_T.FLOAT8E4M3FN, _T.FLOAT8E4M3FNUZ, _T.FLOAT8E5M2, _T.FLOAT8E5M2FNUZ), 8),
    **dict.fromkeys((_T.INT16, _T.UINT16, _T.FLOAT16, _T.BFLOAT16), 16),
    **dict.fromkeys((_T.INT32, _T.UINT32, _T.FLOAT), 32),
    **dict.fromkeys((_T.INT64, _T.UINT64, _T.DOUBLE, _T.COMPLEX64), 64),
    _T.COMPLEX128: 128,
}
_FIELDS = {
    # Where values lie that are not raw, and how many entries each takes.
    _T.FLOAT: ("float_data", 1),
    _T.COMPLEX64: ("float_data", 2),
    _T.DOUBLE: ("double_data", 1),
    _T.COMPLEX128: ("double_data", 2),
    _T.INT64: ("int64_data", 1),
    _T.UINT32: ("uint64_data", 1),
    _T.UINT64: ("uint64_data", 1),
    _T.STRING: ("string_data", 1),
}
_ALL_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def check(tensor: Any) -> None:
    """Raises EngineFailure ``invalid_model``: ``external_data``, ``dtype``, ``shape``, ``tensor_size``."""
    if tensor.data_location == _T.EXTERNAL or tensor.external_data:
        raise refuse("external_data", "the model keeps weights in other files; save it as one file")
    if tensor.HasField("segment"):
        raise refuse("tensor_size", f"tensor {shown(tensor.name)} comes in segments, which no engine reads")
    if tensor.data_type != _T.STRING and tensor.data_type not in _BITS:
        raise refuse("dtype", f"tensor {shown(tensor.name)} has element type {tensor.data_type}, which ONNX has not")
    if any(size < 0 for size in tensor.dims) or math.prod(tensor.dims) > _LARGEST:
        raise refuse("shape", f"tensor {shown(tensor.name)} has the shape {list(tensor.dims)[:8]}")
    _check_size(tensor, math.prod(tensor.dims))


def _check_size(tensor: Any, count: int) -> None:
    where, entries = _FIELDS.get(tensor.data_type, ("int32_data", 1))
    given = {name: len(getattr(tensor, name)) for name in _ALL_FIELDS if len(getattr(tensor, name))}
    if tensor.HasField("raw_data") and (not given or tensor.raw_data):
        expected = -(-count * _BITS.get(tensor.data_type, 0) // 8)
        fits = tensor.data_type != _T.STRING and not given and len(tensor.raw_data) == expected
        held = f"{len(tensor.raw_data)} bytes"
    else:
        # Two values of four bits share an entry.
        expected = -(-count // 2) if _BITS.get(tensor.data_type) == 4 else count * entries
        fits = given in ({where: expected}, {}) and given.get(where, 0) == expected
        held = ", ".join(f"{size} entries of {name}" for name, size in given.items()) or "no values"
    if not fits:
        kind = _T.DataType.Name(tensor.data_type)
        said = f"tensor {shown(tensor.name)} says {count} values of {kind} and holds {held}"
        raise refuse("tensor_size", said)
