"""Plans of executables of Relax's virtual machine: ``main`` is run once with descriptions in place of tensors."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.engines.protocol.messages import Json
from tuner.engines.relax import executables
from tuner.engines.relax.executables import (
    LOADED,
    NONZERO,
    ArgumentKind,
    Array,
    DType,
    Executable,
    Function,
    FunctionKind,
    Instruction,
    Match,
    Operation,
)
from tuner.engines.runtime.library.plan import Call, Convention, Kind, NotStandalone, Plan, Tensor, UnknownSizes

_MAIN = "main"
PREFIX = "__tvm_ffi_"
"""Of the symbols of kernels."""
_SELECTS = "relax.run."
"""Prefix of functions of TVM's runtime that return as many rows as the values say."""
_READ_SIZES, _COUNT_NONZERO, _WRITE_NONZERO = "tunesmith_read_sizes", "tunesmith_count_nonzero", "tunesmith_nonzero"
"""Kernels of the libraries' own, in ``c/open.c``."""


def read(
    blob: bytes | memoryview,
    symbols: Collection[str],
    inputs: Sequence[Json],
    outputs: Sequence[Json],
    largest: Mapping[int, int],
) -> Plan:
    """Return the plan of an executable, in the form in which it is linked into libraries.

    ``symbols`` are defined in the objects of its kernels. ``inputs`` and ``outputs`` are ``{name, dtype, shape}`` in
    the order of arguments and results, ``largest`` as ``open_sizes.largest`` returns it. Raises NotStandalone.
    """
    return _Reader(executables.read(blob), symbols, inputs, largest).plan(outputs)


@dataclass(frozen=True)
class _Size:
    """A size that a run decides."""

    position: int


@dataclass(frozen=True)
class _Values:
    """A shape that is the content of a tensor."""

    tensor: int


class _Reader:
    """Registers hold positions of tensors (int), lists of these, shapes (tuples, or _Values), or None."""

    def __init__(
        self, executable: Executable, symbols: Collection[str], inputs: Sequence[Json], largest: Mapping[int, int]
    ) -> None:
        self._executable = executable
        self._symbols = symbols
        self._inputs = inputs
        self._largest = dict(largest)
        self._known: set[int] = set()
        """Sizes that a run decides but that can only be the largest."""
        self._sizes = 0
        self._heap_at: int | None = None
        self._tensors: list[Tensor] = []
        self._constants: list[bytes | memoryview] = []
        self._places: dict[int, int] = {}
        self._buffers = 0
        self._calls: list[Call] = []
        self._registers: dict[int, Any] = {}
        self._builtins: dict[str, Callable[..., Any]] = {
            "alloc_shape_heap": self._heap,
            "alloc_storage": lambda *_: None,
            "alloc_tensor": self._alloc,
            "check_tensor_info": lambda *_: None,
            "copy": lambda value: value,
            "kill_object": lambda *_: None,
            "make_prim_value": self._number,
            "make_shape": self._shape,
            "make_tuple": lambda *values: list(values),
            "match_shape": self._match,
            "null_value": lambda *_: None,
            "reshape": self._reshape,
            "tensor_to_shape": lambda given: _Values(self._tensor(given)),
            "tuple_getitem": lambda values, place: values[place.value],
        }

    def plan(self, outputs: Sequence[Json]) -> Plan:
        main = next((each for each in self._executable.functions if each.name == _MAIN), None)
        if main is None or main.arguments != len(self._inputs):
            raise NotStandalone("a main function with other inputs than the model's")
        for place, spec in enumerate(self._inputs):
            self._registers[place] = self._add(spec["dtype"], tuple(spec["shape"]), Kind.INPUT, place)
        results = self._run(main)
        if len(results) != len(outputs):
            raise NotStandalone("other outputs than the model's")
        return Plan(
            convention=Convention.FFI,
            tensors=[self._settled(each) for each in self._tensors],
            calls=self._calls,
            inputs=list(range(len(self._inputs))),
            outputs=results,
            input_names=[spec["name"] for spec in self._inputs],
            output_names=[spec["name"] for spec in outputs],
            constants=self._constants,
            sizes=self._sizes,
        )

    def _run(self, main: Function) -> list[int]:
        for instruction in self._executable.instructions[main.start : main.end]:
            if instruction.operation is Operation.RETURN:
                found = self._registers[instruction.target]
                results = found if isinstance(found, list) else [found]
                return [self._tensor(each) for each in results]
            if instruction.operation is not Operation.CALL:
                raise NotStandalone("control flow")
            self._registers[instruction.target] = self._call(instruction)
        raise NotStandalone("a main function that does not return")

    def _call(self, instruction: Instruction) -> Any:
        function = self._executable.functions[instruction.function]
        arguments = [self._value(kind, number) for kind, number in instruction.arguments]
        name = function.name.removeprefix("vm.builtin.")
        if function.kind is not FunctionKind.PACKED:
            raise NotStandalone(f"calls of other functions of the virtual machine: {function.name}")
        if name != function.name:
            if name not in self._builtins:
                raise NotStandalone(f"functions of TVM's runtime: {function.name}")
            return self._builtins[name](*arguments)
        symbol = PREFIX + function.name
        if function.name == NONZERO:
            return self._nonzero(self._tensor(arguments[0]))
        if function.name.startswith(_SELECTS):
            raise UnknownSizes
        if symbol not in self._symbols:
            raise NotStandalone(f"functions of TVM's runtime: {function.name}")
        tensors = tuple(self._tensor(each) for each in arguments)
        self._calls.append(Call(symbol=symbol, name=function.name, arguments=tensors))
        return None

    def _value(self, kind: ArgumentKind, number: int) -> Any:
        if kind is ArgumentKind.REGISTER:
            return self._registers.get(number)
        if kind is ArgumentKind.IMMEDIATE:
            return _Immediate(number)
        if kind is ArgumentKind.FUNCTION:
            raise NotStandalone("functions as arguments")
        constant = self._executable.constants[number]
        return self._constant(number, constant) if isinstance(constant, Array) else constant

    def _constant(self, number: int, constant: Array) -> int:
        if number not in self._places:
            self._places[number] = self._add_constant(constant)
        return self._places[number]

    def _add_constant(self, constant: Array) -> int:
        self._constants.append(constant.content)
        return self._add(constant.dtype, constant.shape, Kind.CONSTANT, len(self._constants) - 1)

    def _alloc(self, _storage: Any, _offset: Any, shape: Any, dtype: Any) -> int:
        if not isinstance(dtype, DType):
            raise NotStandalone("tensors of types that only a run decides")
        return self._scratch(dtype.name, shape)

    def _scratch(self, dtype: str, shape: Any) -> int:
        self._buffers += 1
        return self._add(dtype, shape, Kind.SCRATCH, self._buffers)

    def _reshape(self, given: Any, shape: Any) -> int:
        source = self._tensors[self._tensor(given)]
        made = self._add(source.dtype, shape, source.kind, source.index)
        if self._tensors[made].open and source.kind is not Kind.SCRATCH:
            # Only scratch buffers grow with their largest tensor.
            raise UnknownSizes
        return made

    def _heap(self, _: Any, count: Any) -> int:
        self._sizes = count.value
        self._heap_at = self._add("int64", (self._sizes,), Kind.SIZES, 0)
        return self._heap_at

    def _shape(self, _heap: Any, _rank: Any, *rules: Any) -> tuple[int | _Size, ...]:
        return tuple(_Size(value) if code == LOADED else value for code, value in _pairs(rules))

    def _number(self, _heap: Any, code: Any, value: Any) -> int:
        if code.value != LOADED:
            raise NotStandalone("numbers as arguments")
        return self._add("int64", (), Kind.SIZE, value.value)

    def _match(self, given: Any, _heap: Any, _rank: Any, *rules: Any) -> None:
        """Let the run read sizes, and check those that it decides. Others are as the engine checked them."""
        # The last argument is the text of the error.
        pairs = _pairs(rules[:-1])
        source: Any = given.tensor if isinstance(given, _Values) else self._heap_at
        read: list[int] = []
        for size, (code, value) in zip(self._sizes_of(given, len(pairs)), pairs, strict=True):
            if code not in set(Match):
                raise UnknownSizes
            if not isinstance(size, _Size):
                if code == Match.STORE or (code == Match.EQUAL and size != value):
                    raise UnknownSizes
            elif code == Match.STORE:
                read += [size.position, value, 0, self._most(value)]
            elif code == Match.EQUAL:
                read += [size.position, -1, value, value]
                # Kernels before the check may fill the room for the largest size.
                if source == self._heap_at and value == self._most(size.position):
                    self._known.add(size.position)
        if read:
            self._read_sizes(source, read)

    def _nonzero(self, given: int) -> int:
        """Return the places of what is not 0 in a tensor, int64 [rank, n]."""
        shape = self._tensors[given].shape
        if not shape:
            # Of a scalar, the operator's definitions differ.
            raise UnknownSizes
        most, size = math.prod(shape), _Size(self._sizes)
        self._sizes += 1
        self._largest[size.position] = most
        count = self._scratch("int64", (1,))
        self._own(_COUNT_NONZERO, "count nonzero", given, count)
        self._read_sizes(count, [0, size.position, 0, most])
        made = self._scratch("int64", (len(shape), size))
        self._own(_WRITE_NONZERO, "nonzero", given, made)
        return made

    def _settled(self, tensor: Tensor) -> Tensor:
        """Return a tensor without sizes that are known after all."""
        return replace(tensor, open=_open_axes(None if place in self._known else place for place in tensor.open))

    def _sizes_of(self, given: Any, rank: int) -> Sequence[int | _Size]:
        """Return the sizes of a shape or a tensor; of a shape that is a tensor, where they lie in that."""
        if isinstance(given, _Values):
            tensor = self._tensors[given.tensor]
            if (tensor.dtype, tensor.shape, tensor.open) != ("int64", (rank,), ()):
                raise UnknownSizes
            return [_Size(place) for place in range(rank)]
        if isinstance(given, tuple):
            return given
        tensor = self._tensors[self._tensor(given)]
        pairs = zip(tensor.shape, tensor.open or (None,) * len(tensor.shape), strict=True)
        return [size if place is None else _Size(place) for size, place in pairs]

    def _read_sizes(self, source: Any, read: Sequence[int]) -> None:
        rules = Array(dtype="int64", shape=(len(read) // 4, 4), content=struct.pack(f"<{len(read)}q", *read))
        self._own(
            _READ_SIZES, "read sizes", self._tensor(source), self._add_constant(rules), self._tensor(self._heap_at)
        )

    def _own(self, symbol: str, name: str, *tensors: int) -> None:
        self._calls.append(Call(symbol=symbol, name=name, arguments=tensors))

    def _most(self, size: int) -> int:
        if size not in self._largest:
            raise UnknownSizes
        return self._largest[size]

    def _add(self, dtype: str, shape: Any, kind: Kind, index: int) -> int:
        if not isinstance(shape, tuple):
            raise UnknownSizes
        largest = tuple(self._most(each.position) if isinstance(each, _Size) else each for each in shape)
        if min(largest, default=0) < 0:
            raise UnknownSizes
        places = _open_axes(each.position if isinstance(each, _Size) else None for each in shape)
        self._tensors.append(Tensor(dtype=dtype, shape=largest, kind=kind, index=index, open=places))
        return len(self._tensors) - 1

    def _tensor(self, value: Any) -> int:
        if not isinstance(value, int):
            raise NotStandalone("arguments or results that are no tensors")
        return value


def _open_axes(places: Iterable[int | None]) -> tuple[int | None, ...]:
    """Return ``Tensor.open``."""
    found = tuple(places)
    return () if set(found) <= {None} else found


def _pairs(rules: Sequence[Any]) -> list[tuple[int, int]]:
    numbers = [each.value if isinstance(each, _Immediate) else -1 for each in rules]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


class _Immediate:
    def __init__(self, value: int) -> None:
        self.value = value
