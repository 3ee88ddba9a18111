"""Files that end whoever reads or runs them by a signal: bugs of ONNX Runtime 1.32.0 and of onnx 1.18.0.

They were found by spoiling one attribute or operand of one operator at a time (docs/explanation/threat-model.md says
how many). A version that survives one makes its test fail: then it moves to ``_survived``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from tests.support import wire
from tests.support.hostile.fates import FATAL, LATER, Hostile
from tests.support.wire import FLOAT, INT64, Field, end, graph, message, model, node, simple, tensor

_UINT8 = 2
Shape = Sequence[int | str]


def crashers() -> list[Hostile]:
    return [*_fatal(), *_survived(), *_read(), *_attributes()]


def _fatal() -> Iterator[Hostile]:
    """They pass every check, ``onnx.checker`` and shape inference, and ONNX Runtime does not survive them."""
    halves = [wire.integer("axis", 1), wire.integer("num_outputs", 1)]
    split = graph([node("Split", ["x"], ["y", "z"], *halves)], [end("x", (2, 6))], [_open("y", 2), _open("z", 2)])
    # With a session on it: its sizes are kept for one output, and looked up for two.
    yield _dies("split_into_more_than_it_says", "SIGABRT", model(split, opset=18))

    nothing = [wire.whole("start", 0), wire.whole("end", 0), wire.whole("axis", 2), wire.floats("w", 1, 2, 3, 3, 3)]
    empty = [node("Slice", ["x", "start", "end", "axis"], ["n"]), node("ConvTranspose", ["n", "w"], ["y"])]
    yield _dies("transposed_convolution_of_nothing", "SIGSEGV", _one(empty, (1, 1, 3, 4, 5), 5, nothing))

    sizes = wire.integers("inputdimensions", [4, -1])
    joined = [node("FeatureVectorizer", ["x", "w"], ["y"], sizes, domain="ai.onnx.ml")]
    yield _dies(
        "features_of_negative_length", "SIGABRT", _one(joined, (3, 4), 2, [wire.floats("w", 3, 2)], "ai.onnx.ml")
    )

    counted = [node("TfIdfVectorizer", ["words"], ["n"], *_grams(indexes=[0])), node("Add", ["x", "n"], ["y"])]
    words = [wire.whole("words", *range(1, 7))]
    yield _dies("more_words_than_places_for_them", "SIGABRT", _one(counted, (1,), 1, words))

    wide = [node("MultiHeadAttention", ["x", "x", "v"], ["y"], wire.integer("num_heads", 2), domain="com.microsoft")]
    values = [tensor("v", [1, 3, 0], FLOAT, b"")]
    yield _dies("attention_to_empty_values", "SIGFPE", _one(wide, (1, 3, 4), 3, values, "com.microsoft"))

    heard = [node("STFT", ["x", "step", "", "length"], ["y"])]
    steps = [tensor(name, [], INT64, struct.pack("<q", size)) for name, size in (("step", 8), ("length", 0))]
    yield _dies("frames_of_no_length", "SIGFPE", _one(heard, (1, 128, 1), 4, steps))

    product = [node("Einsum", ["x", ""], ["y"], message((1, "equation"), (4, "ij,jk->ik"), (20, 3)))]
    yield _dies("product_with_nobody", "SIGSEGV", _one(product, (3, 4), 2, []))


def _survived() -> Iterator[Hostile]:
    """ONNX Runtime 1.31.1 did not survive them; 1.32.0 runs the first and refuses the second."""
    attends = [node("Attention", ["x", "w"], ["y"], wire.integer("num_heads", 2), domain="com.microsoft")]
    unbiased = _one(attends, (1, 3, 4), 3, [wire.floats("w", 4, 12)], "com.microsoft")
    yield Hostile(name="attention_without_a_bias", content=unbiased, fate=LATER)

    beyond = [node("GatherND", ["x", "places"], ["y"], wire.integer("batch_dims", 2**63 - 1))]
    places = [tensor("places", [1, 2], INT64, struct.pack("<2q", 0, 1))]
    yield Hostile(name="gathering_beyond_all_batches", content=_one(beyond, (3, 4), 1, places), fate=LATER)


def _read() -> Iterator[Hostile]:
    """onnx's own shape inference does not survive these: the process that reads the upload ends, and it is refused."""
    # One dimension too many is read from whatever lies there, and survived if that was a dimension before.
    flat = [tensor("w", [1, 1, 2, 2, *[1] * 2000], _UINT8, bytes(4))]
    pixels = graph([node("ConvInteger", ["x", "w"], ["y"])], [end("x", (1, 1, 3, 3), _UINT8)], [_open("y", 4)], flat)
    yield Hostile(name="kernel_of_another_rank", content=model(pixels), reason="reader_ended")


def _attributes() -> Iterator[Hostile]:
    """Numbers that operators divide by, or multiply: onnx itself ends with SIGFPE at the first two. We look first."""
    window = wire.integers("kernel_shape", [1, 1])
    no_steps = node("MaxPool", ["x"], ["y"], window, wire.integers("strides", [0, 0]))
    blocks = node("DepthToSpace", ["x"], ["y"], wire.integer("blocksize", 2**40))
    no_groups = node("Conv", ["x", "w"], ["y"], wire.integer("group", 0))
    backwards = node("AveragePool", ["x"], ["y"], window, wire.integers("strides", [1, -1]))
    pool = node("MaxPool", ["x"], ["y"], wire.integers("kernel_shape", [2**31, 2**31]))
    inner = graph([node("MaxPool", ["x"], ["z"], window, wire.integers("strides", [0, 0]))], [], [end("z", None)])
    branches = [wire.subgraph("then_branch", inner), wire.subgraph("else_branch", inner)]
    shape = (1, 8, 8, 8)
    made = {
        "strides_of_zero": simple([no_steps], shape=shape),
        "blocks_beyond_all": simple([blocks], shape=shape),
        "group_of_zero": simple([no_groups], [wire.floats("w", 8, 8, 1, 1)], shape=shape),
        "strides_below_zero": simple([backwards], shape=shape),
        "kernel_beyond_all": simple([pool], shape=shape),
        "strides_of_zero_in_a_branch": simple([node("If", ["c"], ["y"], *branches)], [wire.truth("c")], shape=shape),
    }
    yield from (Hostile(name=name, content=content, reason="attribute") for name, content in made.items())


def _dies(name: str, signal: str, content: bytes) -> Hostile:
    return Hostile(name=name, content=content, fate=FATAL, signal=signal)


def _one(nodes: Sequence[bytes], shape: Shape, rank: int, tensors: Sequence[bytes], domain: str = "") -> bytes:
    """From ``x`` to ``y``, of which only the rank is told, with operators of one more domain."""
    more: list[Field] = [(8, message((1, domain), (2, 1)))] if domain else []
    return model(graph(nodes, [end("x", shape)], [_open("y", rank)], tensors), *more, opset=17)


def _open(name: str, rank: int) -> bytes:
    return end(name, [f"{name}{axis}" for axis in range(rank)])


def _grams(*, indexes: Sequence[int]) -> list[bytes]:
    lengths = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0}
    return [
        *(wire.integer(name, value) for name, value in lengths.items()),
        message((1, "mode"), (4, "TF"), (20, 3)),
        wire.integers("ngram_counts", [0, 3]),
        wire.integers("ngram_indexes", indexes),
        wire.integers("pool_int64s", [1, 2, 3, 1, 2, 3, 4]),
    ]
