"""Tiles of products, and the padding of columns that no vector divides: where it is done, and that results agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.relax import networks
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

COLUMNS = """
import json, re, sys
from tuner.engines.relax import importing
from tuner.engines.relax.graph import lowering
importing.install()
path, target = sys.argv[1:]
told = {}
for rewrite in (False, True):
    build = lowering.Lowering.of({"model": path, "target": target, "threads": 1, "rewrite": rewrite})
    found = []
    for name, function in lowering.lower(importing.load(path), build).functions_items():
        kind = re.search("filtered_conv2d|conv2d|matmul", name.name_hint)
        if kind:
            sizes = [int(size) for size in function.params[1].shape]
            found.append([kind[0], sizes[-1] * (sizes[0] if "filtered" in kind[0] else 1)])
    told[str(rewrite)] = sorted(found)
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("cpu", "padded"),
    [
        ("znver5", {"conv2d": [48, 64, 384, 432], "filtered_conv2d": [64], "matmul": [80, 80, 96]}),
        ("haswell", {"conv2d": [40, 64, 360, 368], "filtered_conv2d": [56], "matmul": [80, 80, 96]}),
    ],
)
def test_columns_are_padded_where_that_saves_time(
    reference: EngineSession, tmp_path: Path, cpu: str, padded: dict[str, list[int]]
) -> None:
    model, _ = asking.prepare(reference, networks.odd_columns(), tmp_path)
    found = asking.told_inside("relax", COLUMNS, model, f"llvm -mcpu={cpu}")
    assert found == {
        "False": [
            ["conv2d", 38],
            ["conv2d", 50],
            ["conv2d", 50],
            ["conv2d", 360],
            ["conv2d", 360],
            ["matmul", 77],
            ["matmul", 77],
            ["matmul", 90],
        ],
        "True": [[kind, columns] for kind, every in padded.items() for columns in every],
    }


@pytest.mark.parametrize("threads", [1, 2])
def test_padded_columns_change_no_result(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, threads: int
) -> None:
    own = {**place, "threads": threads}
    asking.assert_every_build_agrees(relax, reference, own, networks.odd_columns(), tmp_path)


TILES = """
import json, re, sys
from tuner.engines.relax import importing, schedules
from tuner.engines.relax.graph import lowering
from tuner.engines.relax.machines import Machine
importing.install()
build = lowering.Lowering.of({"model": sys.argv[1], "target": "llvm -mcpu=znver5", "threads": 1})
module = schedules.apply(lowering.lower(importing.load(sys.argv[1]), build), build.target)
[script] = [each.script() for name, each in module.functions_items() if "conv2d" in name.name_hint]
machine = Machine.of(build.target)
tiles = [machine.tile(*sizes) for sizes in ((14, 80), (14, 48), (7, 1), (37, 64))]
tiles += [machine.tile(*sizes, allow_remainder=True) for sizes in ((37, 64), (62, 48), (14, 48), (7, 1))]
print(json.dumps({
    "products": [[each.rows, each.vectors, each.width] for each in tiles],
    "depthwise": sorted({int(size) for size in re.findall(r"T.unroll[(]T.int64[(]([0-9]+)", script)}),
    "padded": [int(size) for size in re.findall(r"[0-9]+", re.search(r"ax0, .*T.grid(.*):", script)[1])[1::2]],
}))
"""


def test_tiles_are_the_quickest_by_estimate(reference: EngineSession, tmp_path: Path) -> None:
    """Whole vectors come before few loads; a depthwise tile is one vector wide and as many rows as registers hold.

    Its input is padded in bands of lines, of one image each. Tiles have a remainder of rows only where none that
    divides them is about as quick.
    """
    model, _ = asking.prepare(reference, networks.wide_depthwise(), tmp_path)
    found = asking.told_inside("relax", TILES, model)
    dividing, uneven = [[14, 1, 16], [7, 3, 16], [7, 1, 1], [1, 4, 16]], [[10, 2, 16], [8, 3, 16]]
    products = [*dividing, *uneven, [7, 3, 16], [7, 1, 1]]
    assert found == {"products": products, "depthwise": [1, 14], "padded": [1, 29, 57, 48]}


ORDER = """
import json, re, sys
from tuner.engines.relax import importing, prefetching, schedules
from tuner.engines.relax.graph import lowering
importing.install()
told = []
for threads in (1, 2):
    build = lowering.Lowering.of({"model": sys.argv[1], "target": "llvm -mcpu=sapphirerapids", "threads": threads})
    scheduled = schedules.apply(lowering.lower(importing.load(sys.argv[1]), build), build.target)
    finished = lowering.finish(scheduled, build.target)
    [product] = [each for name, each in finished.functions_items() if re.search("conv2d|matmul", name.name_hint)]
    asked = prefetching.apply(finished, build.target).script()
    told.append([
        [int(size) for size in product.params[1].ty.shape],
        sorted(set(re.findall(r"llvm.prefetch.*, 0, (.), 1[)]", asked))),
    ])
print(json.dumps(told))
"""


def test_panels_are_computed_one_after_the_other_where_each_thread_has_several(
    reference: EngineSession, tmp_path: Path
) -> None:
    """Then all tiles of a panel ask for the next one, into the second cache; otherwise for what a tile reads soon."""
    model, _ = asking.prepare(reference, networks.dense(rows=56, inner=256, columns=256), tmp_path)
    assert asking.told_inside("relax", ORDER, model) == [[[4, 256, 64], ["2"]], [[4, 256, 64], ["3"]]]


def test_tiles_of_wide_groups_have_several_vectors(reference: EngineSession, tmp_path: Path) -> None:
    model, _ = asking.prepare(reference, networks.wide_groups(), tmp_path)
    [[weights, _], _] = asking.told_inside("relax", ORDER, model)
    assert weights == [4, 1, 1, 96, 48]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_remainder_of_rows_is_computed(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, threads: int
) -> None:
    own = {**place, "threads": threads}
    asking.assert_every_build_agrees(relax, reference, own, networks.prime_rows(), tmp_path)


TENSORS = """
import json, sys
import onnx
from onnx import TensorProto, helper
from tuner.engines.relax import importing
from tuner.engines.relax.graph import lowering
importing.install()
told = []
shapes = [
    ([64, 7], [7, 37]),
    ([2, 3, 64, 7], [2, 3, 7, 37]),
    ([1, 64, 7], [4, 7, 37]),
    ([4, 64, 7], [1, 7, 37]),
    ([64, "n"], ["n", 37]),
    ([2, 0, 7], [2, 7, 37]),
    ([64, 7], [7, 48]),
]
for left, right in shapes:
    values = [helper.make_tensor_value_info(*each) for each in (("a", 1, left), ("b", 1, right), ("y", 1, None))]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"])], "g", values[:2], values[2:])
    path = f"{sys.argv[1]}/{len(told)}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    module = importing.from_onnx(onnx.load(path))
    build = lowering.Lowering.of({"model": path, "target": "llvm -mcpu=znver5", "threads": 1, "rewrite": True})
    imported = importing.Imported(module=module, inputs=(), outputs=(), operators={})
    told.append(any("pad" in name.name_hint for name, _ in lowering.lower(imported, build).functions_items()))
print(json.dumps(told))
"""


def test_products_of_two_tensors_are_padded_if_the_right_one_is_whole(tmp_path: Path) -> None:
    """Of two, three and four dimensions; not if a batch is broadcast, a size is open, or nothing is gained."""
    told = asking.told_inside("relax", TENSORS, tmp_path)
    assert told == [True, True, True, False, False, False, False]
