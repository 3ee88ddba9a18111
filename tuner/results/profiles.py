"""Profiles of jobs: a build's kernels matched with the reference's nodes and with tuning tasks, by their tensors.

A compiler keeps no names of layers. But a convolution or product has the sizes of its data, weights and result whatever
the layout, and both run nearly in the same order. What nothing equals stands by itself, so that sums add up.

Layers of OpenVINO have the names of the model's nodes that they compute, which ONNX Runtime keeps, too. Those without
such a name are matched with kernels as nodes are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from domain.profiles import Bound, OperatorTime, Peak, Profile
from tuner.results import in_network

Answer = Mapping[str, Any]
"""Result of an engine's method ``profile``."""
_ALIGNED = 1.34
"""Largest ratio of the sizes of one tensor in two networks: rewritten ones align channels to vectors."""
_LANES = 16
"""Most channels in a block of ONNX Runtime; it pads to a multiple of that or of half of it."""
_KIND_OF = {
    **dict.fromkeys(("Conv", "FusedConv", "ConvTranspose", "ConvInteger", "QLinearConv"), "convolution"),
    **dict.fromkeys(
        ("MatMul", "FusedMatMul", "Gemm", "FusedGemm", "MatMulInteger", "QLinearMatMul", "QGemm"), "product"
    ),
}
_KERNELS_OF = {"convolution": ("conv",), "product": ("dense", "matmul", "gemm")}
"""Parts of kernels' names."""
_NAMED = {
    "AveragePool": ("avg_pool",), "Concat": ("concat",), "Gather": ("take", "gather"),
    "GlobalAveragePool": ("avg_pool", "mean"), "LayerNormalization": ("layer_norm", "mean", "rsqrt"),
    "MaxPool": ("max_pool",), "ReduceMean": ("mean",), "Resize": ("resize",), "Slice": ("slice",),
    "Softmax": ("softmax",), "Split": ("split",), "Transpose": ("transpose", "layout_transform"),
    "Upsample": ("resize", "upsampling"), "Pad": ("pad",),
}  # fmt: skip
"""Parts of the names of kernels that compute other operators."""
_ELEMENTWISE = frozenset(
    {
        "Add", "BiasGelu", "Cast", "Clip", "Div", "Elu", "Erf", "Exp", "FastGelu", "Gelu", "HardSigmoid", "HardSwish",
        "LeakyRelu", "Mul", "PRelu", "Pow", "QuickGelu", "Relu", "Sigmoid", "Sqrt", "Sub", "Tanh",
    }
)  # fmt: skip
"""Operators that compilers fuse into the kernel before them."""
_MOST_PAIRS = 1_000_000
"""Pairs of kernels and nodes that are compared, which takes a few seconds; of more, the first that are alike match."""
_OPERATOR_OF = {
    "AvgPool": "AveragePool", "Convolution": "Conv", "Deconvolution": "ConvTranspose", "FullyConnected": "MatMul",
    "GroupConvolution": "Conv", "Interpolate": "Resize", "MVN": "LayerNormalization", "RMS": "LayerNormalization",
    "Subgraph": "Mul", "VariadicSplit": "Split",
}  # fmt: skip
"""The operator of the usual name that a layer of OpenVINO computes; a ``Subgraph`` is elementwise."""
_ADDED = re.compile(r"(_nchwc|_output_\d+|/MatMulScaleFusion/)+$")
"""What ONNX Runtime, exporters and OpenVINO add to the name of a node."""
_NUMBER = re.compile(r"_?\d+$")
"""What tells kernels of one kind apart."""
_FLOAT_PRECISION = "f32"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A tuning task of the build's tuner."""

    position: int
    description: str
    """With the shapes of data and weights: ``conv2d 1×3×224×224 ∗ 64×3×7×7 /2``."""
    seconds: float
    """Best time by itself."""


@dataclass(eq=False)
class _Group:
    kernels: list[Answer] = field(default_factory=list)
    nodes: list[Answer] = field(default_factory=list)
    layers: list[Answer] = field(default_factory=list)


def make(
    *,
    build: Answer,
    reference: Answer,
    tasks: Sequence[Task],
    peak: Peak,
    variant: str,
    compared_with: str,
    threads: int,
    precision: str,
    openvino: Answer | None = None,
) -> Profile:
    """Return the profile of a build from the answers of the engines that ran it, the reference and OpenVINO.

    A peak of operations is compared with builds in f32 alone, in which it was measured.
    """
    groups = _groups(build["layers"], reference["layers"])
    if openvino is not None:
        groups += _add_layers(groups, build["layers"], openvino["layers"])
    limits = peak if precision == _FLOAT_PRECISION else Peak(flops=None, bandwidths=peak.bandwidths)
    operators = [_operator(group, tasks, limits, has_layers=openvino is not None) for group in groups]
    return Profile(
        variant=variant,
        compared_with=compared_with,
        threads=threads,
        seconds=build["seconds"],
        reference_seconds=reference["seconds"],
        outside=_outside(build),
        reference_outside=_outside(reference),
        operators=tuple(sorted(operators, key=lambda each: -each.loss)),
        peak=peak,
        openvino_seconds=openvino["seconds"] if openvino else None,
        openvino_outside=_outside(openvino) if openvino else None,
    )


def _outside(answer: Answer) -> float:
    return float(answer["seconds"]) - math.fsum(each["seconds"] for each in answer["layers"])


def _groups(kernels: Sequence[Answer], nodes: Sequence[Answer]) -> list[_Group]:
    """Return groups that have every kernel and every node once."""
    partner = _partners(kernels, nodes)
    of_node = {node: kernel for kernel, node in partner.items()}
    groups = [_Group(kernels=[kernel]) for kernel in kernels]
    nodes_alone: dict[str, _Group] = {}
    for place, node in enumerate(nodes):
        kernel = of_node.get(place)
        if kernel is None and (node["operator"] in _KIND_OF or node["operator"] == "Softmax"):
            kernel = _chained_with(node, place, of_node, kernels)
        if kernel is None and _KIND_OF.get(node["operator"]) == "convolution":
            kernel = _joined_in(node, place, partner, kernels)
        if kernel is None and node["operator"] in _ELEMENTWISE:
            kernel = _fused_into(node, place, of_node, kernels, nodes)
        if kernel is not None:
            groups[kernel].nodes.append(node)
        else:
            nodes_alone.setdefault(node["operator"], _Group()).nodes.append(node)
    kernels_alone: dict[str, _Group] = {}
    for group in groups:
        if not group.nodes:
            [only] = group.kernels
            # The many copies and transforms of one kind are one loss.
            name = only["name"] if in_network.is_product(only["name"]) else _NUMBER.sub("", only["name"])
            kernels_alone.setdefault(name, _Group()).kernels.append(only)
    return [*(group for group in groups if group.nodes), *kernels_alone.values(), *nodes_alone.values()]


def _partners(kernels: Sequence[Answer], nodes: Sequence[Answer]) -> dict[int, int]:
    """Return places of nodes by places of kernels."""
    shaped = [place for place, kernel in enumerate(kernels) if "outputs" in kernel]
    products = [place for place in shaped if in_network.is_product(kernels[place]["name"])]
    computed = [place for place, node in enumerate(nodes) if node["operator"] in _KIND_OF]
    found: dict[int, int] = {}
    if len(products) * len(computed) <= _MOST_PAIRS:
        scores = [[_likeness(kernels[kernel], nodes[node]) for node in computed] for kernel in products]
        found = {products[row]: computed[column] for row, column in _in_order(scores)}

    def match(among: Sequence[int], is_pair: Callable[[Answer, Answer], object]) -> None:
        free = [place for place in range(len(nodes)) if place not in set(found.values())]
        for place in among:
            node = None
            if place not in found:
                node = next((each for each in free if is_pair(kernels[place], nodes[each])), None)
            if node is not None:
                found[place] = node
                free.remove(node)

    # Branches may run in another order.
    match(products, _likeness)
    match([place for place in shaped if place not in set(products)], _computes)
    return found


def _in_order(scores: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the pairs of rows and columns, ascending in both, with the largest sum of scores."""
    columns = len(scores[0]) if scores else 0
    best = [[0] * (columns + 1) for _ in range(len(scores) + 1)]
    for row in range(len(scores) - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            paired = scores[row][column] and scores[row][column] + best[row + 1][column + 1]
            best[row][column] = max(paired, best[row + 1][column], best[row][column + 1])
    pairs = []
    row = column = 0
    while row < len(scores) and column < columns:
        if scores[row][column] and best[row][column] == scores[row][column] + best[row + 1][column + 1]:
            pairs.append((row, column))
            row, column = row + 1, column + 1
        elif best[row][column] == best[row + 1][column]:
            row += 1
        else:
            column += 1
    return pairs


def _likeness(kernel: Answer, node: Answer) -> int:
    """Return 3 for a product of the node's sizes, 2 if it does not tell those of its weights, 1 for other weights.

    Weights differ by transformations such as Winograd's. 0 means other data or results.
    """
    kind = _KIND_OF.get(node["operator"])
    if kind is None or not any(part in kernel["name"] for part in _KERNELS_OF[kind]) or not kernel["inputs"]:
        return 0
    data, weights, result = _shapes(node)
    if in_network.is_attention(kernel["name"]):
        # It has the first product's operands, and the second one's right operand and result.
        if not _fits(math.prod(kernel["inputs"][-1]), weights, 0):
            return 0
    elif in_network.is_chained(kernel["name"]):
        # It has the first convolution's data, and the result of the second one, which is depthwise.
        if len(weights) < 3 or weights[1] != 1:
            return 0
    elif not _fits(math.prod(kernel["inputs"][0]), data, 1):
        return 0
    if not _fits(_largest(kernel["outputs"]), result, 1):
        return 0
    if len(weights) < 2:
        return 2
    # Weights may be computed, and the product of two activations has none.
    sizes = [math.prod(shape) for shape in (*kernel["weights"], *kernel["inputs"][1:2])]
    return 3 if any(_fits(size, weights, 0, most=1.0) for size in sizes) else 1


def _fits(size: int, shape: Sequence[int], axis: int, most: float = _ALIGNED) -> bool:
    """Whether a tensor of ``size`` elements may be one of that shape, in which ONNX Runtime pads the axis of channels.

    Rewritten networks have up to ``most`` times as many elements, or as few.
    """
    whole = math.prod(shape)
    if _is_near(size, whole, most):
        return True
    if len(shape) < 3 or not whole or size % (whole // shape[axis]):
        return False
    added = shape[axis] - size // (whole // shape[axis])
    return 0 < added < _LANES and shape[axis] % (_LANES // 2) == 0


def _computes(kernel: Answer, node: Answer) -> bool:
    """Whether a kernel is named after an operator that is no product, and has results of its size."""
    parts = _NAMED.get(node["operator"], (node["operator"].lower(),))
    named = any(part in kernel["name"] for part in parts)
    return named and _is_near(_largest(kernel["outputs"]), _largest(node["outputs"]))


def _chained_with(node: Answer, place: int, of_node: dict[int, int], kernels: Sequence[Answer]) -> int | None:
    """Return the kernel of the next node that has one, if it computes this node as well, and note it in ``of_node``."""
    after = min((each for each in of_node if each > place), default=None)
    if after is None or not _is_within(node, kernels[of_node[after]]):
        return None
    of_node[place] = of_node[after]
    return of_node[after]


def _is_within(node: Answer, kernel: Answer) -> bool:
    """Whether a kernel computes what a node before its last product does."""
    if in_network.is_attention(kernel["name"]):
        queries, keys, *_ = kernel["inputs"]
        return _is_near(math.prod(queries[:-1]) * keys[-1], _largest(node["outputs"]))
    is_chained = in_network.is_chained(kernel["name"]) and _KIND_OF.get(node["operator"]) == "convolution"
    return is_chained and _fits(math.prod(kernel["inputs"][0]), _shapes(node)[0], 1)


def _joined_in(node: Answer, place: int, partner: Mapping[int, int], kernels: Sequence[Answer]) -> int | None:
    """Return the kernel of the nearest node with one, the one before first, if that has a convolution of these sizes.

    Rewritten networks have one convolution for several of the same tensor that are added up.
    """
    before = max((each for each in partner if partner[each] < place), key=partner.__getitem__, default=None)
    after = min((each for each in partner if partner[each] > place), key=partner.__getitem__, default=None)
    return next((each for each in (before, after) if each is not None and _likeness(kernels[each], node)), None)


def _fused_into(
    node: Answer, place: int, of_node: Mapping[int, int], kernels: Sequence[Answer], nodes: Sequence[Answer]
) -> int | None:
    """Return the kernel of the last node before ``place`` that has a kernel and a result of the same size."""
    size = _largest(node["outputs"])
    for before in range(place - 1, -1, -1):
        made = before in of_node and (kernels[of_node[before]]["outputs"], nodes[before]["outputs"])
        if made and any(_is_near(_largest(each), size) for each in made):
            return of_node[before]
    return None


def _add_layers(groups: Sequence[_Group], kernels: Sequence[Answer], layers: Sequence[Answer]) -> list[_Group]:
    """Add OpenVINO's layers to the groups that compute the same; return groups of the others, by type."""
    found = _by_names(groups, layers)
    nodes = [{**layer, "operator": _OPERATOR_OF.get(layer["operator"], layer["operator"])} for layer in layers]
    of_kernel = {id(kernel): group for group in groups for kernel in group.kernels}
    # A layer that has a name may be what another runtime fuses into the product before it.
    taken = set(found.values())
    computed = {group for place, group in found.items() if nodes[place]["operator"] in _KIND_OF}
    free = [
        kernel for kernel in kernels
        if of_kernel[id(kernel)] not in (computed if in_network.is_product(kernel["name"]) else taken)
    ]  # fmt: skip
    rest = [place for place in range(len(nodes)) if place not in found]
    for kernel, partner in _partners(free, [nodes[place] for place in rest]).items():
        found[rest[partner]] = of_kernel[id(free[kernel])]
    alone: dict[str, _Group] = {}
    for place, (layer, node) in enumerate(zip(layers, nodes, strict=True)):
        if place not in found and node["operator"] in _ELEMENTWISE:
            size = _largest(layer["outputs"])
            before = (each for each in range(place - 1, -1, -1) if each in found)
            alike = next((each for each in before if _is_near(_largest(layers[each]["outputs"]), size)), None)
            if alike is not None:
                found[place] = found[alike]
        group = found.get(place) or alone.setdefault(layer["operator"], _Group())
        group.layers.append(layer)
    return list(alone.values())


def _by_names(groups: Sequence[_Group], layers: Sequence[Answer]) -> dict[int, _Group]:
    """Return groups by places of layers that compute one of their nodes; of several, the one that takes longest."""
    known = {_ADDED.sub("", node["name"]): (node["seconds"], group) for group in groups for node in group.nodes}
    found: dict[int, _Group] = {}
    for place, layer in enumerate(layers):
        hits = [known[name] for name in (_ADDED.sub("", each) for each in layer["originals"]) if name in known]
        if hits:
            found[place] = max(hits, key=lambda hit: hit[0])[1]
    return found


def _operator(group: _Group, tasks: Sequence[Task], peak: Peak, *, has_layers: bool) -> OperatorTime:
    seconds = math.fsum(kernel["seconds"] for kernel in group.kernels)
    counted = [node["flop"] for node in group.nodes if node["flop"] is not None] if group.kernels else []
    flop = math.fsum(counted) if counted else None
    sizes = [kernel["bytes"] for kernel in group.kernels if "bytes" in kernel]
    task = _task(group, tasks)
    share, bound = _share(seconds, flop, sizes, peak)
    return OperatorTime(
        name=_name(group),
        kernels=tuple(kernel["name"] for kernel in group.kernels),
        nodes=tuple(f"{node['operator']} {node['name']}" for node in group.nodes),
        seconds=seconds,
        reference_seconds=math.fsum(node["seconds"] for node in group.nodes),
        alone_seconds=task.seconds if task else None,
        task=task.position if task else None,
        flop=flop,
        bytes=sum(sizes) if sizes else None,
        share=share,
        bound=bound,
        layers=tuple(f"{layer['operator']} {layer['name']}" for layer in group.layers),
        openvino_seconds=math.fsum(layer["seconds"] for layer in group.layers) if has_layers else None,
    )


def _name(group: _Group) -> str:
    if not group.nodes and not group.kernels:
        return str(group.layers[0]["operator"])
    if not group.nodes:
        return str(group.kernels[0]["name"])
    return str(group.nodes[0]["name" if group.kernels else "operator"])


def _task(group: _Group, tasks: Sequence[Task]) -> Task | None:
    """Return the fastest task with data and weights of the sizes of the group's first node, or else of its kernel."""
    if len(group.kernels) != 1:
        return None
    [kernel] = group.kernels
    known = [tuple(map(math.prod, _shapes(node)[:2])) for node in group.nodes[:1]]
    for sizes in known + in_network.sizes_of_kernel(kernel):
        found = [task for task in tasks if in_network.sizes_of_task(task.description) == sizes]
        if found:
            return min(found, key=lambda task: task.seconds)
    return None


def _share(
    seconds: float, flop: float | None, sizes: Sequence[int], peak: Peak
) -> tuple[float, Bound] | tuple[None, None]:
    least: dict[Bound, float] = {}
    if flop and peak.flops:
        least[Bound.COMPUTE] = flop / peak.flops
    if any(sizes) and peak.bandwidths:
        least[Bound.MEMORY] = math.fsum(size / _speed(size, peak) for size in sizes)
    if not least or seconds <= 0:
        return None, None
    bound = max(least, key=lambda each: least[each])
    return least[bound] / seconds, bound


def _speed(size: int, peak: Peak) -> float:
    """Return the speed for at most as much data: at best, all of it lies in the cache that is large enough."""
    return next((each.speed for each in reversed(peak.bandwidths) if each.size <= size), peak.bandwidths[0].speed)


def _shapes(node: Answer) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Return the shapes of data, weights and result; those of prepacked weights are unknown, and so empty."""
    read: list[Sequence[int]] = [*node["inputs"], (), ()]
    return read[0], read[1], max(node["outputs"], key=math.prod, default=())


def _largest(shapes: Sequence[Sequence[int]]) -> int:
    return max((math.prod(shape) for shape in shapes), default=0)


def _is_near(one: int, other: int, most: float = _ALIGNED) -> bool:
    return min(one, other) > 0 and max(one, other) <= most * min(one, other)
