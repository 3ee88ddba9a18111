"""Convolutions by minimal filtering give what direct ones give, and rewritten networks have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import workload
from tests.support.tuner.engines.relax import networks
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

OPERATORS = """
import json, sys
import numpy as np
import tvm
from numpy.lib.stride_tricks import sliding_window_view
from tvm import s_tir, te, topi
from tuner.engines.relax import targets
from tuner.engines.relax.graph import filtering
from tuner.engines.relax.machines import Machine

TARGET = targets.resolve(sys.argv[1], int(sys.argv[2]))
MACHINE = Machine.of(TARGET)
RANDOM = np.random.default_rng(0)

def direct(image, kernel, padding, groups):
    top, left, bottom, right = padding
    padded = np.pad(image.astype("float64"), ((0, 0), (top, bottom), (left, right), (0, 0)))
    windows = np.split(sliding_window_view(padded, kernel.shape[:2], axis=(1, 2)), groups, axis=3)
    parts = zip(windows, np.split(kernel, groups, axis=3))
    return np.concatenate([np.einsum("nyxcab,abcf->nyxf", *each) for each in parts], axis=3)

def swish(values):
    return values / (1 + np.exp(-values))

def errors(size, filters, taps, padding, outputs, groups=1):
    sizes = (size, (*taps, size[3] // groups, filters))
    image, kernel = (RANDOM.standard_normal(each, dtype="float32") for each in sizes)
    linear = direct(image, kernel, padding, groups)
    wanted = swish(linear) + linear.shape[1]
    is_line = size[1] == taps[0] == 1
    turn = (lambda pair: pair[::-1]) if is_line else (lambda pair: pair)
    (height, width), (top, left), (rows, columns) = (
        turn(pair) for pair in (size[1:3], padding[:2], linear.shape[1:3])
    )
    shape = filtering.Shape(
        batch=size[0], height=height, width=width, channels=size[3], filters=filters, groups=groups,
        taps=turn(taps), top=top, left=left, rows=rows, columns=columns, is_line=is_line,
    )
    tilings = [each for each in filtering.tilings(shape, MACHINE) if each.outputs == outputs]
    made = []
    # The quickest by estimate, and some that are not.
    for tiling in (tilings[0], tilings[len(tilings) // 2], tilings[-1]):
        transformed = filtering.weights(kernel.swapaxes(0, 1) if is_line else kernel, shape, tiling)
        x, w = (te.placeholder(each.shape, "float32") for each in (image, transformed))
        y = filtering.convolution(x, w, shape, tiling)
        y = topi.add(topi.multiply(y, topi.sigmoid(y)), tvm.tirx.const(float(linear.shape[1]), "float32"))
        module = tvm.IRModule({"main": te.create_prim_func([x, w, y]).with_attr("global_symbol", "main")})
        sizes = filtering._Steps(s_tir.Schedule(module), MACHINE).sizes()
        ways = [filtering.apply(s_tir.Schedule(module), MACHINE)]
        ways += [filtering._Steps(s_tir.Schedule(module), MACHINE).apply(*each) for each in sizes[:1] + sizes[-1:]]
        for way in ways:
            result = tvm.runtime.tensor(np.full(wanted.shape, np.nan, "float32"))
            compiled = tvm.compile(way.mod, target=TARGET)["main"]
            compiled(tvm.runtime.tensor(image), tvm.runtime.tensor(transformed), result)
            made.append(float(np.abs(result.numpy() - wanted).max() / np.abs(wanted).max()))
    return made

print(json.dumps({f"{case}": errors(*case) for case in (
    ((1, 14, 14, 16), 32, (3, 3), (1, 1, 1, 1), 4),
    ((2, 7, 9, 8), 48, (3, 3), (1, 1, 1, 1), 2),
    ((2, 7, 9, 24), 24, (3, 3), (0, 1, 2, 0), 4),
    ((1, 13, 22, 20), 20, (3, 3), (0, 0, 0, 0), 4),
    ((1, 9, 11, 16), 16, (5, 5), (2, 2, 2, 2), 2),
    ((1, 1, 55, 16), 16, (1, 5), (0, 0, 0, 0), 4),
    ((3, 1, 55, 16), 16, (1, 3), (0, 2, 0, 0), 4),
    ((1, 9, 4, 16), 16, (3, 1), (1, 0, 1, 0), 2),
    ((1, 9, 40, 16), 16, (1, 3), (0, 1, 0, 1), 4),
    ((1, 14, 14, 24), 48, (3, 3), (1, 1, 1, 1), 4, 3),
    ((1, 27, 13, 16), 64, (5, 5), (2, 2, 2, 2), 2, 2),
    ((1, 8, 11, 16), 40, (2, 2), (1, 1, 1, 1), 5),
    ((2, 9, 7, 16), 16, (2, 2), (0, 1, 1, 0), 3),
    ((1, 1, 55, 16), 16, (1, 2), (0, 1, 0, 1), 5),
)}))
"""
FUNCTIONS = """
import json, sys
from tuner.engines.relax import importing
from tuner.engines.relax.graph import lowering
importing.install()
path, target = sys.argv[1:]
told = {}
for rewrite in (False, True):
    build = lowering.Lowering.of({"model": path, "target": target, "threads": 1, "rewrite": rewrite})
    names = [name.name_hint for name, _ in lowering.lower(importing.load(path), build).functions_items()]
    told[str(rewrite)] = sum("filtered" in name for name in names)
print(json.dumps(told))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_filtering_agrees_with_direct_convolutions(target: str, threads: int) -> None:
    """All paddings, lines, batches and numbers of channels; tiles that fit the image, and tiles that do not."""
    found = asking.told_inside("relax", OPERATORS, target, str(threads))
    assert max(max(errors) for errors in found.values()) < 5e-6, found


def test_rewritten_networks_filter_convolutions_and_search_their_tiles(
    relax: EngineSession, reference: EngineSession, target: str, place: dict[str, Any], tmp_path: Path
) -> None:
    """The operators behind a convolution are part of it, and records of other tiles give the same results."""
    model, specs = asking.prepare(reference, networks.filterable_convolutions(), tmp_path)
    inputs = asking.make_inputs(reference, specs, tmp_path)
    assert asking.told_inside("relax", FUNCTIONS, model, target) == {"False": 0, "True": 2}
    own = {**place, "model": str(model), "rewrite": True}
    extracted = relax.request("extract", {**own, "out_dir": str(tmp_path)}, timeout=120)["tasks"]
    filtered = [task for task in extracted if "filtered" in task["name"]]
    assert len(filtered) == 2
    lines: list[str] = []
    for task in filtered:
        answer, trials = asking.tune(relax, workload(own, task, tmp_path), tmp_path / "spool.jsonl", trials=64)
        assert (answer["exhausted"], [trial["default"] for trial in trials[:1]]) == (True, [True])
        lines += [trial["schedule"] for trial in trials[1:]]
    records = asking.write_lines(tmp_path / "records.jsonl", lines)
    for known in (None, records):
        bundle = tmp_path / f"bundle-{known is None}"
        answer = relax.request("compile", {**own, "records": known, "out_dir": str(bundle)}, timeout=120)
        assert len(answer["records"]) == (0 if known is None else 2)
        assert asking.agrees(relax, bundle, reference, model, inputs, tmp_path)


MACHINES = """
import json
from tuner.engines.relax import targets
from tuner.engines.relax.machines import Machine
names = ("-mcpu=x86-64", "-mcpu=haswell", "-mcpu=znver4", "-mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
machines = [Machine.of(targets.resolve(f"llvm {name}", 1)) for name in names]
print(json.dumps([[machine.lanes, *(machine.rows(vectors) for vectors in (1, 2, 4))] for machine in machines]))
"""


def test_tiles_fit_the_registers_of_the_cpu() -> None:
    """AVX2 and SSE have 16 registers, two of which hold operands of a row of one vector."""
    narrow, wide = [12, 6, 2], [24, 12, 6]
    assert asking.told_inside("relax", MACHINES) == [[4, *narrow], [8, *narrow], [16, *wide], [4, *wide]]
