"""The driver's sorting against that of each TVM: ties, NaNs, negative zeros, all types, lines along any axis."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.tuner.engines import asking
from tuner.engines.runtime.library import linking

pytestmark = pytest.mark.engine

POOL = """
#include <stdlib.h>
#include <string.h>
#include "pool.h"
enum { FENCE = 256 };
static char *end;
void *pool_borrow(uint64_t bytes) {
  char *memory = aligned_alloc(64, (bytes + 2 * FENCE + 63) / 64 * 64);
  memset(memory, 7, bytes + 2 * FENCE);
  end = memory + FENCE + bytes;
  return memory + FENCE;
}
void pool_return(void *memory) {
  char *start = (char *)memory - FENCE;
  for (int i = 0; i < FENCE; ++i)
    if (start[i] != 7 || end[i] != 7) abort();
  free(start);
}
"""
COMPARE = """
import ctypes, sys
import numpy as np
import tvm

class Tensor(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64))

class Argument(ctypes.Structure):
    _fields_ = (("tensor", ctypes.POINTER(Tensor)), ("text", ctypes.c_char_p), ("number", ctypes.c_int64))

library = ctypes.CDLL(sys.argv[1])
to_tvm = tvm.nd.array if hasattr(tvm, "nd") else tvm.runtime.tensor
codes = {"i": 0, "u": 1, "f": 2}
rng = np.random.default_rng(5)
odd = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 6e-8, 65504.0]

def argument(value):
    if isinstance(value, np.ndarray):
        shape = (ctypes.c_int64 * value.ndim)(*value.shape)
        kind = value.dtype
        tensor = Tensor(value.ctypes.data, 1, 0, value.ndim, codes[kind.kind], 8 * kind.itemsize, 1,
                        ctypes.cast(shape, ctypes.c_void_p), None, 0)
        made = Argument(ctypes.pointer(tensor), None, 0)
        made.kept = shape, tensor
        return made
    return Argument(None, value.encode(), 0) if isinstance(value, str) else Argument(None, None, value)

def data(kind, shape):
    kind = np.dtype(kind)
    if kind.kind != "f":
        return rng.integers(0, 100, shape).astype(kind) - (50 if kind.kind == "i" else 0)
    made = rng.integers(-9, 9, shape) * 0.25
    made[rng.random(shape) < rng.choice([0, 0.05, 0.9])] = np.nan
    mixed = rng.random(shape) < 0.2
    made[mixed] = rng.choice(odd, mixed.sum())
    return made.astype(kind)

def check(name, outputs, *arguments):
    expected = [np.full_like(each, 3) for each in outputs]
    given = [to_tvm(each) if isinstance(each, np.ndarray) else each for each in arguments]
    places = [place for place, each in enumerate(arguments) if any(each is output for output in outputs)]
    tvm.get_global_func("tvm.contrib.sort." + name)(*given)
    for place, output in zip(places, expected):
        output[...] = given[place].numpy()
    mine = [argument(each) for each in arguments]
    run = getattr(library, "sorting_" + name)
    run.restype = ctypes.c_char_p
    problem = run((Argument * len(mine))(*mine), len(mine))
    assert problem is None, problem
    for actual, wanted in zip(outputs, expected):
        assert actual.tobytes() == wanted.tobytes(), (name, actual.dtype, arguments, wanted)

shapes = [(1,), (7,), (8,), (29,), (300,), (3, 61), (2, 33, 3), (0,), (2, 0), (4, 1)]
floats, indices = ["float16", "float32", "float64"], ["int32", "int64", "float32", "float64"]
cases = 0
for turn in range(6):
    for shape in shapes:
        for kind in (*floats, "int32", "int64"):
            axis, up = int(rng.integers(-len(shape), len(shape))), bool(rng.integers(2))
            x = data(kind, shape)
            check("sort", [y := np.zeros_like(x)], x, y, axis, up)
            check("argsort", [y := np.zeros(shape, rng.choice(indices))], x, y, axis, up)
            cases += 2
        for kind in (*floats, "int8", "uint8", "int32", "int64"):
            axis, up = int(rng.integers(-len(shape), len(shape))), bool(rng.integers(2))
            x = data(kind, shape)
            k = int(rng.choice([-1, 1, 2, 5, 40, x.shape[axis]]))
            kept = list(shape)
            kept[axis] = x.shape[axis] if k < 1 else k
            values, places = np.full(kept, 3, kind), np.full(kept, 3, rng.choice(indices))
            for form, outputs in (("both", [values, places]), ("values", [values]), ("indices", [places])):
                outputs = [each.copy() for each in outputs]
                check("topk", outputs, x, *outputs, k, axis, form, up)
                cases += 1
        axis, up = int(rng.integers(-len(shape), len(shape))), bool(rng.integers(2))
        x = data("float32", shape)
        rest = [size for place, size in enumerate(shape) if place != axis % len(shape)]
        counts = rng.integers(0, x.shape[axis] + 1, rest or [1]).astype("int32")
        check("argsort_nms", [y := np.zeros(shape, "int32")], x, counts, y, axis, up)
        cases += 1
print(cases)
"""


@pytest.mark.parametrize("engine", ["relay", "relax"])
def test_sorting_is_that_of_tvm_bit_for_bit(engine: str, tmp_path: Path) -> None:
    (tmp_path / "pool.c").write_text(POOL)
    sources = [linking.DRIVER / "sorting.c", tmp_path / "pool.c"]
    checked = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    options = ["-std=c11", "-O2", "-fPIC", "-shared", *checked, "-I", linking.DRIVER, "-o", tmp_path / "sorting.so"]
    subprocess.run(["gcc", *options, *sources], check=True, timeout=60)
    told = asking.inside(engine, COMPARE, tmp_path / "sorting.so", folder=tmp_path)
    assert int(told) > 1000
