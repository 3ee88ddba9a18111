"""Real small models, spoiled: by bytes, and by protobuf's own structure, which keeps them models for longer.

Every mutation is made from a seed alone, so that what was found once is found again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import lru_cache

from tests.support import models, wire
from tests.support.hostile import corpus

_EDGES = (0, 1, 2, 7, 99, 127, 128, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
_DEEPEST = 8
"""Levels at which bytes are taken for a message."""
_MOST_STEPS = 4

Fields = list[tuple[int, int, "int | bytes | Fields"]]
"""``(number, wire type, value)``; what parses as a message is one."""


@lru_cache(maxsize=1)
def seeds() -> tuple[bytes, ...]:
    """Networks of many kinds, and the hostile files that are small."""
    made = [
        models.small_network(),
        models.dense_network(columns=8),
        models.unsupported_operators(),
        models.mismatched_channels(),
        models.foreign_operators(),
        models.plugin_operators(functions=True),
        models.lstm(),
        models.pooled_column(),
        models.reduce_mean_18(),
        models.grid_samples(opset=16, rank=4, modes=["bilinear"]),
        models.memory_hog(),
    ]
    spoiled = (each.content for each in corpus.corpus() if each.reason != "not_onnx")
    return (*made, *(content for content in spoiled if len(content) < 5000))


def mutated(seed: int) -> bytes:
    """The same bytes for the same seed."""
    source = random.Random(seed)  # noqa: S311 - mutations, not secrets
    content = source.choice(seeds()) if source.random() < 0.4 else source.choice(seeds()[:11])
    for _ in range(source.randint(1, _MOST_STEPS)):
        content = source.choice(_STEPS)(content, source)
    return content


def _flip(content: bytes, source: random.Random) -> bytes:
    spoiled = bytearray(content or b"\0")
    for _ in range(source.choice((1, 1, 1, 2, 8, 64))):
        spoiled[source.randrange(len(spoiled))] ^= 1 << source.randrange(8)
    return bytes(spoiled)


def _truncate(content: bytes, source: random.Random) -> bytes:
    return content[: source.randrange(len(content) + 1)]


def _cut(content: bytes, source: random.Random) -> bytes:
    start = source.randrange(len(content) + 1)
    return content[:start] + content[start + source.randrange(1, 40) :]


def _insert(content: bytes, source: random.Random) -> bytes:
    start = source.randrange(len(content) + 1)
    return content[:start] + source.randbytes(source.randrange(1, 40)) + content[start:]


def _splice(content: bytes, source: random.Random) -> bytes:
    other = source.choice(seeds())
    return content[: source.randrange(len(content) + 1)] + other[source.randrange(len(other)) :]


def _change_fields(content: bytes, source: random.Random) -> bytes:
    """Change one field somewhere: the lengths around it stay right."""
    fields = parsed(content)
    if not fields:
        return _flip(content, source)
    places = list(_places(fields))
    for _ in range(source.choice((1, 1, 2, 5))):
        parent, index = source.choice(places)
        if index < len(parent):
            source.choice(_CHANGES)(parent, index, source)
    return encoded(fields)


def _edge(parent: Fields, index: int, source: random.Random) -> None:
    number, kind, value = parent[index]
    if isinstance(value, int):
        parent[index] = (number, kind, source.choice(_EDGES))
    elif isinstance(value, bytes):
        changed = (b"", value * 50, source.randbytes(len(value)), b"../../../etc/passwd", b"\0", b"x" * 20_000)
        parent[index] = (number, kind, source.choice(changed))


def _drop(parent: Fields, index: int, _: random.Random) -> None:
    del parent[index]


def _repeat(parent: Fields, index: int, source: random.Random) -> None:
    value = parent[index][2]
    # Many times only what is small: repetitions within repetitions would be gigabytes.
    many = 200 if isinstance(value, int) or len(value) < 4 else 3
    parent[index:index] = [parent[index]] * source.choice((1, 1, 3, many))


def _swap(parent: Fields, index: int, source: random.Random) -> None:
    other = source.randrange(len(parent))
    parent[index], parent[other] = parent[other], parent[index]


def _renumber(parent: Fields, index: int, source: random.Random) -> None:
    _, kind, value = parent[index]
    parent[index] = (source.randint(1, 25), kind, value)


def _nest(parent: Fields, index: int, source: random.Random) -> None:
    number, kind, value = parent[index]
    if isinstance(value, list):
        parent[index] = (number, kind, [*value, (source.randint(1, 25), 2, [*value])])


_STEPS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_flip, _truncate, _cut, _insert, _splice),
    *([_change_fields] * 25),
)
_CHANGES: tuple[Callable[[Fields, int, random.Random], None], ...] = (
    *(_edge, _edge, _edge, _drop, _repeat, _swap, _renumber, _nest),
)


def _places(fields: Fields) -> Iterator[tuple[Fields, int]]:
    for index, (_, _, value) in enumerate(fields):
        yield fields, index
        if isinstance(value, list):
            yield from _places(value)


def parsed(content: bytes, depth: int = 0) -> Fields | None:
    """None for what is no message."""
    fields: Fields = []
    place = 0
    try:
        while place < len(content):
            key, place = _varint(content, place)
            number, kind = key >> 3, key & 7
            if number == 0 or kind not in (0, 1, 2, 5):
                return None
            if kind == 0:
                number_value, place = _varint(content, place)
                fields.append((number, kind, number_value))
                continue
            size, place = (8, place) if kind == 1 else (4, place) if kind == 5 else _varint(content, place)
            inner, place = content[place : place + size], place + size
            if place > len(content):
                return None
            message = parsed(inner, depth + 1) if kind == 2 and depth < _DEEPEST and inner else None
            fields.append((number, kind, inner if message is None else message))
    except IndexError:
        return None
    return fields


def encoded(fields: Fields) -> bytes:
    return b"".join(_encoded(*field) for field in fields)


def _encoded(number: int, kind: int, value: int | bytes | Fields) -> bytes:
    if isinstance(value, int):
        return wire.varint(number << 3 | kind) + wire.varint(value)
    inner = encoded(value) if isinstance(value, list) else value
    return wire.varint(number << 3 | kind) + (wire.varint(len(inner)) if kind == 2 else b"") + inner


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value & (2**64 - 1), place
        if shift > 63:
            raise IndexError
