from __future__ import annotations

from bench import layers


def test_layers_are_added_up_by_kind() -> None:
    found = layers.summary(
        [
            {"name": "fused_nn_contrib_depthwise_conv2d_NCHWc_add", "seconds": 1e-3},
            {"name": "fused_nn_contrib_conv2d_NCHWc_add", "seconds": 3e-3},
            {"name": "node_7", "operator": "Conv", "seconds": 2e-3},
            {"name": "fused_layout_transform", "seconds": 1e-4},
            {"name": "fused_sigmoid", "seconds": 1e-5},
        ],
        top=2,
    )
    assert found["ms"] == 6.11
    assert found["by_kind_ms"] == {"convolution": 5.0, "depthwise convolution": 1.0, "layout": 0.1, "other": 0.01}
    assert [layer["ms"] for layer in found["slowest"]] == [3.0, 2.0]
