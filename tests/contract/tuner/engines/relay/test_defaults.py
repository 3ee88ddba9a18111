"""Which schedules a search of AutoTVM's may try, in the relay environment."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside

pytestmark = pytest.mark.engine

BLOCKS = """
from tuner.engines.relay import graph_layout_reading

def told(inputs, outputs, cpu, size=12, depthwise=False):
    target = targets.resolve(f"llvm -mcpu={cpu}", 1)
    shape = [outputs, 1, 3, 3] if depthwise else [outputs, inputs, 3, 3]
    tensors = [["TENSOR", [1, inputs, size, size], "float32"], ["TENSOR", shape, "float32"]]
    name = "depthwise_conv2d_NCHWc.x86" if depthwise else "conv2d_NCHWc.x86"
    arguments = [*tensors, [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"]
    task = workloads.task(json.dumps([name, arguments], separators=(",", ":")), target)
    blocks = [graph_layout_reading.blocks(name, task.config_space.get(place)) for place in defaults.consistent(task)]
    same = defaults.same_layout(task)
    return {"blocks": sorted(set(blocks)), "same": len(same), "all": len(blocks), "searched": defaults.searched(task),
            "within": same <= defaults.consistent(task), "default": defaults.index(task) in same}

print(json.dumps({
    "full": told(32, 64, "znver4"), "half": told(24, 88, "znver4"), "image": told(3, 24, "znver4"),
    "narrow": told(24, 88, "znver3"), "depthwise": told(88, 88, "znver4", depthwise=True),
}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return inside(BLOCKS, tmp_path_factory.mktemp("defaults"))


def test_blocks_that_fill_vectors_are_kept(told: Any) -> None:
    assert told["full"]["blocks"] == [[16, 16]]
    # Blocks of 8 fill the vectors of AVX2; 11 do not.
    assert told["narrow"]["blocks"] == [[8, 8]]
    assert told["full"]["same"] == told["full"]["all"]


def test_half_a_vector_is_tried_where_the_untuned_block_is_odd(told: Any) -> None:
    assert told["half"]["blocks"] == [[8, 8], [8, 11], [12, 8], [12, 11]]
    assert told["image"]["blocks"] == [[3, 8], [3, 12]]
    assert told["half"]["all"] == 4 * told["half"]["same"]


def test_depthwise_convolutions_have_one_block(told: Any) -> None:
    assert told["depthwise"]["blocks"] == [[8, 8], [11, 11]]


def test_what_is_searched_holds_the_untuned_layout(told: Any) -> None:
    for each in told.values():
        assert each["within"]
        assert each["default"]
        assert each["searched"] == each["all"]
