"""Prefetches in kernels as built: which machine code has them, and that they change no result.

Also in tasks of several threads, whose sums stay in registers.
"""

from __future__ import annotations

import json

import pytest

from tests.support.tuner.engines import asking

pytestmark = pytest.mark.engine

BEFORE = """
import json, re, sys
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
for rows, inner, columns, threads, tile in json.loads(sys.argv[1]):
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
        code.append(sorted(set(re.findall(r"call void @llvm.prefetch.*i32 0, i32 (\\d), i32 1", source(module)))))
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
    band, i = schedule.split(i, [None, tile])
    schedule.reorder(panel, band, k, i, vectors, lanes)
    schedule.vectorize(lanes)
    place = schedule.fuse(panel, band)
    schedule.reverse_compute_at(stored, place)
    if threads > 1:
        schedule.parallel(place)
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
    band, row = schedule[product].split(product.op.axis[0], factor=tile)
    schedule[product].reorder(panel, band, row, inside)
    place = schedule[product].fuse(panel, band)
    schedule[sums].compute_at(schedule[product], place)
    i, j = sums.op.axis
    vectors, lanes = schedule[sums].split(j, factor=16)
    schedule[sums].reorder(sums.op.reduce_axis[0], i, vectors, lanes)
    schedule[sums].vectorize(lanes)
    if threads > 1:
        schedule[product].parallel(place)
    target = tvm.target.Target(f"llvm -mcpu={native}")
    make = lambda: tvm.build(schedule, [a, w, product], target=target, name="product")
    return compiling.build(RELEASE, make, assertions=False, **own.options(target))

tensor, source = tvm.nd.array, lambda module: module.get_source("ll")
"""
BUILDS = {"relax": RELAX, "relay": RELAY}
LARGE, SMALL, MANY = (8, 512, 512), (8, 64, 64), (2048, 512, 512)
"""Rows, inner dimension and columns: 1 MiB of weights, 16 KiB, and 1 MiB for many rows."""
PANELS = (40, 512, 512)
FIRST_CACHE, SECOND_CACHE = ["3"], ["2"]


@pytest.mark.parametrize("engine", BUILDS)
def test_products_of_few_rows_alone_ask_for_their_weights_and_all_compute_the_same(engine: str) -> None:
    cases = [(*LARGE, 1, 8), (*LARGE, 2, 8), (*PANELS, 1, 8), (*PANELS, 2, 8), (*SMALL, 1, 8), (*MANY, 1, 2048)]
    found = asking.told_inside(engine, BEFORE + BUILDS[engine] + AFTER, json.dumps(cases))
    asked = [FIRST_CACHE, FIRST_CACHE, SECOND_CACHE, SECOND_CACHE, [], []]
    assert [each["calls"] for each in found] == [[[], each] for each in asked]
    assert all(each["same"] for each in found)
    # Sums of 2,048 rows do not fit the stack.
    assert [found[at]["borrowed"] for at in (0, 1, 2, 3, 5)] == [False, False, False, False, True]


NEXT = """
import dataclasses
from tuner.engines.relax import prefetching as own
from tuner.engines.relax.release import RELEASE
from tvm import s_tir

walks, asked = own._PREFETCHING._walks, []

def call(load, index, *arguments):
    asked.append(index)
    return walks.call(load, index, *arguments)

own._PREFETCHING = prefetching.Prefetching(RELEASE, dataclasses.replace(walks, call=call))
rows, inner, columns = json.loads(sys.argv[1])
schedule = s_tir.Schedule(te.create_prim_func(tensors_of_a_product()))
block = schedule.get_sblock("product")
i, j, k = schedule.get_loops(block)
panel, vectors, lanes = schedule.split(j, [None, 2, 16])
band, i = schedule.split(i, [None, 8])
schedule.reorder(panel, band, k, i, vectors, lanes)
schedule.vectorize(lanes)
if sys.argv[2] == "fused":
    schedule.fuse(panel, band)
schedule.decompose_reduction(block, k)
target = tvm.target.Target({"kind": "llvm", "mcpu": prefetching._CPUS[0]})
own.apply(tvm.IRModule({"main": schedule.mod["main"].with_attr("global_symbol", "main")}), target)

lines, [index] = set(), asked
variables = {each.name: each for each in tvm.tirx.analysis.undefined_vars(index)}
for band in range(rows // 8):
    for step in range(inner):
        names = {"k": step, "i_0": band, "j_0": 0, "j_0_i_0_fused": band}
        place = {variable: tvm.tirx.const(names[name], "int32") for name, variable in variables.items()}
        lines.add(walks.value(walks.substitute(index, place)) * 4 // 64)
print(json.dumps([min(lines), max(lines), len(lines)]))
"""


@pytest.mark.parametrize("form", ["fused", "apart"])
def test_passes_over_a_panel_ask_for_every_line_of_the_next_one(form: str) -> None:
    rows, inner, columns = 40, 512, 64
    lines = inner * 32 * 4 // 64
    found = asking.told_inside("relax", BEFORE + NEXT, json.dumps([rows, inner, columns]), form)
    begin, end, count = found
    assert begin == lines
    assert 2 * lines - 1 <= end <= 2 * lines + lines // 8
    assert count == end - begin + 1
