"""Convolutions read images of few channels as planes: which ones do, and that results agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.relax import networks
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

READ = """
import json, sys
from tuner.engines.relax import importing
from tuner.engines.relax.graph import lowering
importing.install()
path, target = sys.argv[1:]
told = {}
for rewrite in (False, True):
    build = lowering.Lowering.of({"model": path, "target": target, "threads": 1, "rewrite": rewrite})
    functions = lowering.lower(importing.load(path), build).functions_items()
    told[str(rewrite)] = sorted(
        [int(size) for size in function.params[0].shape] + [int(function.params[1].shape[-1])]
        for name, function in functions
        if "conv2d" in name.name_hint
    )
print(json.dumps(told))
"""


def test_convolutions_of_few_channels_read_planes(reference: EngineSession, target: str, tmp_path: Path) -> None:
    """Told are the shape of what each one reads, and its filters."""
    model, _ = asking.prepare(reference, networks.image_convolutions(), tmp_path)
    planes, image = [2, 3, 29, 26], [2, 29, 26, 3]
    deep, others = [2, 12, 12, 5, 16], [[*image, 12], [*image, 16]]
    assert asking.told_inside("relax", READ, model, target) == {
        "False": [deep, *sorted([*others, [*image, 16], [*image, 32], [*image, 48]])],
        "True": sorted([[*planes, 16], [*planes, 32], [*planes, 48], deep, *others]),
    }


@pytest.mark.parametrize("threads", [1, 2])
def test_planes_change_no_result(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, threads: int
) -> None:
    own = {**place, "threads": threads}
    asking.assert_every_build_agrees(relax, reference, own, networks.image_convolutions(), tmp_path)
