from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.relax import networks
from tuner.host.session import EngineSession
from tunesmith import elf

pytestmark = pytest.mark.engine


NETWORKS = {
    "reduce_mean_18": models.reduce_mean_18,
    "grid_sample_16": lambda: networks.grid_sample(16),
    "grid_sample_20": lambda: networks.grid_sample(20),
    "attention": networks.attention,
    "matmul": networks.matmul,
    "large_dense": lambda: networks.dense(rows=840, inner=256, columns=768),
    "sliced_by_attributes": networks.sliced_by_attributes,
    "clipped_by_attributes": networks.clipped_by_attributes,
    "padded_by_attributes": networks.padded_by_attributes,
    "crossed_bounds": models.crossed_bounds,
    "lower_bounds": models.lower_bounds,
    "wide_depthwise": networks.wide_depthwise,
    "convolution": networks.convolution,
    "grouped_convolution": networks.grouped_convolution,
    "thin_convolution": networks.thin_convolution,
    "sums": lambda: networks.beside_a_convolution("Sum", ["c", "x", "c"]),
    # TVM stacks them.
    "means": lambda: networks.beside_a_convolution("Mean", ["c", "x"]),
    "line_of_a_batch": networks.line_of_a_batch,
    "transposed_convolution": networks.transposed_convolution,
    "wide_integers": networks.wide_integers,
}


def _compile_and_compare(
    relax: EngineSession, reference: EngineSession, network: bytes, target: str, folder: Path, **more: Any
) -> list[dict[str, Any]]:
    place = {"target": target, "threads": 1}
    return asking.build_and_compare(relax, place, reference, network, folder, **more)


def _kernels(folder: Path) -> list[dict[str, Any]]:
    kernels: list[dict[str, Any]] = json.loads((folder / "built" / "kernels.json").read_text())
    return kernels


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_agree_with_the_reference(
    relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path, name: str
) -> None:
    outputs = _compile_and_compare(relax, reference, NETWORKS[name](), target, tmp_path)
    assert all(output["passed"] for output in outputs)


@pytest.mark.parametrize(("columns", "dimensions"), [(192, 3), (96, 2)])
def test_large_weights_are_stored_in_the_order_of_use(
    relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path, columns: int, dimensions: int
) -> None:
    """In panels as wide as the tiles of an untuned build; what fits into the first cache stays as it is."""
    [output] = _compile_and_compare(relax, reference, networks.dense(inner=64, columns=columns), target, tmp_path)
    assert output["passed"]
    [kernel] = _kernels(tmp_path)
    [stored] = kernel["weights"]
    assert (len(stored), stored[-2]) == (dimensions, 64)


@pytest.mark.parametrize("network", [lambda: networks.attention(size=64, length=64), networks.wide_depthwise])
def test_threads_change_no_results(
    relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path, network: Callable[[], bytes]
) -> None:
    # Large enough for loops that are worth threads.
    [output] = _compile_and_compare(relax, reference, network(), target, tmp_path, threads=2)
    assert output["passed"]


def test_bounds_are_part_of_the_convolution_before_them(
    relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path
) -> None:
    [output] = _compile_and_compare(relax, reference, models.depthwise_network(), target, tmp_path)
    assert output["passed"]
    names = [each["name"] for each in _kernels(tmp_path)]
    assert ["conv2d" in name for name in names if "maximum" in name] == [True, True]


def test_operators_between_convolutions_are_part_of_these(
    relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path
) -> None:
    [output] = _compile_and_compare(relax, reference, networks.between_convolutions(), target, tmp_path)
    assert output["passed"]
    names = [each["name"] for each in _kernels(tmp_path)]
    assert sum("conv2d" in name for name in names) == 4
    # Only the two inputs and the output are transposed.
    assert sum("conv2d" not in name for name in names) == 3, names


def test_rewritten_activations_call_no_functions_of_libm(
    relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path
) -> None:
    called, functions = {}, {"expf", "erff", "powf", "logf", "sincosf"}
    for rewrite in (False, True):
        outputs = _compile_and_compare(relax, reference, networks.activations(), target, tmp_path, rewrite=rewrite)
        assert all(output["passed"] for output in outputs)
        imported = elf.read((tmp_path / "built" / "mod.so").read_bytes()).imports
        called[rewrite] = functions & {name.split("@")[0] for name in imported}
    assert called == {False: functions, True: set()}


def test_exponentials_logarithms_and_waves_are_those_of_libm() -> None:
    """Also of zero, negative, infinite and denormal numbers, and of angles of many turns."""
    errors, differing = asking.told_inside("relax", FUNCTIONS)
    assert max(errors.values()) < 2e-7, errors
    assert differing == []


FUNCTIONS = """
import json
import numpy as np
import tvm
from tvm import te
from tuner.engines.relax.graph import fast_math
dice = np.random.default_rng(0)
limits = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, 1e-38], "float32")
spread = {
    "log": [np.exp(dice.normal(0, 10, 9000)), 1 + dice.normal(0, 1e-3, 9000), dice.random(9000) * 1e-38],
    "sin": [dice.normal(0, size, 9000) for size in (1, 1e3, 1e6, 1e8)],
}
spread["cos"] = spread["sin"]
spread["exp"] = [dice.normal(0, size, 9000) for size in (1, 10)] + [np.linspace(-87.3, 88.3, 99999), [-110, -1e9, 1e9]]
errors, differing = {}, []
for name, numbers in spread.items():
    given = np.concatenate([*numbers, limits, [3.4e38]]).astype("float32")
    data = te.placeholder(given.shape, "float32")
    built = tvm.tirx.build(te.create_prim_func([data, getattr(fast_math, f"_fast_{name}")(data)]), target="llvm")
    out = tvm.runtime.tensor(np.zeros_like(given))
    built(tvm.runtime.tensor(given), out)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(given.astype("float64"))
    assert name in ("log", "exp") or abs(out.numpy()[-1]) <= 1, "an angle of too many turns"
    given, wanted, found = given[:-1], wanted[:-1], out.numpy()[:-1]
    finite = np.isfinite(wanted)
    wrong = found[~finite] != wanted[~finite]
    differing += given[~finite][wrong & ~(np.isnan(found) & np.isnan(wanted))[~finite]].tolist()
    least = 1e-37 if name == "exp" else 1
    errors[name] = float((abs(found - wanted) / np.maximum(least, abs(wanted)))[finite].max())
print(json.dumps([errors, differing]))
"""


@pytest.mark.parametrize(("columns", "rewrite"), [(48, False), (6, False), (37, False), (37, True)])
def test_rows_of_any_length_are_summed_and_normalized(
    relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path, columns: int, rewrite: bool
) -> None:
    """Rows of whole vectors, of parts of one, and of neither; of two axes, and with a result of another order.

    Rewriting pads the rows of softmax.
    """
    outputs = _compile_and_compare(
        relax, reference, networks.rows(columns), target, tmp_path, threads=2, rewrite=rewrite
    )
    assert [(output["output"], output["passed"]) for output in outputs] == [
        ("shares", True), ("turned", True), ("normal", True), ("mean", True), ("most", True), ("planes", True),
    ]  # fmt: skip


def test_means_of_several_axes_and_odd_rows_are_summed_in_vectors(
    relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path
) -> None:
    outputs = _compile_and_compare(relax, reference, networks.instances(), target, tmp_path, rewrite=True)
    assert [output["passed"] for output in outputs] == [True] * 6
    called = [kernel["name"] for kernel in _kernels(tmp_path)]
    # Those of several axes stand alone: fused with a normalization, they would be computed for each of its rows.
    assert sum(name.startswith(("mean", "variance", "sum", "max")) for name in called) == 6


RULES = """
import json, sys
from tvm import ir, tirx
from tuner.engines.relax import importing, schedules
from tuner.engines.relax.graph import lowering
target, *models = sys.argv[1:]
build = lowering.Lowering.of({"target": target, "threads": 1, "rewrite": True})
told = []
for model in models:
    found = {}
    with build.target:
        for variable, function in lowering.lower(importing.load(model), build).functions_items():
            if isinstance(function, tirx.PrimFunc):
                rule, schedule = schedules.fitting(ir.IRModule({"main": function}), build.target)
                found[variable.name_hint] = [rule, schedule.mod.script()]
    told.append(found)
print(json.dumps(told))
"""
"""Tells, for each model, the rule that schedules each function of an untuned build, and the schedule."""


@pytest.mark.parametrize("cpu", ["znver4", "haswell"])
def test_rows_are_summed_in_lanes_and_transpositions_run_in_tiles(
    reference: EngineSession, tmp_path: Path, cpu: str
) -> None:
    prepared = []
    for make in (networks.instances, networks.line_of_a_batch, networks.transposes):
        (tmp_path / make.__name__).mkdir()
        prepared.append(asking.prepare(reference, make(), tmp_path / make.__name__)[0])
    instances, line, transposes = asking.told_inside("relax", RULES, f"llvm -mcpu={cpu}", *prepared)
    rows = {name: found for name, found in instances.items() if "mean" in name or "variance" in name}
    assert {rule for rule, _ in rows.values()} == {"_by_rows"}, {name: rule for name, (rule, _) in rows.items()}
    assert all("T.vectorized" in text for _, text in rows.values())
    [[rule, _]] = [found for name, found in line.items() if "conv2d" in name]
    assert rule == "_tiled"
    tiled = [name for name, (_, text) in transposes.items() if "T.vectorized(T.int64(8))" in text]
    assert len(tiled) >= 2


@pytest.mark.parametrize("threads", [1, 2])
def test_transpositions_are_exact(
    relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path, threads: int
) -> None:
    outputs = _compile_and_compare(relax, reference, networks.transposes(), target, tmp_path, threads=threads)
    assert {output["output"]: output["max_abs"] for output in outputs} == dict.fromkeys(
        ("last", "channels", "batch", "none", "lines"), 0.0
    )


def test_masked_rows_of_softmax_are_as_before_padding() -> None:
    """A row of the lowest number, as masks make it, has equal shares; minus infinity has none."""
    largest, sums = asking.told_inside("relax", MASKED)
    assert largest < 1e-6
    assert sums == pytest.approx([1.0, 1.0, 1.0])


MASKED = """
import json
import numpy as np
import tvm
from tvm import te, topi
from tuner.engines.relax.graph import rows as functions
data = te.placeholder((3, 37), "float32")
rows = np.random.default_rng(0).normal(size=(3, 37)).astype("float32")
rows[1], rows[2, 5:] = np.finfo("float32").min, -np.inf
found = []
for result in (functions._softmax(data, -1), topi.nn.fast_softmax(data, -1)):
    built = tvm.tirx.build(te.create_prim_func([data, result]), target="llvm")
    out = tvm.runtime.tensor(np.zeros((3, 37), "float32"))
    built(tvm.runtime.tensor(rows), out)
    found.append(out.numpy())
print(json.dumps([float(abs(found[0] - found[1]).max()), found[0].sum(axis=1).tolist()]))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_concatenations_choose_between_no_parts(
    relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path, threads: int
) -> None:
    """Parts are computed in loops of their own or copied, and the results are exact."""
    outputs = _compile_and_compare(relax, reference, networks.concatenations(), target, tmp_path, threads=threads)
    assert {output["output"]: output["max_abs"] for output in outputs} == dict.fromkeys(
        ("last", "middle", "turned", "many", "stacked", "nested", "counts", "line"), 0.0
    )
    found = asking.told_inside("relax", JOINED, tmp_path / "prepared.onnx", target, threads)
    # Parts along the first axis would have to take turns.
    shared = {1: 0, 2: 1}[threads]
    assert found == {"chosen": shared, "divided": 5 - shared, "copied": 3}


JOINED = """
import collections, json, sys
import tvm
from tuner.engines.relax import importing, schedules
from tuner.engines.relax.graph import lowering
importing.install()
path, target, threads = sys.argv[1:]
build = lowering.Lowering.of({"model": path, "target": target, "threads": int(threads)})
module = schedules.apply(lowering.lower(importing.load(path), build), build.target)
scripts = [each.script() for name, each in module.functions_items() if "concatenate" in name.name_hint]
kinds = ["divided" if "_partition" in each else "chosen" if "if_then_else" in each else "copied" for each in scripts]
print(json.dumps({"chosen": 0} | collections.Counter(kinds)))
"""


PARALLEL = """
import json, re, sys
from tuner.engines.relax import importing, schedules
from tuner.engines.relax.graph import lowering
importing.install()
path, target = sys.argv[1:]
build = lowering.Lowering.of({"model": path, "target": target, "threads": 2})
module = schedules.apply(lowering.lower(importing.load(path), build), build.target)
loops = [re.findall("(for .*)[^:]*?sblock..pad_temp", each.script()) for _, each in module.functions_items()]
print(json.dumps(["parallel" in loop for found in loops for loop in found]))
"""


def test_threads_share_rows_not_elements(reference: EngineSession, target: str, tmp_path: Path) -> None:
    """Otherwise the innermost loop computes its indices by division, for each element."""
    model = asking.prepare(reference, networks.odd_columns(), tmp_path)[0]
    found = asking.told_inside("relax", PARALLEL, model, target)
    assert found
    assert not any(found)


def test_convolutions_may_keep_their_layout(
    relax: EngineSession, reference: EngineSession, prepared: Path, target: str, tmp_path: Path
) -> None:
    network, options = prepared.read_bytes(), {"layout": "NCHW"}
    [output] = _compile_and_compare(relax, reference, network, target, tmp_path, options=options)
    assert output["passed"]


def test_half_precision_keeps_outer_dtypes(
    relax: EngineSession, reference: EngineSession, prepared: Path, target: str, tmp_path: Path
) -> None:
    [output] = _compile_and_compare(relax, reference, prepared.read_bytes(), target, tmp_path, precision="fp16")
    assert output["dtype"] == "float32"
    # Half floats have 11 bits: an error that float32 would not have, and none that they would not.
    assert 1e-6 < output["max_rel"] < 1e-2


def test_sizes_that_depend_on_values_are_told_as_the_reason(
    relax: EngineSession, reference: EngineSession, tmp_path: Path
) -> None:
    model = asking.prepare(reference, models.counted_by_values(), tmp_path)[0]
    refused = asking.refusal(relax, "check", {"model": str(model)})
    assert (refused.engine_code, "NonZero (1×)" in str(refused.hint)) == ("import_failed", True)
    assert f"TVM cannot import {refused.details['operator']}" in refused.message
