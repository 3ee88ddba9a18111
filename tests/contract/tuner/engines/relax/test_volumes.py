"""Planes beside those around them: which operators are computed as one, in which layout, and that results agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.relax import networks
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

LOWERED = """
import json, sys
from tuner.engines.relax import importing
from tuner.engines.relax.graph import lowering
importing.install()
path, target = sys.argv[1:]
build = lowering.Lowering.of({"model": path, "target": target, "threads": 1, "rewrite": True})
names = {name.name_hint: function for name, function in lowering.lower(importing.load(path), build).functions_items()}
print(json.dumps({
    "joined": sorted(
        [int(size) for size in function.params[-1].shape] for name, function in names.items() if "neighbours" in name
    ),
    "moved": sorted(name for name in names if "neighbours" not in name and "conv2d" not in name and name != "main"),
}))
"""


def test_planes_are_joined_in_the_layout_of_convolutions(reference: EngineSession, tmp_path: Path) -> None:
    """Beside the planes of each convolution, told are functions that move numbers.

    These are for the two inputs and the three results, and one that makes pixels of channels, which it joins with what
    is in that layout already.
    """
    model, _ = asking.prepare(reference, networks.planes(), tmp_path)
    told = asking.told_inside("relax", LOWERED, model, "llvm -mcpu=znver5")
    assert told["joined"] == [[3, 10, 9, 32], [6, 10, 9, 48], [6, 20, 18, 14]]
    assert len(told["moved"]) == 6, told["moved"]
    [pixels] = [name for name in told["moved"] if "reshape" in name]
    assert "_concatenate" in pixels


@pytest.mark.parametrize("threads", [1, 2])
def test_joining_planes_changes_no_result(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, threads: int
) -> None:
    asking.assert_every_build_agrees(relax, reference, {**place, "threads": threads}, networks.planes(), tmp_path)
