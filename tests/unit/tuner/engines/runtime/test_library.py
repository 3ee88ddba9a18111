"""Plans of memory, and the C tables of a plan; tests/contract compiles and runs them."""

from __future__ import annotations

import dataclasses
import hashlib
import random

import pytest

from tuner.engines.runtime.library import memory, source
from tuner.engines.runtime.library.plan import Call, Convention, Kind, NotStandalone, Plan, Tensor, Workspace, dtype

FACTS = source.Facts(model="", toolchain="t", target="x", threads=1, features=("avx2",))


def tensor(kind: Kind, index: int, *shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(dtype=dtype, shape=shape, kind=kind, index=index)


def plan(tensors: list[Tensor], calls: list[tuple[int, ...]], outputs: list[int], **more: object) -> Plan:
    made = Plan(
        convention=Convention.PACKED,
        tensors=tensors,
        calls=[Call(symbol=f"k{place}", name=f"k{place}", arguments=each) for place, each in enumerate(calls)],
        inputs=[place for place, each in enumerate(tensors) if each.kind is Kind.INPUT],
        outputs=outputs,
        input_names=[f"in{place}" for place, each in enumerate(tensors) if each.kind is Kind.INPUT],
        output_names=[f"out{place}" for place, _ in enumerate(outputs)],
        constants=[],
    )
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def chain(*sizes: int) -> Plan:
    """An input, and operators that each read what the one before wrote."""
    tensors = [tensor(Kind.INPUT, 0, 10), *(tensor(Kind.SCRATCH, place, size) for place, size in enumerate(sizes))]
    return plan(tensors, [(place, place + 1) for place in range(len(sizes))], [len(sizes)])


def test_memory_is_used_again_once_nobody_reads_it() -> None:
    found = memory.lay_out(chain(1000, 1000, 1000, 1000, 8), 1)
    # Two live at a time; the last is the caller's.
    assert found.arena_bytes == 2 * 4032
    assert found.in_output == {4: 0}
    assert found.copies == ()


def test_a_small_buffer_fits_into_a_gap() -> None:
    # Buffer 0 (large) ends before buffer 2 starts, beside which 1 and 3 live.
    found = memory.lay_out(chain(100_000, 16, 90_000, 16, 8), 1)
    assert found.arena_bytes == 400_000 + 64


@pytest.mark.parametrize("seed", range(40))
def test_buffers_that_live_at_the_same_time_never_overlap(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - shapes, not secrets
    count = rng.randint(1, 30)
    tensors = [tensor(Kind.SCRATCH, place, rng.choice([0, 1, 7, 16, 100, 5000])) for place in range(count)]
    # Reshaped views of a buffer, some of them shorter.
    tensors += [tensor(Kind.SCRATCH, rng.randrange(count), 1) for _ in range(3)]
    calls = [tuple(rng.sample(range(len(tensors)), rng.randint(1, 4) % len(tensors) or 1)) for _ in range(count)]
    made = plan(tensors, calls, [rng.randrange(len(tensors)) for _ in range(rng.randint(1, 3))])
    spaces = [Workspace(first=rng.choice([0, 64, 6400]), other=rng.choice([0, 64])) for _ in calls]
    made = dataclasses.replace(
        made,
        calls=[dataclasses.replace(call, workspace=space) for call, space in zip(made.calls, spaces, strict=True)],
    )
    found = memory.lay_out(made, 3)
    lives: dict[int, tuple[int, int]] = {}
    touched = [*enumerate(calls), (len(calls), tuple(made.outputs))]
    for when, numbers in touched:
        for number in numbers:
            first, _ = lives.get(tensors[number].index, (when, when))
            lives[tensors[number].index] = (first, when)
    placed = [(found.offsets[index], 4 * tensors[index].shape[0], *lives[index]) for index in found.offsets]
    placed += [
        (start, spaces[call].first + 2 * spaces[call].other, call, call) for call, start in found.workspaces.items()
    ]
    assert set(found.workspaces) == {call for call, space in enumerate(spaces) if space != Workspace()}
    for place, (start, size, first, last) in enumerate(placed):
        assert start % memory.ALIGNMENT == 0
        assert start + size <= found.arena_bytes
        for other, other_size, other_first, other_last in placed[:place]:
            if first <= other_last and other_first <= last:
                assert start + size <= other or other + other_size <= start
    # Every output comes from somewhere.
    assert sorted([*found.in_output.values(), *(place for _, place in found.copies)]) == list(range(len(made.outputs)))


def test_what_kernels_cannot_write_in_place_is_copied() -> None:
    tensors = [
        tensor(Kind.INPUT, 0, 4),
        tensor(Kind.SCRATCH, 0, 4),
        tensor(Kind.SCRATCH, 0, 2, 2),
        tensor(Kind.SCRATCH, 1, 4),
        tensor(Kind.SCRATCH, 1, 1),
    ]
    found = memory.lay_out(plan(tensors, [(0, 1), (2, 3)], [0, 2, 1, 4]), 1)
    assert found.in_output == {0: 1}
    # The input; the same buffer again; a part of a larger buffer.
    assert found.copies == ((0, 0), (1, 2), (4, 3))
    assert found.offsets == {1: 0}


def test_equal_weights_are_stored_once_and_aligned() -> None:
    packed = source.weights([b"ab", b"", b"x" * 65, b"ab"])
    content = b"ab" + bytes(62) + b"x" * 65
    assert (packed.offsets, packed.size, b"".join(packed.parts)) == ((0, 64, 64, 0), len(content), content)
    assert packed.digest() == hashlib.blake2b(content, digest_size=32).digest()


def test_tables_hold_what_the_driver_needs() -> None:
    made = chain(4, 4)
    odd = dataclasses.replace(made, input_names=['a "name"\\?\n'], output_names=["ünlü"])
    entry = source.Entry(name="main", plan=odd, memory=memory.lay_out(odd, 1), offsets=())
    text = source.model([entry], 0, FACTS, None) + source.entry(0, entry)
    assert 'static const tunesmith_tensor inputs0[] = {\n    {"a \\042name\\042\\134\\077\\012", "float32", ' in text
    assert '"\\303\\274nl\\303\\274"' in text
    assert "extern void k0(void);\nextern void k1(void);" in text
    assert "{PLACE_INPUT, 2, 32, 1, shape0, 0u, NULL}" in text
    assert "{PLACE_OUTPUT, 2, 32, 1, shape1, 0u, NULL}" in text


@pytest.mark.parametrize(
    ("convention", "name", "code", "bits", "size"),
    [
        (Convention.PACKED, "bool", 1, 1, 1),
        (Convention.FFI, "bool", 6, 8, 1),
        (Convention.FFI, "bfloat16", 4, 16, 2),
        (Convention.PACKED, "int64", 0, 64, 8),
        (Convention.PACKED, "uint8", 1, 8, 1),
    ],
)
def test_types_are_those_of_dlpack(convention: Convention, name: str, code: int, bits: int, size: int) -> None:
    found = dtype(name, convention)
    assert (found.code, found.bits, found.bytes) == (code, bits, size)


def test_what_has_no_place_in_c_is_refused() -> None:
    with pytest.raises(NotStandalone, match="tensors of type float8_e4m3fn"):
        memory.lay_out(plan([tensor(Kind.SCRATCH, 0, 4, dtype="float8_e4m3fn")], [(0,)], [0]), 1)
    made = chain(4)
    wrong = dataclasses.replace(made, calls=[Call(symbol="a-b", name="", arguments=(0, 1))])
    entry = source.Entry(name="main", plan=wrong, memory=memory.lay_out(wrong, 1), offsets=())
    with pytest.raises(NotStandalone, match="symbol 'a-b'"):
        source.entry(0, entry)
