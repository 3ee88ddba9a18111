"""Recognition of a network's kernels by the descriptions of tuning tasks."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.results import in_network


def kernel(name: str, inputs: list[list[int]], outputs: list[list[int]], **more: Any) -> dict[str, Any]:
    return {"name": name, "inputs": inputs, "weights": [], "outputs": outputs, "seconds": 1e-3, **more}


ROWS = [4, 49, 80]


@pytest.mark.parametrize(
    ("description", "layer"),
    [
        ("mean 4×49×80 → 4×49×1", kernel("fused_mean_2", [ROWS], [[4, 49, 1]])),
        ("fast_softmax 4×49×80 → 4×49×80", kernel("fused_nn_fast_softmax", [ROWS], [ROWS])),
        ("subtract+rsqrt 4×49×80 ∗ 4×49×1 → 4×49×80", kernel("fused_subtract_rsqrt", [[4, 49, 1], ROWS], [ROWS])),
        ("add 4×49×80 ∗ 80 → 4×49×80", kernel("fused_add", [ROWS], [ROWS], weights=[[80]])),
        # The same sizes in blocks of channels.
        ("max_pool2d 1×2×8×8×16 → 1×2×4×4×16", kernel("fused_nn_max_pool2d", [[1, 4, 8, 8, 8]], [[1, 32, 4, 4]])),
        ("split 4×6 → 4×2 ∗ 4×4", kernel("fused_split", [[4, 6]], [[4, 4], [4, 2]])),
        ("resize+" + "add+" * 30 + "add 8 → 8", kernel("fused_resize" + "_add" * 17 + "_1b2c_", [[8]], [[8]])),
        ("dense 1×256 ∗ 10×256", kernel("fused_nn_contrib_dense_pack", [[1, 256]], [[1, 10]], weights=[[1, 256, 10]])),
    ],
)  # fmt: skip
def test_a_kernel_is_found_by_operators_and_sizes(description: str, layer: dict[str, Any]) -> None:
    others = [kernel("fused_mean", [[4, 49, 8]], [[4, 49, 1]]), kernel("fused_power", [ROWS], [ROWS])]
    assert in_network.places([*others, layer], {"key": description}) == {"key": [2]}


def test_kernels_that_fit_two_workloads_are_left_out() -> None:
    described = {"over rows": "softmax 8×8 → 8×8", "over columns": "softmax 8×8 → 8×8"}
    assert in_network.places([kernel("fused_nn_softmax", [[8, 8]], [[8, 8]])], described) == {}


def test_results_tell_apart_what_computes_two_convolutions_of_which_the_first_are_equal() -> None:
    described = {
        size: f"chained+conv2d+relu+conv2d+relu 1×56×56×24 ∗ 1×1×24×144 → 1×{size}×{size}×144" for size in ("56", "28")
    }
    weights = [[1, 1, 24, 144], [3, 3, 1, 144]]
    layers = [
        kernel(f"chained_conv2d{size}_relu", [[1, 56, 56, 24]], [[1, size, size, 144]], weights=weights)
        for size in (28, 56)
    ]
    assert in_network.places(layers, described) == {"28": [0], "56": [1]}


def test_products_are_left_out_of_the_share_of_others() -> None:
    layers = [kernel("fused_nn_conv2d_add", [], [], seconds=3e-3), kernel("fused_mean", [ROWS], [ROWS])]
    assert in_network.share_of_others(layers) == pytest.approx(0.25)
    assert in_network.share_of_others([]) == 0.0
