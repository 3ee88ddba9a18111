"""``python -m tests.support.hostile.corpus FOLDER``: hostile files, each with what must become of it.

No interpreter but Python is needed: the files are written byte by byte. ``mutations.py`` adds any number of others.
"""

from __future__ import annotations

import gzip
import io
import struct
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.support import models, wire
from tests.support.hostile import crashers, tars
from tests.support.hostile.fates import LATER, Hostile
from tests.support.wire import FLOAT, INT64, STRING, end, graph, message, model, node, simple, tensor


def corpus() -> list[Hostile]:
    written = [*_bytes(), *_sizes(), *_versions(), *_tensors(), *_external(), *_names(), *_shapes(), *_graphs()]
    return [*written, *_archives(), *_loops(), *crashers.crashers()]


def _refused(reason: str | None, **named: bytes) -> Iterator[Hostile]:
    for name, content in named.items():
        yield Hostile(name=name, content=content, reason=reason)


def _bytes() -> Iterator[Hostile]:
    whole = models.small_network()
    yield from _refused(
        "not_onnx",
        text=b"<script>alert(1)</script>",
        zeros=bytes(1000),
        truncated=models.truncated(),
        one_byte=b"\x08",
        length_beyond_the_end=b"\x3a\xff\xff\xff\xff\x0f" + bytes(100),
        varint_without_end=b"\xff" * 5000,
        no_graph=message((1, 8), (8, message((2, 13)))),
        gzip=gzip.compress(whole),
        gzip_bomb=gzip.compress(bytes(20_000_000)),
        zip=_zipped(whole),
        zip_bomb=_zipped(bytes(20_000_000)),
        script=b"#!/bin/sh\ntouch /tmp/tunesmith-was-here\n",
        pickle=b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94.",
        deep_protobuf=_deep_message(200_000),
    )
    # Two models in one file are one by protobuf's rules: fields of the later add to the earlier's.
    yield from _refused(None, twice=whole + whole, wrong_field_kinds=message((1, b"x"), (7, 3)), empty_graph=model(b""))


def _zipped(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../model.onnx", content)
    return packed.getvalue()


def _deep_message(levels: int) -> bytes:
    """A type of sequences of sequences …: protobuf's own parser is to refuse it."""
    inner = b""
    for _ in range(300):
        inner = message((4, message((1, inner))))
    groups = b"\x3b" * levels
    return model(graph([], [message((1, "x"), (2, inner))], [])) + groups


def _sizes() -> Iterator[Hostile]:
    fill = [node("ReduceMax", ["big"], ["most"], wire.integer("keepdims", 0)), node("Add", ["x", "most"], ["y"])]
    size = wire.whole("size", 10**10)
    repeats = wire.whole("repeats", 2**36)
    yield from _refused(
        "memory",
        constant_of_40_gb=models.memory_hog(),
        constant_in_two_steps=simple(
            [node("Constant", [], ["size"], wire.value_of(size)), node("ConstantOfShape", ["size"], ["big"]), *fill]
        ),
        input_of_4_tb=model(
            graph([node("Relu", ["x"], ["y"])], [end("x", (10**6, 10**6))], [end("y", (10**6, 10**6))])
        ),
        expand=simple([node("Expand", ["x", "size"], ["big"]), *fill], [wire.whole("size", 2**36, 4)], opset=11),
        tile=simple([node("Tile", ["x", "repeats"], ["big"]), *fill], [repeats], opset=11),
    )
    # Nobody but the run itself can tell how large these become: its limits are for that.
    chain = [node("Concat", [f"v{step}", f"v{step}"], [f"v{step + 1}"], wire.integer("axis", 0)) for step in range(40)]
    doubled = [node("Identity", ["x"], ["v0"]), *chain, node("ReduceMax", ["v40"], ["m"], wire.integer("keepdims", 0))]
    yield Hostile(
        name="doubled_forty_times", content=simple([*doubled, node("Add", ["x", "m"], ["y"])]), reason="memory"
    )
    unknown = [node("Cast", ["x"], ["n"], wire.integer("to", INT64)), node("ConstantOfShape", ["n"], ["big"])]
    most = [node("ReduceMax", ["big"], ["most"], wire.integer("keepdims", 0)), node("Add", ["x", "most"], ["y"])]
    large = tensor("c", [4], FLOAT, struct.pack("<4f", *[1e5] * 4))
    scaled = [node("Add", ["x", "c"], ["x1"]), node("Cast", ["x1"], ["n"], wire.integer("to", INT64))]
    later = [*scaled, unknown[1], *most]
    yield Hostile(name="constant_that_a_run_makes", content=simple(later, [large], opset=11), fate=LATER)
    dynamic = simple([node("Relu", ["x"], ["y"])], shape=("n", "m"))
    yield Hostile(name="shape_that_the_job_makes", content=dynamic, fate=LATER, shapes={"x": (10**6, 10**6)})


def _versions() -> Iterator[Hostile]:
    relu = graph([node("Relu", ["x"], ["y"])], [end("x", (4,))], [end("y", (4,))])
    yield from _refused(
        "opset_version",
        opset_999=model(relu, opset=999),
        opset_0=model(relu, opset=0),
        opset_negative=model(relu, opset=-1),
        opset_twice=model(relu, (8, message((2, 11)))),
        **{
            f"{domain}_{version}": model(relu, (8, message((1, domain), (2, version))))
            for domain, version in (("ai.onnx.ml", 999), ("ai.onnx.preview.training", 2), ("com.microsoft", 2))
        },
    )
    yield from _refused("ir_version", ir_99=model(relu, ir=99), ir_0=model(relu, ir=0), ir_huge=model(relu, ir=2**62))
    yield from _refused("checker", no_opset=message((1, 8), (7, relu)))


def _tensors() -> Iterator[Hostile]:
    add = [node("Add", ["x", "w"], ["y"])]
    both = message((1, 4), (2, FLOAT), (8, "w"), (9, bytes(16)), (4, struct.pack("<4f", 1, 2, 3, 4)))
    segment = message((1, 4), (2, FLOAT), (3, message((1, 0), (2, 4))), (8, "w"), (9, bytes(16)))
    yield from _refused(
        "tensor_size",
        fewer_bytes_than_declared=simple(add, [tensor("w", [4], FLOAT, bytes(3))]),
        more_bytes_than_declared=simple(add, [tensor("w", [4], FLOAT, bytes(1000))]),
        no_bytes_but_a_shape=simple(add, [tensor("w", [4000], FLOAT, b"")]),
        huge_shape_and_no_bytes=simple(add, [tensor("w", [2**20, 2**15], FLOAT, b"")]),
        raw_strings=simple(add, [tensor("w", [4], STRING, bytes(16))]),
        two_kinds_of_data=simple(add, [both]),
        segments=simple(add, [segment]),
        fewer_in_a_constant=simple(
            [node("Constant", [], ["w"], wire.value_of(tensor("", [4], FLOAT, bytes(3)))), *add]
        ),
    )
    yield from _refused(
        "dtype",
        dtype_99=simple(add, [tensor("w", [4], 99, bytes(16))]),
        dtype_undefined=simple(add, [tensor("w", [4], 0, bytes(16))]),
        dtype_of_an_input=model(graph([node("Relu", ["x"], ["y"])], [end("x", (4,), 77)], [end("y", (4,))])),
    )
    yield from _refused(
        "shape",
        negative_weights=simple(add, [tensor("w", [-4], FLOAT, bytes(16))]),
        overflowing_weights=simple(add, [tensor("w", [2**32, 2**32], FLOAT, b"")]),
    )
    mixed = model(graph(add, [end("x", (4,))], [end("y", (4,))], [tensor("w", [4], INT64, bytes(32))]))
    yield Hostile(name="dtypes_that_do_not_meet", content=mixed, fate=LATER)
    said = model(graph([node("Relu", ["x"], ["y"])], [end("x", (4,))], [end("y", (4,), INT64)]))
    yield Hostile(name="dtype_of_an_output", content=said, fate=LATER)


def elsewhere(path: str, name: str = "w", *, size: int = 4, **more: int) -> bytes:
    """A vector of float32 in another file."""
    places = [message((1, "location"), (2, path)), *(message((1, key), (2, str(more[key]))) for key in more)]
    return message((1, size), (2, FLOAT), (8, name), *((13, place) for place in places), (14, 1))


def _external() -> Iterator[Hostile]:
    add = [node("Add", ["x", "w"], ["y"])]
    inner = graph([node("Add", ["x", "v"], ["z"])], [], [end("z", (4,))], [elsewhere("/etc/passwd", "v")])
    branches = [wire.subgraph("then_branch", inner), wire.subgraph("else_branch", inner)]
    constant = node("Constant", [], ["w"], wire.value_of(elsewhere("/etc/passwd", "")))
    sneaky = message((1, 4), (2, FLOAT), (8, "w"), (9, bytes(16)), (13, message((1, "location"), (2, "/etc/passwd"))))
    attribute = message((1, "value"), (10, elsewhere("/etc/passwd")), (20, 9))
    yield from _refused(
        "external_data",
        external_absolute=simple(add, [elsewhere("/etc/passwd")]),
        external_above=simple(add, [elsewhere("../../../../etc/passwd")]),
        external_beside=simple(add, [elsewhere("server.json")]),
        external_device=simple(add, [elsewhere("/dev/zero")]),
        external_constant=simple([constant, *add]),
        external_in_a_branch=simple([node("If", ["c"], ["y"], *branches)], [wire.truth("c")]),
        external_and_raw=simple(add, [sneaky]),
        external_in_a_list=simple([node("Relu", ["x"], ["y"], attribute)]),
    )


def _archives() -> Iterator[Hostile]:
    whole, add = models.small_network(), [node("Add", ["x", "w"], ["y"])]

    def weights(*tensors: bytes) -> bytes:
        return tars.packed({"model.onnx": simple(add, tensors), "weights": bytes(16)})

    linked = tarfile.TarInfo("weights")
    linked.type, linked.linkname = tarfile.SYMTYPE, "/etc/passwd"
    yield from _refused(
        "archive",
        tar_with_a_path=tars.packed({"../../etc/cron.d/model.onnx": whole}),
        tar_with_an_absolute_path=tars.packed({"model.onnx": whole, "/etc/cron.d/weights": b"*"}),
        tar_of_two_models=tars.packed({"model.onnx": whole, "other/model.onnx": whole}),
        tar_without_a_model=tars.packed({"weights": bytes(16)}),
        tar_with_a_link=linked.tobuf() + tars.packed({"model.onnx": simple(add, [elsewhere("weights")])}),
        tar_with_a_file_twice=tars.packed({"model.onnx": whole, "./model.onnx": whole}),
        tar_that_ends_early=tars.packed({"model.onnx": whole})[:700],
        **{f"tar_of_{name}": content for name, content in tars.hostile().items()},
    )
    yield from _refused(
        "external_data",
        tar_and_an_absolute_path=weights(elsewhere("/etc/passwd")),
        tar_and_a_path_above=weights(elsewhere("../../../../etc/passwd")),
        tar_and_a_missing_file=weights(elsewhere("other")),
        tar_and_no_path=weights(elsewhere("")),
        tar_and_too_few_bytes=weights(elsewhere("weights", size=5)),
        tar_and_an_offset_beyond=weights(elsewhere("weights", offset=8)),
        tar_and_a_negative_offset=weights(elsewhere("weights", offset=-16)),
        tar_and_a_huge_offset=weights(elsewhere("weights", offset=10**30)),
        tar_and_another_length=weights(elsewhere("weights", length=12)),
    )
    large = [elsewhere("weights", f"w{place}", size=2**20) for place in range(600)]
    packed = tars.packed({"model.onnx": simple(add, [elsewhere("weights"), *large]), "weights": bytes(2**22)})
    yield from _refused("too_large", tar_of_the_same_bytes_600_times=packed)
    yield from _refused("not_onnx", tar_of_a_text=tars.packed({"model.onnx": b"<script>alert(1)</script>"}))


def _names() -> Iterator[Hostile]:
    def named(name: str) -> bytes:
        return model(graph([node("Relu", [name], ["y"])], [end(name, (4,))], [end("y", (4,))]))

    yield from _refused(
        "name",
        name_with_nul=named("x\0.npy"),
        name_with_newline=named("x\nHTTP/1.1 200 OK"),
        name_of_a_megabyte=named("x" * 1_000_000),
        terminal_escapes=named("\x1b]0;title\x07"),
        huge_symbol=model(graph([node("Relu", ["x"], ["y"])], [end("x", ("n" * 20_000,))], [end("y", None)])),
    )
    odd = {"path": "../../../../tmp/x", "absolute": "/etc/passwd", "page": "<img src=x onerror=alert(1)>", "dots": ".."}
    odd |= {
        "template": "{{ 7 * 7 }}",
        "python": "__import__('os').system('id')",
        "shell": "$(touch /tmp/x)",
        "dash": "-o",
    }
    for kind, name in odd.items():
        yield Hostile(name=f"name_like_{kind}", content=named(name), fate=LATER)
    yield from _refused("name", name_that_is_no_unicode=_not_unicode())
    yield from _refused("checker", no_name=named(""))
    add = node("Add", ["w", "w"], ["y"])
    yield from _refused(
        "duplicate_name",
        weights_twice=simple([node("Add", ["x", "w"], ["y"])], [wire.floats("w", 4), wire.floats("w", 4)]),
        inputs_twice=model(graph([node("Relu", ["x"], ["y"])], [end("x", (4,)), end("x", (4,))], [end("y", (4,))])),
        outputs_twice=model(graph([node("Relu", ["x"], ["y"])], [end("x", (4,))], [end("y", (4,)), end("y", (4,))])),
    )
    yield from _refused(
        "checker",
        values_twice=simple([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]),
        weight_that_is_computed=simple([add, node("Relu", ["x"], ["w"])], [wire.floats("w", 4)]),
    )


def _not_unicode() -> bytes:
    relu = message((1, b"\xff\xfe"), (2, "y"), (4, "Relu"))
    return model(graph([relu], [message((1, b"\xff\xfe"), (2, message((1, message((1, FLOAT))))))], [end("y", None)]))


def _shapes() -> Iterator[Hostile]:
    relu = [node("Relu", ["x"], ["y"])]
    yield from _refused(
        "shape",
        negative_input=simple(relu, shape=(-7, 4)),
        overflowing_input=simple(relu, shape=(2**40, 2**40)),
        sixty_five_dimensions=simple(relu, shape=(1,) * 65),
    )
    yield Hostile(name="empty_input", content=simple(relu, shape=(0, 4)), fate=LATER)
    wrong = model(graph(relu, [end("x", (4,))], [end("y", (5, 5))]))
    yield Hostile(name="conflicting_output", content=wrong, fate=LATER)
    yield Hostile(name="conflicting_weights", content=models.mismatched_channels(), fate=LATER)
    reshape = [node("Reshape", ["x", "s"], ["y"])]
    yield Hostile(name="impossible_reshape", content=simple(reshape, [wire.whole("s", 3, -1)]), fate=LATER)
    pads = [node("Pad", ["x", "p"], ["y"])]
    yield Hostile(name="negative_pads", content=simple(pads, [wire.whole("p", -100, -100)]), fate=LATER)
    pool = [node("MaxPool", ["x"], ["y"], wire.integers("kernel_shape", [2**30, 2**30]))]
    yield Hostile(name="huge_kernel", content=simple(pool, shape=(1, 1, 8, 8)), fate=LATER)
    gather = [node("Gather", ["x", "i"], ["y"])]
    yield Hostile(name="index_far_outside", content=simple(gather, [wire.whole("i", 2**40)]), fate=LATER)
    split = [node("Split", ["x", "s"], ["y", "z"])]
    yield Hostile(name="split_that_does_not_add_up", content=simple(split, [wire.whole("s", 3, 99)]), fate=LATER)


def _graphs() -> Iterator[Hostile]:
    yield from _refused(
        "checker",
        cycle=simple([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])]),
        self_cycle=simple([node("Add", ["x", "y"], ["y"])]),
        missing_input=simple([node("Add", ["x", "nobody"], ["y"])]),
        too_many_inputs=simple([node("Relu", ["x", "x", "x"], ["y"])]),
    )
    yield from _refused(
        "unsupported_operators",
        unknown_operator=simple([node("Frobnicate", ["x"], ["y"])]),
        unknown_domain=simple([node("Relu", ["x"], ["y"], domain="../../evil")]),
        foreign_domain=models.foreign_operators(),
        unknown_operators=simple([node("😀" * 3000 + str(i), ["x"], [f"y{i}"]) for i in range(30)]),
    )
    contrib = [
        node(
            "EPContext",
            ["x"],
            ["y"],
            message((1, "ep_cache_context"), (4, "/etc/passwd"), (20, 3)),
            domain="com.microsoft",
        )
    ]
    named = (8, message((1, "com.microsoft"), (2, 1)))
    yield Hostile(
        name="context_in_a_file", content=model(graph(contrib, [end("x", (4,))], [end("y", (4,))]), named), fate=LATER
    )
    yield from _refused("nested_too_deep", nested_branches=_nested_branches(30))
    yield from _refused("too_many", many_nodes=simple([node("Relu", ["x"], ["y"])] * 200_001))
    yield from _refused("too_many", function_bomb=_functions(levels=10, calls=10))
    yield from _refused("nested_too_deep", function_of_itself=_functions(levels=1, calls=1, circle=True))
    yield from _refused("nested_too_deep", functions_in_a_circle=_functions(levels=3, calls=1, circle=True))
    yield from _refused("not_onnx", nested_beyond_all=_nested_branches(200))
    long = [node("Relu", [f"v{step}"], [f"v{step + 1}"]) for step in range(20_000)]
    chain = [node("Identity", ["x"], ["v0"]), *long, node("Identity", ["v20000"], ["y"])]
    yield Hostile(name="twenty_thousand_operators", content=simple(chain), fate=LATER)
    yield Hostile(name="no_outputs", content=model(graph([], [end("x", (4,))], [])), fate=LATER)


def _nested_branches(levels: int) -> bytes:
    inner = graph([node("Identity", ["x"], ["z"])], [], [end("z", (4,))])
    for level in range(levels):
        branches = [wire.subgraph("then_branch", inner), wire.subgraph("else_branch", inner if level < 3 else _leaf())]
        inner = graph([node("If", ["c"], ["z"], *branches)], [], [end("z", (4,))])
    branches = [wire.subgraph("then_branch", inner), wire.subgraph("else_branch", _leaf())]
    return simple([node("If", ["c"], ["y"], *branches)], [wire.truth("c")])


def _leaf() -> bytes:
    return graph([node("Identity", ["x"], ["z"])], [], [end("z", (4,))])


def _functions(*, levels: int, calls: int, circle: bool = False) -> bytes:
    """Functions that each call the one before ``calls`` times."""
    made = []
    for level in range(levels):
        below = (level - 1) % levels if circle else level - 1
        operator, domain = (f"F{below}", "d") if below >= 0 else ("Relu", "")
        steps = [
            node(operator, [f"v{step}" if step else "x"], [f"v{step + 1}"], domain=domain) for step in range(calls)
        ]
        last = node("Identity", [f"v{calls}"], ["y"])
        imports = [(9, message((2, 13))), (9, message((1, "d"), (2, 1)))]
        body = message(
            (1, f"F{level}"), (4, "x"), (5, "y"), *((7, step) for step in [*steps, last]), *imports, (10, "d")
        )
        made.append((25, body))
    main = graph([node(f"F{levels - 1}", ["x"], ["y"], domain="d")], [end("x", (4,))], [end("y", (4,))])
    return model(main, (8, message((1, "d"), (2, 1))), *made)


def _loops() -> Iterator[Hostile]:
    yield from _refused(
        "endless_loop",
        loop_of_two_thousand_million=_loop(trips=2**31),
        loop_of_all_there_is=_loop(trips=2**63 - 1),
        loop_without_end=_loop(trips=None),
        loop_in_a_loop=_loop(trips=100_000, inner=_loop_node("body2", trips_name="trips")),
    )
    yield Hostile(name="loop_of_a_million", content=_loop(trips=1_000_000), fate=LATER)
    yield Hostile(name="loop_that_the_input_ends", content=_while(), fate=LATER)
    scan = graph(
        [node("Add", ["s", "e"], ["t"]), node("Identity", ["t"], ["o"])],
        [end("s", ()), end("e", ())],
        [end("t", ()), end("o", ())],
    )
    wide = [
        node("Scan", ["zero", "many"], ["last", "all"], wire.subgraph("body", scan), wire.integer("num_scan_inputs", 1))
    ]
    filled = [node("ConstantOfShape", ["size"], ["many"]), *wide, node("Add", ["x", "last"], ["y"])]
    zero = tensor("zero", [], FLOAT, bytes(4))
    yield Hostile(name="scan_of_ten_million", content=simple(filled, [zero, wire.whole("size", 10**7)]), fate=LATER)


def _loop_node(body_name: str, trips_name: str) -> bytes:
    body = _loop_body()
    return node("Loop", [trips_name, "go", "x"], [body_name], wire.subgraph("body", body))


def _loop_body(*more: bytes) -> bytes:
    steps = [*more, node("Identity", ["c"], ["c2"]), node("Relu", ["v"], ["v2"])]
    inputs = [end("i", (), INT64), end("c", (), wire.BOOL), end("v", (4,))]
    return graph(steps, inputs, [end("c2", (), wire.BOOL), end("v2", (4,))])


def _loop(*, trips: int | None, inner: bytes | None = None) -> bytes:
    body = _loop_body(*([inner] if inner else []))
    loop = node("Loop", ["trips" if trips is not None else "", "go", "x"], ["y"], wire.subgraph("body", body))
    count = tensor("trips", [], INT64, struct.pack("<q", trips or 0))
    return simple([loop], [count, wire.truth("go")])


def _while() -> bytes:
    """As exporters write "while": the largest trip count, and a condition of values, which here never end it."""
    less = [node("ReduceMax", ["v"], ["m"], wire.integer("keepdims", 0)), node("Less", ["m", "big"], ["c2"])]
    steps = [*less, node("Relu", ["v"], ["v2"])]
    inputs = [end("i", (), INT64), end("c", (), wire.BOOL), end("v", (4,))]
    body = graph(steps, inputs, [end("c2", (), wire.BOOL), end("v2", (4,))])
    loop = node("Loop", ["trips", "go", "x"], ["y"], wire.subgraph("body", body))
    count = tensor("trips", [], INT64, struct.pack("<q", 2**63 - 1))
    return simple([loop], [count, wire.truth("go"), tensor("big", [], FLOAT, struct.pack("<f", 1e30))])


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for each in corpus():
        (folder / f"{each.name}.onnx").write_bytes(each.content)
    sys.stdout.write(f"{len(corpus())} files in {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
