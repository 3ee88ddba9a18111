"""Where kernels ask for weights ahead."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tuner.engines.runtime.prefetching import Loop, Panel, panel, place

MEBIBYTE = 1 << 20
PRODUCT = (
    Loop(extent=96, stride=384 * 128, sums=False),
    Loop(extent=4, stride=0, sums=False),
    Loop(extent=384, stride=128, sums=True),
    Loop(extent=8, stride=0, sums=False),
    Loop(extent=2, stride=64, sums=False),
    Loop(extent=16, stride=4, sums=False),
)
"""Of 32 rows with packed weights: panels, bands of rows, the sum, rows of a tile, vectors and their lanes."""


def placed(loops: Sequence[Loop], *, item: int = 4, size: int = 4 * MEBIBYTE, rows: int = 32) -> tuple[int, int] | None:
    return place(loops, item=item, size=size, rows=rows)


def test_a_product_asks_in_its_sum_for_the_lines_of_a_step() -> None:
    assert placed(PRODUCT) == (2, 2)


def test_a_convolution_asks_in_the_innermost_of_its_sums() -> None:
    """Of weights in the order of channel blocks, rows and columns of the window, and channels in a block."""
    sums = [(8, 9 * 1024), (3, 3 * 1024), (3, 1024), (16, 64)]
    loops = [Loop(extent=extent, stride=stride, sums=True) for extent, stride in sums]
    lanes = Loop(extent=16, stride=4, sums=False)
    assert placed([*loops, Loop(extent=7, stride=0, sums=False), lanes]) == (3, 1)


def test_loops_of_one_iteration_do_not_matter() -> None:
    window = Loop(extent=1, stride=12345, sums=True)
    assert placed([*PRODUCT[:3], window, *PRODUCT[3:]]) == (2, 2)


def test_vectors_in_one_read_count_as_its_lanes() -> None:
    assert placed([Loop(extent=384, stride=64, sums=True)], item=64) == (0, 1)


@pytest.mark.parametrize(
    ("loops", "size", "rows"),
    [
        pytest.param(PRODUCT, 63 << 10, 32, id="weights that stay in the cache"),
        pytest.param(PRODUCT, 4 * MEBIBYTE, 1025, id="arithmetic that hides the wait"),
        pytest.param(
            [Loop(extent=384, stride=4096, sums=True), Loop(extent=16, stride=4, sums=False)],
            4 * MEBIBYTE,
            32,
            id="weights that are not packed",
        ),
        pytest.param(
            [Loop(extent=384, stride=64, sums=False), Loop(extent=16, stride=4, sums=False)],
            4 * MEBIBYTE,
            1,
            id="no sum",
        ),
        pytest.param(
            [Loop(extent=64, stride=1024, sums=True), Loop(extent=256, stride=4, sums=False)],
            4 * MEBIBYTE,
            32,
            id="more lines at a time than a core needs help with",
        ),
        pytest.param([], 4 * MEBIBYTE, 1, id="no loop"),
    ],
)
def test_other_reads_are_left_to_the_core(loops: Sequence[Loop], size: int, rows: int) -> None:
    assert placed(loops, size=size, rows=rows) is None


def test_passes_over_a_panel_share_the_next_one() -> None:
    assert panel(PRODUCT[:3]) == Panel(size=384 * 128, iterations=4 * 384, loops=2)


def test_a_panel_of_a_convolution_has_all_of_its_sums() -> None:
    sums = [Loop(extent=extent, stride=stride, sums=True) for extent, stride in ((3, 3 * 8192), (3, 8192), (64, 128))]
    rows = [Loop(extent=4, stride=0, sums=False), Loop(extent=7, stride=0, sums=False)]
    panels = Loop(extent=6, stride=9 * 8192, sums=False)
    assert panel([panels, *rows, *sums]) == Panel(size=9 * 8192, iterations=28 * 9 * 64, loops=5)


@pytest.mark.parametrize(
    "loops",
    [
        pytest.param([PRODUCT[0], PRODUCT[2]], id="one pass"),
        pytest.param([PRODUCT[1], Loop(extent=8192, stride=128, sums=True)], id="more than the cache holds"),
        pytest.param(
            [PRODUCT[1], Loop(extent=2, stride=MEBIBYTE, sums=True), PRODUCT[2]], id="parts of sums that lie apart"
        ),
    ],
)
def test_no_next_panel_is_asked_for(loops: Sequence[Loop]) -> None:
    assert panel(loops) is None
