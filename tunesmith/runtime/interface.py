"""The C interface in ``tunesmith.h``, for ctypes."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p

VERSIONS = (3, 2, 1)
"""From the newest: libraries of earlier releases have fewer."""
UNSUPPORTED_CPU = 2
NO_SUCH_SIZE = 5
ALL_ENTRIES = -1


class Tensor(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_int64)),
        ("rank", c_int32),
        ("bytes", c_uint64),
    )


class Entry(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("inputs", POINTER(Tensor)),
        ("outputs", POINTER(Tensor)),
        ("input_count", c_int32),
        ("output_count", c_int32),
        ("kernels", POINTER(c_char_p)),
        ("kernel_count", c_int32),
        ("arena_bytes", c_uint64),
    )


class Description(Structure):
    _fields_ = (
        ("model", c_char_p),
        ("toolchain", c_char_p),
        ("target", c_char_p),
        ("threads", c_int32),
        ("weight_bytes", c_uint64),
        ("entries", POINTER(Entry)),
        ("entry_count", c_int32),
    )


class Dimension(Structure):
    _fields_ = (("name", c_char_p), ("splits", c_int32), ("pads", c_int32))


class Sizes(Structure):
    _fields_ = (
        ("dimensions", POINTER(Dimension)),
        ("dimension_count", c_int32),
        ("values", POINTER(c_int64)),
        ("input_axes", POINTER(POINTER(c_int32))),
        ("output_axes", POINTER(POINTER(c_int32))),
        # Since version 3:
        ("open_axes", POINTER(POINTER(c_int32))),
    )


class Options(Structure):
    _fields_ = (("entry", c_int32), ("threads", c_int32), ("spin", c_int32), ("pin", c_int32))


_RUN = (c_void_p, c_void_p, c_int32, c_void_p, c_int32)
"""Session, and arrays of ``tunesmith_input`` and ``tunesmith_output``: their addresses and bytes as 64-bit integers."""
_SHAPES = POINTER(POINTER(c_int64))


class Api(Structure):
    _fields_ = (
        ("version", c_uint32),
        ("description", POINTER(Description)),
        ("create", CFUNCTYPE(c_int, POINTER(Options), POINTER(c_void_p))),
        ("run", CFUNCTYPE(c_int, *_RUN)),
        ("profile", CFUNCTYPE(c_int, *_RUN, POINTER(c_uint64), c_int32)),
        ("threads", CFUNCTYPE(c_int32, c_void_p)),
        ("error", CFUNCTYPE(c_char_p)),
        ("close", CFUNCTYPE(None, c_void_p)),
        # Since version 2:
        ("sizes", POINTER(Sizes)),
        ("shapes", CFUNCTYPE(c_int, c_void_p, _SHAPES, c_int32, _SHAPES, c_int32)),
        ("run_shapes", CFUNCTYPE(c_int, c_void_p, c_void_p, _SHAPES, c_int32, c_void_p, c_int32)),
        # Since version 3:
        ("run_open", CFUNCTYPE(c_int, *_RUN, _SHAPES)),
    )


def load(path: str) -> Api:
    """Load a library; it stays loaded until the process ends. Raises OSError, or ValueError for other libraries."""
    library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    try:
        get_api = library.tunesmith_get_api
    except AttributeError:
        raise ValueError("it is no library of a tuned model") from None
    get_api.argtypes = (c_uint32, POINTER(c_char_p))
    get_api.restype = POINTER(Api)
    error = c_char_p()
    found = next(filter(None, (get_api(version, ctypes.byref(error)) for version in VERSIONS)), None)
    if not found:
        raise ValueError((error.value or b"it has another version of the interface").decode())
    api: Api = found.contents
    return api
