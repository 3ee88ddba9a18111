"""Executables of Relax's virtual machine as plans, written here as TVM serializes them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tuner.engines.relax import executables, plans
from tuner.engines.runtime.library.plan import Call, Kind, NotStandalone

VOID, VM = 1 << 54, (1 << 54) + 1
FLOAT = struct.pack("<i", 5) + bytes([2, 32, 1, 0])
SPECS = [{"name": "x", "dtype": "float32", "shape": [2, 3]}]
RESULTS = [{"name": "y", "dtype": "float32", "shape": [6]}, {"name": "z", "dtype": "float32", "shape": [2]}]
NAMES = [
    "main", "vm.builtin.match_shape", "vm.builtin.alloc_storage", "vm.builtin.alloc_tensor", "scale",
    "vm.builtin.reshape", "vm.builtin.null_value", "vm.builtin.make_tuple", "vm.builtin.call_tir_dyn", "elsewhere",
    "vm.builtin.alloc_shape_heap", "vm.builtin.tensor_to_shape", "vm.builtin.make_shape", "vm.builtin.make_prim_value",
    "relax.run.unique", "relax.run.nonzero",
]  # fmt: skip
MATCH, STORAGE, TENSOR, SCALE, RESHAPE, NULL, TUPLE, DYNAMIC, ELSEWHERE = range(1, 10)
HEAP, VALUES, MAKE, NUMBER, UNIQUE, NONZERO = range(10, 16)


def number(value: int) -> bytes:
    return struct.pack("<q", value)


def text(value: str) -> bytes:
    return number(len(value)) + value.encode()


def numbers(values: list[int]) -> bytes:
    return number(len(values)) + b"".join(map(number, values))


def register(value: int) -> int:
    return value


def immediate(value: int) -> int:
    return 1 << 56 | value & (1 << 56) - 1


def constant(value: int) -> int:
    return 2 << 56 | value


def shape(*sizes: int) -> bytes:
    return struct.pack("<i", 69) + numbers(list(sizes))


def integers(*values: int) -> bytes:
    head = struct.pack("<iQQiii", 70, 0xDD5E40F096B4A13F, 0, 1, 0, 1) + bytes([0, 64, 1, 0])
    return head + number(len(values)) + number(8 * len(values)) + struct.pack(f"<{len(values)}q", *values)


def tensor(*values: float) -> bytes:
    head = struct.pack("<iQQiii", 70, 0xDD5E40F096B4A13F, 0, 1, 0, 1) + bytes([2, 32, 1, 0])
    return head + number(len(values)) + number(4 * len(values)) + struct.pack(f"<{len(values)}f", *values)


def call(function: int, target: int, *arguments: int) -> list[int]:
    return [1, target, function, len(arguments), *arguments]


LARGEST = {0: 7, 1: 3, 2: 14}
"""The most that numbers of the shape heap can be."""
CONSTANTS = [
    shape(64), shape(2, 3), FLOAT, shape(6), tensor(1.0, 2.0), struct.pack("<i", 65) + text("of x"), integers(2, 3)
]  # fmt: skip
STRAIGHT = [
    call(MATCH, VOID, register(0), VOID, *map(immediate, (2, 0, 2, 0, 3)), constant(5)),
    call(STORAGE, 1, VM, constant(0), immediate(0), constant(2), constant(5)),
    call(TENSOR, 2, register(1), immediate(0), constant(1), constant(2)),
    call(SCALE, VOID, register(0), constant(4), register(2)),
    call(RESHAPE, 3, register(2), constant(3)),
    call(NULL, 2),
    call(TUPLE, 4, register(3), constant(4)),
    [2, 4],
]  # fmt: skip


def blob(instructions: list[list[int]], *, version: str = "0.14", constants: list[bytes] | None = None) -> bytes:
    starts, code = [], []
    for words in instructions:
        starts.append(len(code))
        code += words
    main = struct.pack("<i", 1) + text("main") + b"".join(map(number, (0, len(instructions), 1, 8, 1))) + text("x")
    others = b"".join(map(number, (0, 0, -2, 0, 0)))
    functions = [main, *(struct.pack("<i", 0) + text(name) + others for name in NAMES[1:])]
    held = CONSTANTS if constants is None else constants
    executable = (
        struct.pack("<Q", 0xD225DE2F4214151E)
        + text(version)
        + number(len(functions))
        + b"".join(functions)
        + number(0)
        + number(len(held))
        + b"".join(held)
        + numbers(starts)
        + numbers(code)
    )
    inside = numbers([0, 1, 1]) + numbers([1]) + text("relax.VMExecutable") + number(len(executable)) + executable
    return number(len(inside)) + inside + text("_lib")


def read(instructions: list[list[int]], **more: Any) -> Any:
    return plans.read(blob(instructions, **more), {"__tvm_ffi_scale"}, SPECS, RESULTS, LARGEST)


def test_an_executable_becomes_calls_on_buffers() -> None:
    found = read(STRAIGHT)
    assert found.calls == [Call(symbol="__tvm_ffi_scale", name="scale", arguments=(0, 2, 1))]
    assert [(each.kind, each.index, each.shape, each.dtype) for each in found.tensors] == [
        (Kind.INPUT, 0, (2, 3), "float32"),
        (Kind.SCRATCH, 1, (2, 3), "float32"),
        (Kind.CONSTANT, 0, (2,), "float32"),
        (Kind.SCRATCH, 1, (6,), "float32"),
    ]
    # The second output is a weight.
    assert (found.inputs, found.outputs) == ([0], [3, 2])
    assert (found.input_names, found.output_names) == (["x"], ["y", "z"])
    assert found.constants == [struct.pack("<2f", 1.0, 2.0)]


OPEN = [
    call(HEAP, 1, VM, immediate(4)),
    call(MATCH, VOID, register(0), register(1), *map(immediate, (2, 0, 2, 0, 3)), constant(5)),
    call(VALUES, 2, constant(6)),
    call(MATCH, VOID, register(2), register(1), *map(immediate, (2, 1, 0, 1, 1)), constant(5)),
    call(SCALE, VOID, register(1)),
    call(MAKE, 3, register(1), *map(immediate, (2, 1, 0, 1, 1))),
    call(TENSOR, 4, VOID, immediate(0), register(3), constant(2)),
    call(NUMBER, 5, register(1), immediate(1), immediate(0)),
    call(SCALE, VOID, register(0), register(5), register(4)),
    call(MATCH, VOID, register(4), register(1), *map(immediate, (2, 2, 0, 0, 3)), constant(5)),
    call(MAKE, 6, register(1), *map(immediate, (1, 1, 2))),
    call(RESHAPE, 7, register(4), register(6)),
    call(TUPLE, 8, register(4), register(7)),
    [2, 8],
]  # fmt: skip


def test_sizes_that_a_run_decides_become_reads_of_them() -> None:
    found = read(OPEN)
    x, sizes, values, first, made, size, second, flat = range(8)
    assert found.sizes == 4
    reading = "tunesmith_read_sizes"
    assert [(each.symbol, each.arguments) for each in found.calls] == [
        (reading, (values, first, sizes)),
        ("__tvm_ffi_scale", (sizes,)),
        ("__tvm_ffi_scale", (x, size, made)),
        (reading, (sizes, second, sizes)),
    ]
    kinds = [(each.kind, each.index, each.shape, each.open) for each in found.tensors]
    assert kinds[sizes] == (Kind.SIZES, 0, (4,), ())
    assert kinds[size] == (Kind.SIZE, 0, (), ())
    # Of its second axis, the run only checks that it is 3.
    assert kinds[made] == (Kind.SCRATCH, 1, (7, 3), (0, None))
    assert kinds[flat] == (Kind.SCRATCH, 1, (14,), (2,))
    rules = [struct.unpack(f"<{len(each) // 8}q", each) for each in found.constants[1:]]
    # From where, to where, the least and the most.
    assert rules == [(0, 0, 0, 7, 1, 1, 0, 3), (1, -1, 3, 3)]
    assert found.open_axes == [(0, None), (2,)]
    # What may have held more until then keeps its room.
    wider = plans.read(blob(OPEN), {"__tvm_ffi_scale"}, SPECS, RESULTS, {**LARGEST, 1: 5})
    assert (wider.tensors[made].shape, wider.tensors[made].open) == ((7, 5), (0, 1))


def test_a_selection_has_a_size_of_its_own() -> None:
    nonzero = call(NONZERO, 9, register(0))
    matched = call(MATCH, VOID, register(9), register(1), *map(immediate, (2, 0, 2, 1, 0)), constant(5))
    found = read([OPEN[0], nonzero, matched, call(TUPLE, 8, register(9), register(9)), [2, 8]])
    x, sizes, count, rule, places, other = range(6)
    assert [(each.symbol, each.arguments) for each in found.calls] == [
        ("tunesmith_count_nonzero", (x, count)),
        ("tunesmith_read_sizes", (count, rule, sizes)),
        ("tunesmith_nonzero", (x, places)),
        ("tunesmith_read_sizes", (sizes, other, sizes)),
    ]
    assert (found.tensors[places].shape, found.tensors[places].open) == ((2, 6), (None, 4))
    # The shape heap that TVM's functions know does not have it.
    assert (found.sizes, found.tensors[sizes].shape) == (5, (4,))


@pytest.mark.parametrize(
    ("place", "words"),
    [
        # Of number 3, nobody knows how large it can be.
        (5, call(MAKE, 3, register(1), *map(immediate, (2, 1, 0, 1, 3)))),
        (3, call(MATCH, VOID, register(2), register(1), *map(immediate, (1, 1, 3)), constant(5))),
        # A size of an input would be one that the engine knows.
        (1, call(MATCH, VOID, register(0), register(1), *map(immediate, (2, 1, 0, 0, 3)), constant(5))),
        # A shape that no tensor of this type or size can be.
        (2, call(VALUES, 2, register(0))),
        # Another number than the one that the tensor has.
        (9, call(MATCH, VOID, register(0), register(1), *map(immediate, (2, 0, 2, 0, 4)), constant(5))),
        # An input has no room for more than it is.
        (11, call(RESHAPE, 7, register(0), register(6))),
        # Comparisons of two sizes.
        (9, call(MATCH, VOID, register(4), register(1), *map(immediate, (2, 3, 0, 0, 3)), constant(5))),
        (8, call(UNIQUE, 9, register(0))),
    ],
)
def test_sizes_without_a_limit_are_refused(place: int, words: list[int]) -> None:
    with pytest.raises(NotStandalone, match="only a run decides"):
        read([*OPEN[:place], words, *OPEN[place + 1 :]])


@pytest.mark.parametrize(
    ("place", "words", "told"),
    [
        (3, call(ELSEWHERE, VOID, register(0)), "functions of TVM's runtime: elsewhere"),
        (3, call(DYNAMIC, VOID, register(0)), "functions of TVM's runtime: vm.builtin.call_tir_dyn"),
        (3, call(0, VOID, register(0)), "calls of other functions of the virtual machine: main"),
        (3, call(SCALE, VOID, register(0), immediate(3)), "arguments or results that are no tensors"),
        (3, call(SCALE, VOID, 3 << 56, register(0)), "functions as arguments"),
        (3, [4, 0, 2], "control flow"),
        (3, [3, -2], "control flow"),
        (
            0,
            call(MATCH, VOID, register(0), VOID, immediate(1), immediate(1), immediate(0), constant(5)),
            "only a run decides",
        ),
        (7, call(NULL, 4), "does not return"),
        (7, [2, 3], "other outputs"),
        (3, [9, 0], "unknown form: 9 is not a valid Operation"),
    ],
)
def test_what_is_no_straight_list_of_kernels_is_refused(place: int, words: list[int], told: str) -> None:
    with pytest.raises(NotStandalone, match=told):
        read([*STRAIGHT[:place], words, *STRAIGHT[place + 1 :]])


def test_other_versions_and_damaged_blobs_are_refused() -> None:
    with pytest.raises(NotStandalone, match="another version"):
        read(STRAIGHT, version="0.15")
    with pytest.raises(NotStandalone, match="a constant of type 72"):
        read(STRAIGHT, constants=[struct.pack("<i", 72)])
    whole = blob(STRAIGHT)
    for end in range(0, len(whole) - len(text("_lib")), 7):
        with pytest.raises(NotStandalone, match="unknown form"):
            executables.read(whole[:end])


def test_immediates_may_be_negative() -> None:
    [first, *_] = executables.read(blob([call(NULL, 1, immediate(-5)), [2, 1]])).instructions
    assert first.arguments == ((executables.ArgumentKind.IMMEDIATE, -5),)
