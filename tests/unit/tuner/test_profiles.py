"""Kernels of both engines matched with ONNX Runtime's nodes, as real jobs name and shape them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.profiles import Bandwidth, Bound, OperatorTime, Peak, Profile
from tuner.results import profiles
from tuner.results.profiles import Task

PEAK = Peak(flops=100e9, bandwidths=(Bandwidth(size=1000, speed=1e9), Bandwidth(size=10_000, speed=1e8)))


def kernel(name: str, data: list[int], weights: list[int] | None, result: list[int], *, us: float = 10) -> Any:
    return {
        "name": name, "inputs": [data], "weights": [weights] if weights else [], "outputs": [result],
        "seconds": us * 1e-6, "bytes": 4 * sum(math.prod(shape) for shape in (data, weights or [0], result)),
    }  # fmt: skip


def node(operator: str, name: str, read: list[list[int]], result: list[int], *, us: float = 5, **more: Any) -> Any:
    return {
        "name": name, "operator": operator, "inputs": read, "outputs": [result], "seconds": us * 1e-6, "flop": None,
        **more,
    }  # fmt: skip


def made(
    kernels: Sequence[Any],
    nodes: Sequence[Any],
    tasks: Sequence[Task] = (),
    precision: str = "f32",
    peak: Peak = PEAK,
    openvino: Any = None,
) -> Profile:
    return profiles.make(
        build={"seconds": sum(each["seconds"] for each in kernels) + 3e-6, "layers": kernels},
        reference={"seconds": sum(each["seconds"] for each in nodes) + 2e-6, "layers": nodes},
        tasks=tasks, peak=peak, variant="tuned", compared_with="ONNX Runtime", threads=1, precision=precision,
        openvino=openvino,
    )  # fmt: skip


def names(profile: Profile) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    return {each.name: (each.kernels, each.nodes) for each in profile.operators}


CONV = node("Conv", "/1/Conv", [[1, 8, 4, 4], [16, 8, 1, 1]], [1, 16, 4, 4], flop=4096.0)
BLOCKED = kernel("fused_nn_contrib_conv2d_NCHWc_add_nn_relu_1", [1, 1, 4, 4, 8], [1, 1, 1, 1, 8, 16], [1, 1, 4, 4, 16])


def test_layouts_do_not_matter_and_equal_layers_stay_in_their_order() -> None:
    again = {**CONV, "name": "/2/Conv", "seconds": 7e-6}
    other = node("Conv", "/3/Conv", [[1, 16, 4, 4], [16, 1, 3, 3]], [1, 16, 4, 4])
    depthwise = kernel("fused_conv2d2", [1, 4, 4, 16], [3, 3, 16, 1], [1, 4, 4, 16])
    found = made([depthwise, BLOCKED, {**BLOCKED, "name": "conv2d_9", "seconds": 20e-6}], [CONV, again, other])
    assert names(found) == {
        "/2/Conv": (("conv2d_9",), ("Conv /2/Conv",)),
        "/1/Conv": ((BLOCKED["name"],), ("Conv /1/Conv",)),
        "/3/Conv": (("fused_conv2d2",), ("Conv /3/Conv",)),
    }
    assert [round(each.loss * 1e6) for each in found.operators] == [13, 5, 5]


def test_onnx_runtime_pads_channels_and_hides_prepacked_weights() -> None:
    """Of 40 and of 48 channels it makes the same sizes: only the order tells these layers apart."""
    depthwise = [kernel(f"depthwise_conv2d_{c}", [1, c, 3, 9], [c, 1, 5, 5], [1, c, 3, 9]) for c in (40, 48)]
    gate = kernel("conv2d_gate", [1, 1, 1, 1, 22], [2, 1, 1, 1, 22, 11], [1, 2, 1, 1, 11])
    product = kernel("nn_dense", [1, 200], [2, 200], [1, 2])
    padded = [node("Conv", f"/{c}", [[1, 48, 3, 9], [48, 1, 5, 5], [48]], [1, 48, 3, 9], us=c) for c in (40, 48)]
    nodes = [
        *padded,
        node("Conv", "/gate", [[1, 22, 1, 1], [32, 22, 1, 1]], [1, 32, 1, 1]),
        node("Gemm", "/fc", [[1, 200], [2]], [1, 2]),
    ]
    found = made([*depthwise, gate, product], nodes)
    assert {each.name: each.kernels for each in found.operators} == {
        "/40": ("depthwise_conv2d_40",),
        "/48": ("depthwise_conv2d_48",),
        "/gate": ("conv2d_gate",),
        "/fc": ("nn_dense",),
    }


def test_branches_in_another_order_are_matched_too() -> None:
    wide = kernel("conv2d_wide", [1, 8, 4, 4], [32, 8, 1, 1], [1, 32, 4, 4])
    nodes = [CONV, node("Conv", "/wide", [[1, 8, 4, 4], [32, 8, 1, 1]], [1, 32, 4, 4])]
    assert names(made([wide, BLOCKED], nodes)) == {
        "/1/Conv": ((BLOCKED["name"],), ("Conv /1/Conv",)),
        "/wide": (("conv2d_wide",), ("Conv /wide",)),
    }


def test_padded_and_transformed_layers_are_still_the_same() -> None:
    winograd = kernel("conv2d_winograd", [1, 8, 8, 8], [6, 6, 8, 8], [1, 8, 8, 8])
    aligned = kernel("fused_nn_dense_add", [1, 112], [112, 16], [1, 16])
    found = made(
        [winograd, aligned],
        [
            node("Gemm", "/fc", [[1, 100], [13, 100]], [1, 13]),
            node("Conv", "/c", [[1, 8, 8, 8], [8, 8, 3, 3]], [1, 8, 8, 8]),
        ],
    )
    assert names(found) == {
        "/c": (("conv2d_winograd",), ("Conv /c",)),
        "/fc": (("fused_nn_dense_add",), ("Gemm /fc",)),
    }


def layer(operator: str, name: str, result: list[int], *, us: float = 4, read: Any = ((),), of: str = "") -> Any:
    return {
        "name": name, "operator": operator, "originals": of.split(), "inputs": read, "outputs": [result],
        "seconds": us * 1e-6,
    }  # fmt: skip


def test_layers_of_openvino_stand_beside_the_nodes_that_they_compute() -> None:
    conv = {**CONV, "name": "/1/Relu_output_0_nchwc", "seconds": 9e-6}
    unnamed = kernel("fused_nn_dense_add", [1, 100], [13, 100], [1, 13])
    nodes = [
        conv, node("Softmax", "/s/Softmax", [[1, 16, 4, 4]], [1, 16, 4, 4]), node("Gemm", "fc", [[1, 100]], [1, 13]),
    ]  # fmt: skip
    layers = [
        layer("Reorder", "x_abcd_acdb_/1/Conv", [1, 8, 4, 4], us=2),
        layer("Convolution", "/1/Conv", [1, 16, 4, 4], of="/1/Conv/WithoutBiases /1/Conv /1/Relu /s/Softmax"),
        layer("Subgraph", "Multiply_7", [1, 16, 4, 4], us=1, of="Multiply_7"),
        layer("FullyConnected", "Gemm_3", [1, 13], read=[[1, 100], [13, 100]], us=6, of="Gemm_3"),
        layer("Reorder", "y_acdb_abcd", [1, 13], us=2),
    ]
    found = made([BLOCKED, unnamed], nodes, openvino={"seconds": 18e-6, "layers": layers})
    assert {each.name: (each.layers, round((each.openvino_seconds or 0) * 1e6)) for each in found.operators} == {
        "/1/Relu_output_0_nchwc": (("Convolution /1/Conv", "Subgraph Multiply_7"), 5),
        "Softmax": ((), 0),
        "fc": (("FullyConnected Gemm_3",), 6),
        "Reorder": (("Reorder x_abcd_acdb_/1/Conv", "Reorder y_acdb_abcd"), 4),
    }
    assert (found.openvino_seconds, found.openvino_outside) == (18e-6, pytest.approx(3e-6))
    assert found.operators[-1].loss < 0 == next(each.loss for each in found.operators if each.name == "Reorder")
    assert {each.openvino_seconds for each in made([BLOCKED], nodes).operators} == {None}


def test_a_convolution_of_openvino_is_found_by_its_sizes_though_what_follows_has_the_name() -> None:
    nodes = [{**CONV, "name": "/gate/HardSigmoid_output_0_nchwc"}]
    layers = [
        layer("Convolution", "/1/Conv", [1, 16, 4, 4], read=CONV["inputs"], of="/1/Conv"),
        layer("HardSigmoid", "/gate/HardSigmoid", [1, 16, 4, 4], of="/gate/HardSigmoid"),
    ]
    [only] = made([BLOCKED], nodes, openvino={"seconds": 9e-6, "layers": layers}).operators
    assert only.layers == ("Convolution /1/Conv", "HardSigmoid /gate/HardSigmoid")


def test_what_a_compiler_fuses_belongs_to_the_layer_before() -> None:
    nodes = [CONV, node("HardSwish", "/act", [[1, 16, 4, 4]], [1, 16, 4, 4]), node("MaxPool", "/p", [], [1, 16, 2, 2])]
    found = made([BLOCKED, kernel("fused_nn_max_pool2d", [1, 16, 4, 4], None, [1, 16, 2, 2])], nodes)
    assert names(found) == {
        "/1/Conv": ((BLOCKED["name"],), ("Conv /1/Conv", "HardSwish /act")),
        "/p": (("fused_nn_max_pool2d",), ("MaxPool /p",)),
    }
    assert found.operators[0].reference_seconds == pytest.approx(5e-6)


def test_a_kernel_of_two_convolutions_stands_beside_both() -> None:
    """And beside what follows them; its time alone is that of its own task."""
    chained = kernel("chained_conv2d_add_relu_conv2d1_add_relu", [1, 8, 8, 4], [1, 1, 4, 16], [1, 4, 4, 16], us=30)
    chained["weights"] += [[1, 1, 1, 16], [3, 3, 1, 16]]
    nodes = [
        node("Conv", "/expand", [[1, 4, 8, 8], [16, 4, 1, 1]], [1, 16, 8, 8], us=9, flop=8192.0),
        node("Clip", "/clip", [[1, 16, 8, 8]], [1, 16, 8, 8], us=2),
        node("Conv", "/depthwise", [[1, 16, 8, 8], [16, 1, 3, 3]], [1, 16, 4, 4], us=7, flop=4608.0),
        node("Clip", "/again", [[1, 16, 4, 4]], [1, 16, 4, 4], us=1),
        CONV,
    ]
    task = Task(position=0, description="chained+conv2d+conv2d 1×8×8×4 ∗ 1×1×4×16 → 1×4×4×16", seconds=20e-6)
    found = made([chained, BLOCKED], nodes, [task])
    assert names(found) == {
        "/expand": ((chained["name"],), ("Conv /expand", "Clip /clip", "Conv /depthwise", "Clip /again")),
        "/1/Conv": ((BLOCKED["name"],), ("Conv /1/Conv",)),
    }
    first = found.operators[0]
    assert (first.flop, round(first.reference_seconds * 1e6), first.alone_seconds) == (12800.0, 19, 20e-6)


def test_a_kernel_of_convolutions_that_are_added_up_stands_beside_all_of_them() -> None:
    joined = kernel("fused_conv2d_relu", [1, 6, 6, 16], [3, 3, 16, 16], [1, 6, 6, 16], us=12)
    sizes = [1, 16, 6, 6]
    nodes = [
        CONV,
        node("Conv", "/small", [sizes, [16, 16, 1, 1]], sizes, us=3),
        node("Conv", "/large", [sizes, [16, 16, 3, 3]], sizes, us=9),
        node("Add", "/sum", [sizes, sizes], sizes, us=1),
        node("Conv", "/scale", [sizes, [16, 1, 1, 1]], sizes, us=2),
        node("Add", "/again", [sizes, sizes], sizes, us=1),
        node("Conv", "/other", [[1, 8, 9, 9], [16, 8, 1, 1]], [1, 16, 9, 9]),
    ]
    found = made([BLOCKED, joined], nodes)
    parts = ("Conv /small", "Conv /large", "Add /sum", "Conv /scale", "Add /again")
    assert names(found) == {
        "/1/Conv": ((BLOCKED["name"],), ("Conv /1/Conv",)),
        "/small": (("fused_conv2d_relu",), parts),
        "Conv": ((), ("Conv /other",)),
    }


def test_a_kernel_of_an_attention_stands_beside_both_products_and_the_softmax() -> None:
    attention = kernel("chained_attention_matmul1", [1, 2, 64, 8], None, [1, 2, 64, 8], us=30)
    attention["inputs"] += [[1, 2, 8, 64], [1, 2, 64, 8]]
    nodes = [
        node("MatMul", "/scores", [[1, 2, 64, 8], [1, 2, 8, 64]], [1, 2, 64, 64], us=9),
        node("Mul", "/scaled", [[1, 2, 64, 64]], [1, 2, 64, 64], us=2),
        node("Softmax", "/shares", [[1, 2, 64, 64]], [1, 2, 64, 64], us=7),
        node("MatMul", "/mixed", [[1, 2, 64, 64], [1, 2, 64, 8]], [1, 2, 64, 8], us=1),
        node("Softmax", "/classes", [[1, 10]], [1, 10], us=1),
        CONV,
    ]
    found = made([attention, BLOCKED], nodes)
    assert names(found) == {
        "/scores": ((attention["name"],), ("MatMul /scores", "Mul /scaled", "Softmax /shares", "MatMul /mixed")),
        "/1/Conv": ((BLOCKED["name"],), ("Conv /1/Conv",)),
        "Softmax": ((), ("Softmax /classes",)),
    }


def test_what_nothing_equals_stands_by_itself_and_sums_add_up() -> None:
    transforms = [kernel(f"layout_transform_{number}", [1, 16], None, [1, 16], us=4) for number in (3, 4)]
    lost = kernel("conv2d_transpose", [1, 2, 2, 2], [2, 2, 2, 2], [1, 2, 9, 9])
    nodes = [CONV, node("ReorderInput", "r1", [], [1, 8, 4, 4]), node("ReorderInput", "r2", [], [1, 8, 4, 4])]
    found = made([*transforms, BLOCKED, lost], nodes)
    assert names(found) == {
        "conv2d_transpose": (("conv2d_transpose",), ()),
        "layout_transform_3": (("layout_transform_3", "layout_transform_4"), ()),
        "/1/Conv": ((BLOCKED["name"],), ("Conv /1/Conv",)),
        "ReorderInput": ((), ("ReorderInput r1", "ReorderInput r2")),
    }
    assert math.fsum(each.seconds for each in found.operators) + found.outside == pytest.approx(found.seconds)
    theirs = math.fsum(each.reference_seconds for each in found.operators) + found.reference_outside
    assert theirs == pytest.approx(found.reference_seconds)
    losses = math.fsum(each.loss for each in found.operators) + found.outside - found.reference_outside
    assert losses == pytest.approx(found.seconds - found.reference_seconds)


@pytest.mark.parametrize(
    "description",
    ["conv2d 1×8×4×4 ∗ 16×8×1×1", "conv2d+add+relu 1×4×4×8 ∗ 1×1×8×16 → 1×4×4×16"],
)
def test_the_fastest_task_of_a_layer_says_its_time_alone(description: str) -> None:
    tasks = [
        Task(position=0, description="conv2d 1×8×8×8 ∗ 16×8×1×1", seconds=1e-6),
        Task(position=1, description=description, seconds=9e-6),
        Task(position=2, description=description, seconds=8e-6),
    ]
    [layer] = made([BLOCKED], [CONV], tasks).operators
    assert (layer.task, layer.alone_seconds) == (2, 8e-6)
    [alone] = made([BLOCKED], [], tasks).operators
    assert alone.task == 2, "its own tensors say so"


def only(profile: Profile) -> OperatorTime:
    [found] = profile.operators
    return found


def test_the_share_is_of_the_limit_that_binds() -> None:
    layer = only(made([BLOCKED], [CONV]))
    # 512 bytes in, 512 of weights, 1024 out: 2.048 µs at the speed of more than 1000 bytes, 0.04 µs of operations.
    assert (layer.bound, layer.share) == (Bound.MEMORY, pytest.approx(0.2048))
    heavy = only(made([BLOCKED], [{**CONV, "flop": 5e5}]))
    assert (heavy.bound, heavy.share) == (Bound.COMPUTE, pytest.approx(0.5))
    assert only(made([BLOCKED], [{**CONV, "flop": 5e5}], precision="bf16")).bound is Bound.MEMORY
    unknown = only(made([BLOCKED], [CONV], peak=Peak(flops=None)))
    assert (unknown.share, unknown.bound) == (None, None)


def test_builds_without_shapes_are_listed_by_kernel() -> None:
    bare = {"name": "fused_nn_conv2d", "seconds": 1e-5}
    assert names(made([bare], [CONV])) == {
        "fused_nn_conv2d": (("fused_nn_conv2d",), ()),
        "Conv": ((), ("Conv /1/Conv",)),
    }


SIZES = st.sampled_from([(8, 64), (64, 8), (64, 64)])


@given(st.lists(SIZES, max_size=6), st.lists(SIZES, max_size=6))
def test_every_kernel_and_node_is_listed_once_whatever_matches(built: list[Any], known: list[Any]) -> None:
    kernels = [kernel(f"conv2d_{n}", [1, i, 4, 4], [o, i, 1, 1], [1, o, 4, 4]) for n, (i, o) in enumerate(built)]
    nodes = [node("Conv", f"/{n}", [[1, i, 4, 4], [o, i, 1, 1]], [1, o, 4, 4]) for n, (i, o) in enumerate(known)]
    found = made(kernels, nodes).operators
    assert sorted(name for each in found for name in each.kernels) == sorted(each["name"] for each in kernels)
    assert sorted(name for each in found for name in each.nodes) == sorted(f"Conv {each['name']}" for each in nodes)
    pairs = sum(len(each.kernels) == 1 and len(each.nodes) > 0 for each in found)
    assert pairs == sum(min(built.count(size), known.count(size)) for size in set(built))


def test_thousands_of_layers_are_matched_in_seconds() -> None:
    layers = 3000
    kernels = [{**BLOCKED, "name": f"conv2d_{number}"} for number in range(layers)]
    nodes = [{**CONV, "name": f"/{number}"} for number in range(layers)]
    started = time.process_time()
    assert len(made(kernels, nodes).operators) == layers
    assert time.process_time() - started < 30
