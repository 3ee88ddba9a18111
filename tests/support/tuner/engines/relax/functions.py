"""Writes IRModule JSON for tests, in an environment that has TVM: ``python functions.py FOLDER``.

One file for each function in ``GOOD`` and ``BAD``, named after it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
from tvm import te, tirx, topi
from tvm.script import tirx as T  # noqa: N812 - as TVM's own scripts have it

Shape = tuple[int, ...]


def _input(name: str, shape: Shape, dtype: str = "float32") -> Any:
    return te.placeholder(shape, name=name, dtype=dtype)


def _function(*tensors: Any) -> Any:
    return te.create_prim_func(list(tensors))


def matmul() -> Any:
    a, b = _input("A", (32, 48)), _input("B", (48, 32))
    k = te.reduce_axis((0, 48), name="k")
    return _function(a, b, te.compute((32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C"))


def padded_convolution() -> Any:
    x, w = _input("x", (1, 4, 9, 9)), _input("w", (4, 4, 3, 3))
    return _function(x, w, topi.nn.relu(topi.nn.conv2d(x, w, 2, 1, 1)))


def transposed_convolution() -> Any:
    x, w = _input("x", (1, 4, 6, 6)), _input("w", (4, 4, 3, 3))
    return _function(x, w, topi.nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1, 1, 1), "float32", (0, 0)))


def softmax() -> Any:
    x = _input("x", (4, 16))
    return _function(x, topi.nn.softmax(x))


def two_outputs() -> Any:
    x = _input("x", (4, 16))
    return _function(x, topi.exp(x), topi.cast(x, "float16"))


def gather() -> Any:
    x, at = _input("x", (16,)), _input("at", (4,), "int64")
    return _function(x, at, topi.take(x, at, mode="fast"))


def beyond_the_end() -> Any:
    x = _input("x", (16,))
    return _function(x, te.compute((16,), lambda i: x[i + 1], name="y"))


def through_a_narrow_cast() -> Any:
    x = _input("x", (256,))
    return _function(x, te.compute((256,), lambda i: x[i.astype("int8").astype("int32")], name="y"))


def guarded_by_memory() -> Any:
    """A guard that another store can turn over."""
    x, at = _input("x", (16,)), _input("at", (16,), "int32")
    return _function(x, at, te.compute((16,), lambda i: tirx.if_then_else(at[i] < 1, x[i + 8], x[i]), name="y"))


def guarded_by_select() -> Any:
    """Both sides of a select are computed."""
    x = _input("x", (16,))
    return _function(x, te.compute((16,), lambda i: tirx.Select(i < 8, x[i + 8], x[i + 1]), name="y"))


def host_call() -> Any:
    x = _input("x", (16,))
    return _function(x, te.compute((16,), lambda i: tirx.call_pure_extern("float32", "system", x[i]), name="y"))


def packed_call() -> Any:
    x = _input("x", (16,))
    return _function(
        x, te.compute((16,), lambda i: x[i] + tirx.call_packed("os.system", 1).astype("float32"), name="y")
    )


def intrinsic_call() -> Any:
    x = _input("x", (16,))
    return _function(x, te.compute((16,), lambda i: tirx.call_llvm_pure_intrin("float32", "llvm.fabs", x[i]), name="y"))


def dynamic_shape() -> Any:
    n = tirx.Var("n", "int64")
    x = te.placeholder((n,), name="x")
    return _function(x, topi.exp(x))


def imported_code() -> Any:
    return matmul().with_attr("pragma_import_c", "int main() {}")


def huge() -> Any:
    x = _input("x", (1 << 15, 1 << 15))
    return _function(x, topi.exp(x))


@T.prim_func(s_tir=True)
def threaded(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")) -> None:
    for i in T.parallel(16):
        with T.sblock("y"):
            v = T.axis.spatial(16, i)
            y[v] = x[v]


@T.prim_func(s_tir=True)
def rule_by_name(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")) -> None:
    for i in range(16):
        with T.sblock("y"):
            T.sblock_attr({"schedule_rule": "os.system"})
            v = T.axis.spatial(16, i)
            y[v] = x[v]


@T.prim_func(s_tir=True)
def pragma(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")) -> None:
    for i in T.serial(16, annotations={"pragma_import_llvm": "code"}):
        with T.sblock("y"):
            v = T.axis.spatial(16, i)
            y[v] = x[v]


@T.prim_func(s_tir=True)
def other_regions(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")) -> None:
    for i in range(16):
        with T.sblock("y"):
            v = T.axis.spatial(16, i)
            T.reads(x[v])
            T.writes(y[v - 1000 : v + 1000])
            y[v] = x[v]


@T.prim_func(s_tir=True)
def beyond_by_overflow(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")) -> None:
    # With ideal integers the index is v; with 32 bits it is anything.
    for i in range(16):
        with T.sblock("y"):
            v = T.axis.spatial(16, i)
            y[v] = x[v * 65536 * 65536 // 65536 // 65536]


@T.prim_func(s_tir=True)
def scaled(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")) -> None:
    for i in range(16):
        with T.sblock("y"):
            v = T.axis.spatial(16, i)
            y[v] = x[v] * T.float32(2)


@T.prim_func(s_tir=True)
def written_first(y: T.Buffer((16,), "float32"), x: T.Buffer((16,), "float32")) -> None:
    for i in range(16):
        with T.sblock("y"):
            v = T.axis.spatial(16, i)
            y[v] = x[v]


@T.prim_func(s_tir=True)
def reads_before_writing(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")) -> None:
    for i in range(16):
        with T.sblock("y"):
            v = T.axis.spatial(16, i)
            y[v] = y[v] + x[v]


GOOD: tuple[Callable[[], Any], ...] = (matmul, padded_convolution, transposed_convolution, softmax, two_outputs)
BAD: tuple[Callable[[], Any], ...] = (
    gather, beyond_the_end, through_a_narrow_cast, guarded_by_memory, guarded_by_select,
    host_call, packed_call, intrinsic_call, dynamic_shape, imported_code, huge,
)  # fmt: skip
WRITTEN = {
    "threaded": threaded, "rule_by_name": rule_by_name, "pragma": pragma, "other_regions": other_regions,
    "beyond_by_overflow": beyond_by_overflow, "scaled": scaled, "written_first": written_first,
    "reads_before_writing": reads_before_writing,
}  # fmt: skip


def main(folder: Path) -> None:
    modules = {make.__name__: {make.__name__: make()} for make in (*GOOD, *BAD)}
    modules |= {name: {name: function} for name, function in WRITTEN.items()}
    modules["two_functions"] = {"first": matmul(), "second": softmax()}
    for name, functions in modules.items():
        (folder / f"{name}.json").write_text(tvm.ir.save_json(tvm.IRModule(functions)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
