"""The tables of plans in C, as ``c/plan.h`` declares them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.engines.runtime.library import memory
from tuner.engines.runtime.library.memory import Memory
from tuner.engines.runtime.library.plan import Kind, NotStandalone, Plan, Tensor, dtype
from tuner.engines.runtime.library.sizes import Sizes

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a library says about itself."""

    model: str
    """sha256 of the ONNX file in hex; may be empty."""
    toolchain: str
    target: str
    threads: int
    features: Sequence[str]
    """LLVM's names of the target's CPU features."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    size: int
    """Bytes."""
    offsets: tuple[int, ...]
    """Bytes from the start, of each constant."""
    parts: tuple[bytes | memoryview, ...]
    """The content, in pieces: the constants themselves, and padding."""

    def digest(self) -> bytes:
        """Return the BLAKE2b of the content, 32 bytes."""
        digest = hashlib.blake2b(digest_size=32)
        for part in self.parts:
            digest.update(part)
        return digest.digest()


def weights(constants: Iterable[bytes | memoryview]) -> Weights:
    """Join constants at aligned offsets; equal ones are stored once."""
    parts: list[bytes | memoryview] = []
    known: dict[bytes | memoryview, int] = {}
    offsets = []
    end = 0
    for constant in constants:
        if constant not in known:
            known[constant] = memory.aligned(end)
            parts += (bytes(known[constant] - end), constant)
            end = known[constant] + len(constant)
        offsets.append(known[constant])
    return Weights(size=end, offsets=tuple(offsets), parts=tuple(parts))


@dataclass(frozen=True, kw_only=True)
class WeightsFile:
    """The file beside the library that has the weights."""

    name: str
    digest: bytes


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry point of a library."""

    name: str
    plan: Plan
    memory: Memory
    offsets: tuple[int, ...]
    """Of its constants in the weights."""


def symbol(number: int) -> str:
    """Return the symbol of an entry point's tables."""
    return f"tunesmith_entry_{number}"


def entry(number: int, made: Entry) -> str:
    """Return ``entry_N.c``: the tables of the entry point's kernels, which is all that refers to these.

    Raises NotStandalone for symbols that C cannot name.
    """
    plan, planned = made.plan, made.memory
    shapes = _Shapes()
    tensors = [_tensor(plan, each, planned, made.offsets, shapes) for each in plan.tensors]
    arguments = [number for call in plan.calls for number in call.arguments]
    calls, first = [], 0
    for place, call in enumerate(plan.calls):
        sizes = (f"{planned.workspaces.get(place, 0)}u", f"{call.workspace.first}u", f"{call.workspace.other}u")
        is_open = any(_is_open(plan.tensors[number]) for number in call.arguments)
        calls.append(_row(_identifier(call.symbol), first, len(call.arguments), int(is_open), *sizes))
        first += len(call.arguments)
    longest = max((len(call.arguments) for call in plan.calls), default=0)
    steps = ("calls", "arguments", len(arguments), longest)
    open_axes = sum(len(each.open) for each in plan.tensors)
    ends = ("copies", len(planned.copies), "outputs", plan.sizes, open_axes)
    tables = _row(plan.convention, "tensors", len(tensors), *steps, *ends)
    return "\n".join(
        [
            '#include <stddef.h>\n\n#include "plan.h"\n',
            *(f"extern void {_identifier(name)}(void);" for name in sorted({call.symbol for call in plan.calls})),
            *shapes.lines,
            _table("plan_tensor", "tensors", tensors),
            _table("uint32_t", "arguments", map(str, arguments)),
            _table("plan_call", "calls", calls),
            _table("plan_copy", "copies", (_row(*copy) for copy in planned.copies)),
            _table("uint32_t", "outputs", map(str, plan.outputs)),
            f"extern const plan_entry {symbol(number)};",
            f"const plan_entry {symbol(number)} = {tables};\n",
        ]
    )


def model(
    entries: Sequence[Entry], weight_bytes: int, facts: Facts, sizes: Sizes | None, outside: WeightsFile | None = None
) -> str:
    """Return ``model.c``, for weights inside the library or in a file. A library of one size has no ``sizes``."""
    shapes = _Shapes()
    tables, rows = [], []
    for number, each in enumerate(entries):
        plan = each.plan
        inputs = [_described(plan, *pair, shapes) for pair in zip(plan.input_names, plan.inputs, strict=True)]
        outputs = [_described(plan, *pair, shapes) for pair in zip(plan.output_names, plan.outputs, strict=True)]
        tables += [
            _table("tunesmith_tensor", f"inputs{number}", inputs),
            _table("tunesmith_tensor", f"outputs{number}", outputs),
            _table("char *const", f"kernels{number}", (_text(call.name) for call in plan.calls)),
            f"extern const plan_entry {symbol(number)};",
        ]
        names = (f"inputs{number}", f"outputs{number}", len(inputs), len(outputs))
        kernels = (f"kernels{number}", len(plan.calls), f"{each.memory.arena_bytes}u")
        rows.append(_row(_text(each.name), *names, *kernels))
    facts_row = _row(
        *map(_text, (facts.model, facts.toolchain, facts.target)),
        *(facts.threads, f"{weight_bytes}u", "entries", len(entries)),
    )
    sized = (_row("NULL", 0, "NULL", "NULL", "NULL", "NULL"), "NULL", "NULL", "NULL")
    if sizes:
        tables += _sizes(sizes, entries[0].plan)
        dimensions = _row("dimensions", len(sizes.dimensions), "values", "input_axes", "output_axes", "NULL")
        sized = (dimensions, "seconds", "inputs", "outputs")
    elif open_axes := entries[0].plan.open_axes:
        tables += _axes("open_axes", open_axes)
        sized = (_row("NULL", 0, "NULL", "NULL", "NULL", "open_axes"), *sized[1:])
    file = (_text(outside.name), "digest") if outside else ("NULL", "NULL")
    return "\n".join(
        [
            '#include <stddef.h>\n\n#include "plan.h"\n',
            *shapes.lines,
            *tables,
            _table("char *const", "features", [*map(_text, facts.features), "NULL"]),
            _table("tunesmith_entry", "entries", rows),
            _table("plan_entry *const", "plans", (f"&{symbol(number)}" for number in range(len(entries)))),
            _table("unsigned char", "digest", map(str, outside.digest)) if outside else "",
            f"const plan tunesmith_plan = {_row(facts_row, 'plans', *sized, 'features', *file)};\n",
        ]
    )


def _sizes(sizes: Sizes, plan: Plan) -> list[str]:
    """The tables of dimensions, and of the inputs and outputs of all entry points, as those of ``plan``."""
    values = [str(value) for entry in sizes.values for value in entry]

    def operands(numbers: Sequence[int], paddings: Sequence[bytes]) -> list[str]:
        types = [dtype(plan.tensors[number].dtype, plan.convention) for number in numbers]
        return [_row(kind.bytes, _row(*(padding or b"\0"))) for kind, padding in zip(types, paddings, strict=True)]

    return [
        _table(
            "tunesmith_dimension",
            "dimensions",
            (_row(_text(each.name), int(each.splits), int(each.pads)) for each in sizes.dimensions),
        ),
        _table("int64_t", "values", values),
        *_axes("input_axes", sizes.input_axes),
        *_axes("output_axes", sizes.output_axes),
        _table("double", "seconds", map(repr, sizes.seconds)),
        _table("plan_operand", "inputs", operands(plan.inputs, sizes.padding)),
        _table("plan_operand", "outputs", operands(plan.outputs, [b""] * len(plan.outputs))),
    ]


def _is_open(tensor: Tensor) -> bool:
    return bool(tensor.open) or tensor.kind is Kind.SIZE


def _axes(name: str, axes: Sequence[Sequence[int | None]]) -> list[str]:
    rows = [_positions(f"{name}{number}", each) for number, each in enumerate(axes)]
    return [*rows, _table("int32_t *const", name, (f"{name}{number}" for number in range(len(axes))))]


def _positions(name: str, axes: Iterable[int | None]) -> str:
    return _table("int32_t", name, ("-1" if axis is None else str(axis) for axis in axes))


class _Shapes:
    """C arrays of shapes, and of the positions of open sizes, each once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: dict[tuple[int, ...], str] = {}
        self._open: dict[tuple[int | None, ...], str] = {}

    def __call__(self, shape: tuple[int, ...]) -> str:
        if shape not in self._known:
            name = self._known[shape] = f"shape{len(self._known)}"
            # C has no empty arrays.
            self.lines.append(f"static const int64_t {name}[] = {_row(*shape) if shape else '{0}'};")
        return self._known[shape]

    def open(self, axes: tuple[int | None, ...]) -> str:
        if axes and axes not in self._open:
            name = self._open[axes] = f"open{len(self._open)}"
            self.lines.append(_positions(name, axes))
        return self._open[axes] if axes else "NULL"


def _tensor(plan: Plan, tensor: Tensor, planned: Memory, offsets: Sequence[int], shapes: _Shapes) -> str:
    place, at = _place(tensor, planned, offsets)
    kind = dtype(tensor.dtype, plan.convention)
    return _row(
        place, kind.code, kind.bits, len(tensor.shape), shapes(tensor.shape), f"{at}u", shapes.open(tensor.open)
    )


def _place(tensor: Tensor, planned: Memory, offsets: Sequence[int]) -> tuple[str, int]:
    if tensor.kind is Kind.INPUT:
        return "PLACE_INPUT", tensor.index
    if tensor.kind is Kind.CONSTANT:
        return "PLACE_WEIGHTS", offsets[tensor.index]
    if tensor.kind is Kind.SIZES:
        return "PLACE_SIZES", 0
    if tensor.kind is Kind.SIZE:
        return "PLACE_SIZE", tensor.index
    if tensor.index in planned.in_output:
        return "PLACE_OUTPUT", planned.in_output[tensor.index]
    # A tensor that no call uses has no place, and needs none.
    return "PLACE_ARENA", planned.offsets.get(tensor.index, 0)


def _described(plan: Plan, name: str, number: int, shapes: _Shapes) -> str:
    tensor = plan.tensors[number]
    size = plan.bytes_of(tensor)
    return _row(_text(name), _text(tensor.dtype), shapes(tensor.shape), len(tensor.shape), f"{size}u")


def _table(kind: str, name: str, rows: Iterable[str]) -> str:
    # C has no empty arrays; the count beside it is 0.
    return f"static const {kind} {name}[] = {{\n    " + (",\n    ".join(rows) or "0") + "};"


def _row(*values: object) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _identifier(symbol: str) -> str:
    if not _IDENTIFIER.fullmatch(symbol):
        raise NotStandalone(f"a kernel with the symbol {symbol!r}")
    return symbol


def _text(value: str) -> str:
    """A C string, with three octal digits for each byte that is not printable ASCII."""
    encoded = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in value.encode()
    )
    return f'"{encoded}"'
