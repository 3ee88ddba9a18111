"""Rearranged channels: which operators are computed as one, between which others, and that results agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.relax import networks
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

LOWERED = """
import json, re, sys
from tuner.engines.relax import importing
from tuner.engines.relax.graph import lowering
importing.install()
path, target = sys.argv[1:]
told = {}
for rewrite in (False, True):
    build = lowering.Lowering.of({"model": path, "target": target, "threads": 1, "rewrite": rewrite})
    functions = lowering.lower(importing.load(path), build).functions_items()
    names = [name.name_hint for name, _ in functions]
    told[str(rewrite)] = {
        "tables": sorted(
            int(table.shape[0])
            for name, function in functions
            if "rearranged" in name.name_hint
            for table in function.params
            if str(table.dtype) == "int32"
        ),
        "vectors": sorted(
            int(function.params[-1].shape[-1]) for name, function in functions if "shuffled" in name.name_hint
        ),
        "transposed": sum("transpose" in name for name in names),
        "fused": sum(bool(re.search("conv2d_?[0-9]*_add_?[0-9]*_relu", name)) for name in names),
    }
print(json.dumps(told))
"""


def test_channels_are_rearranged_in_the_layout_of_convolutions(reference: EngineSession, tmp_path: Path) -> None:
    """Told are the channels that tensor functions rearrange, and how many functions transpose, or compute a convolution
    up to its activation.

    The image, a result and the pixels are transposed. A rewritten build leaves out padding columns in the same step.
    """
    model, _ = asking.prepare(reference, networks.shuffled_channels(), tmp_path)
    assert asking.told_inside("relax", LOWERED, model, "llvm -mcpu=znver5") == {
        "False": {"tables": [12], "vectors": [64, 80, 80], "transposed": 3, "fused": 2},
        "True": {"tables": [12], "vectors": [64, 80, 80], "transposed": 3, "fused": 2},
    }


@pytest.mark.parametrize(("threads", "rows"), [(1, 10), (2, 10), (2, 30)], ids=["alone", "few", "many"])
def test_rearranging_channels_changes_no_result(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, threads: int, rows: int
) -> None:
    """Many rows are divided among the threads."""
    own = {**place, "threads": threads}
    asking.assert_every_build_agrees(relax, reference, own, networks.shuffled_channels(rows=rows), tmp_path)


def test_negative_widths_and_axes_keep_the_layout_of_convolutions(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    asking.assert_every_build_agrees(relax, reference, place, networks.shifted(), tmp_path)
    # Only the input is transposed.
    told = asking.told_inside("relax", LOWERED, tmp_path / "prepared.onnx", "llvm -mcpu=znver5")
    assert told["True"]["transposed"] == 1


def test_padding_reads_nothing_around_an_image(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    """Builds run between guard pages."""
    asking.assert_every_build_agrees(relax, reference, place, networks.padded_image(), tmp_path)
