"""Prefetches in kernels as built: which machine code has them, and that they change no result.

Also in tasks of several threads, whose sums stay in registers.
"""

from __future__ import annotations

import json

import pytest

from tests.support.tuner.engines import asking

pytestmark = pytest.mark.engine

BEFORE = """
import json, sys, tempfile
import numpy as np
import tvm
from tvm import te
from tuner.engines.runtime import compiling, prefetching
from tuner.engines.runtime.targets import native_cpu

native = native_cpu(tvm)

def tensors_of_a_product():
    a = te.placeholder((rows, inner), name="a")
    w = te.placeholder((columns // 32, inner, 32), name="w")
    k = te.reduce_axis((0, inner), "k")
    product = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * w[j // 32, k, j % 32], k), name="product")
    return [a, w, product]
"""

AFTER = """
told = []
for rows, inner, columns, threads in json.loads(sys.argv[1]):
    results, code = [], []
    generator = np.random.default_rng(0)
    operands = [generator.standard_normal(shape, np.float32) for shape in ((rows, inner), (columns // 32, inner, 32))]
    result = np.zeros((rows, columns), np.float32)
    for paid in ((), (native,)):
        prefetching._CPUS = paid
        module = build()
        tensors = [tensor(each) for each in (*operands, result)]
        module["product"](*tensors)
        results.append(tensors[-1].numpy())
        code.append(source(module).count("@llvm.prefetch"))
        borrowed = "TVMBackendAllocWorkspace" in source(module)
    assert np.allclose(results[0], operands[0] @ operands[1].transpose(1, 0, 2).reshape(inner, columns), atol=1e-2)
    told.append({"calls": code, "same": bool((results[0] == results[1]).all()), "borrowed": borrowed})
print(json.dumps(told))
"""

RELAX = """
from tvm import s_tir
from tuner.engines.relax import kernels

def build():
    schedule = s_tir.Schedule(te.create_prim_func(tensors_of_a_product()))
    block = schedule.get_sblock("product")
    stored = schedule.cache_write(block, 0, "local")
    i, j, k = schedule.get_loops(block)
    panel, vectors, lanes = schedule.split(j, [None, 2, 16])
    schedule.reorder(panel, k, i, vectors, lanes)
    schedule.vectorize(lanes)
    schedule.reverse_compute_at(stored, panel)
    if threads > 1:
        schedule.parallel(panel)
    target = tvm.target.Target({"kind": "llvm", "mcpu": native, "num-cores": threads})
    module = tvm.IRModule({"product": schedule.mod["main"].with_attr("global_symbol", "product")})
    return tvm.tirx.build(kernels.finish(module, target), target=target, pipeline=kernels.pipeline(target))

tensor, source = tvm.runtime.tensor, lambda module: module.inspect_source("ll")
"""

RELAY = """
from tuner.engines.relay import prefetching as own
from tuner.engines.relay.release import RELEASE

def build():
    a, w, product = tensors_of_a_product()
    schedule = te.create_schedule(product.op)
    sums = schedule.cache_write(product, "global")
    panel, inside = schedule[product].split(product.op.axis[1], factor=32)
    schedule[product].reorder(panel, product.op.axis[0], inside)
    schedule[sums].compute_at(schedule[product], panel)
    i, j = sums.op.axis
    vectors, lanes = schedule[sums].split(j, factor=16)
    schedule[sums].reorder(sums.op.reduce_axis[0], i, vectors, lanes)
    schedule[sums].vectorize(lanes)
    if threads > 1:
        schedule[product].parallel(panel)
    target = tvm.target.Target(f"llvm -mcpu={native}")
    make = lambda: tvm.build(schedule, [a, w, product], target=target, name="product")
    return compiling.build(RELEASE, make, assertions=False, **own.options(target))

tensor, source = tvm.nd.array, lambda module: module.get_source("ll")
"""
BUILDS = {"relax": RELAX, "relay": RELAY}
LARGE, SMALL, MANY = (8, 512, 512), (8, 64, 64), (1024, 512, 512)
"""Rows, inner dimension and columns: 1 MiB of weights, 16 KiB, and 1 MiB for many rows."""


@pytest.mark.parametrize("engine", BUILDS)
def test_products_of_few_rows_alone_ask_for_their_weights_and_all_compute_the_same(engine: str) -> None:
    cases = [(*LARGE, 1), (*LARGE, 2), (*SMALL, 1), (*MANY, 1)]
    found = asking.told_inside(engine, BEFORE + BUILDS[engine] + AFTER, json.dumps(cases))
    assert [(without, with_prefetches > 0) for without, with_prefetches in (each["calls"] for each in found)] == [
        (0, True), (0, True), (0, False), (0, False)
    ]  # fmt: skip
    assert all(each["same"] for each in found)
    # Sums of 1,024 rows do not fit the stack.
    assert [found[at]["borrowed"] for at in (0, 1, 3)] == [False, False, True]
