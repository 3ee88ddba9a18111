"""Executables of Relax's virtual machine, in the serialized form that TVM 0.27 links into a library.

The format is TVM's (``src/runtime/vm/executable.cc``): little-endian, with lengths of 64 bits before lists and texts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from tuner.engines.runtime.library.plan import DTYPES, NotStandalone

_NAME = "relax.VMExecutable"
_MAGICS = (0xD225DE2F4214151D, 0xD225DE2F4214151E)
_VERSION = "0.14"
_TENSOR_MAGIC = 0xDD5E40F096B4A13F
_REGISTER_BITS = 56
_TYPES = {**{(each.code, each.bits): name for name, each in DTYPES.items()}, (1, 1): "bool", (6, 8): "bool"}

Item = TypeVar("Item")


@dataclass(frozen=True)
class DType:
    name: str


@dataclass(frozen=True)
class Array:
    dtype: str
    shape: tuple[int, ...]
    content: bytes | memoryview


Constant = Array | DType | tuple[int, ...] | str | int | float
"""A tuple is a shape."""


class ArgumentKind(IntEnum):
    """What an argument of an instruction is."""

    REGISTER = 0
    IMMEDIATE = 1
    CONSTANT = 2
    FUNCTION = 3


class FunctionKind(IntEnum):
    PACKED = 0
    VM = 1
    TIR = 2


class Match(IntEnum):
    """What ``match_shape`` does with a size (``tvm/runtime/vm/builtin.h``)."""

    EQUAL = 0
    """Compare it with the number given."""
    STORE = 1
    """Keep it in the shape heap at that position."""
    NOTHING = 2


LOADED = 1
"""What marks positions in the shape heap for ``make_shape`` and ``make_prim_value``; others are numbers themselves."""
NONZERO = "relax.run.nonzero"
"""The function of TVM's runtime for ``NonZero``."""


class Operation(IntEnum):
    CALL = 1
    RETURN = 2
    GOTO = 3
    IF = 4


@dataclass(frozen=True, kw_only=True)
class Function:
    kind: FunctionKind
    name: str
    start: int
    """First instruction."""
    end: int
    arguments: int


@dataclass(frozen=True, kw_only=True)
class Instruction:
    operation: Operation
    target: int
    """Register of the result, or the one to return; the condition of IF."""
    function: int = 0
    arguments: tuple[tuple[ArgumentKind, int], ...] = ()
    """Kind and number of each."""


@dataclass(frozen=True, kw_only=True)
class Executable:
    functions: Sequence[Function]
    constants: Sequence[Constant]
    instructions: Sequence[Instruction]


def read(blob: bytes | memoryview) -> Executable:
    """Read the content of ``__tvm_ffi__library_bin``. Raises NotStandalone for another version of the format."""
    try:
        return _read(_Reader(blob))
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        raise NotStandalone(f"an executable of an unknown form: {error}") from error


def _read(reader: _Reader) -> Executable:
    reader.number()
    # Which modules import which, as a sparse matrix; then the modules, of which the first is ours.
    reader.numbers()
    reader.numbers()
    if reader.text() != _NAME:
        raise ValueError("it is not of the virtual machine")
    reader.number()
    if reader.number() & 0xFFFFFFFFFFFFFFFF not in _MAGICS or reader.text() != _VERSION:
        raise ValueError("it has another version")
    functions = reader.items(reader.function)
    # Memory scopes.
    reader.items(lambda: (reader.number(), reader.text()))
    constants = reader.items(reader.constant)
    offsets, code = reader.numbers(), reader.numbers()
    return Executable(
        functions=functions, constants=constants, instructions=[_instruction(code, start) for start in offsets]
    )


def _instruction(code: Sequence[int], start: int) -> Instruction:
    operation, target = Operation(code[start]), code[start + 1]
    if operation is not Operation.CALL:
        return Instruction(operation=operation, target=target)
    function, count = code[start + 2 : start + 4]
    words = code[start + 4 : start + 4 + count]
    return Instruction(
        operation=operation, target=target, function=function, arguments=tuple(_argument(word) for word in words)
    )


def _argument(word: int) -> tuple[ArgumentKind, int]:
    value = word & ((1 << _REGISTER_BITS) - 1)
    if value >> (_REGISTER_BITS - 1):
        value -= 1 << _REGISTER_BITS
    return ArgumentKind(word >> _REGISTER_BITS & 0xFF), value


class _Reader:
    def __init__(self, blob: bytes | memoryview) -> None:
        self._blob = blob
        self._place = 0
        self._constants: dict[int, Callable[[], Constant]] = {
            1: self.number,
            2: self.number,
            3: lambda: float(self._unpack("<d")),
            5: lambda: DType(self._dtype()),
            65: self.text,
            69: lambda: tuple(self.numbers()),
            70: self._tensor,
        }

    def number(self) -> int:
        return int(self._unpack("<q"))

    def numbers(self) -> list[int]:
        return self.items(self.number)

    def text(self) -> str:
        return bytes(self._bytes(self.number())).decode()

    def items(self, read: Callable[[], Item]) -> list[Item]:
        return [read() for _ in range(self.number())]

    def function(self) -> Function:
        kind, name = FunctionKind(self._unpack("<i")), self.text()
        start, end, arguments, _ = (self.number() for _ in range(4))
        self.items(self.text)
        return Function(kind=kind, name=name, start=start, end=end, arguments=arguments)

    def constant(self) -> Constant:
        kind = int(self._unpack("<i"))
        if kind not in self._constants:
            raise ValueError(f"it has a constant of type {kind}")
        return self._constants[kind]()

    def _tensor(self) -> Array:
        if self.number() & 0xFFFFFFFFFFFFFFFF != _TENSOR_MAGIC:
            raise ValueError("a tensor has another version")
        # Reserved; then device type and id.
        self.number()
        self.number()
        rank, dtype = int(self._unpack("<i")), self._dtype()
        shape = tuple(self.number() for _ in range(rank))
        return Array(dtype=dtype, shape=shape, content=self._bytes(self.number()))

    def _dtype(self) -> str:
        code, bits, lanes = self._bytes(1)[0], self._bytes(1)[0], int(self._unpack("<H"))
        # Of "void" and vectors, no tensors are made.
        return _TYPES.get((code, bits), f"{code}:{bits}") + (f"x{lanes}" if lanes != 1 else "")

    def _unpack(self, form: str) -> Any:
        [value] = struct.unpack_from(form, self._blob, self._place)
        self._place += struct.calcsize(form)
        return value

    def _bytes(self, count: int) -> bytes | memoryview:
        if not 0 <= count <= len(self._blob) - self._place:
            raise ValueError(f"it ends at byte {len(self._blob)}")
        self._place += count
        return self._blob[self._place - count : self._place]
