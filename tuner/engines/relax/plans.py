"""Plans of executables of Relax's virtual machine: ``main`` is run once with descriptions in place of tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tuner.engines.protocol.messages import Json
from tuner.engines.relax import executables
from tuner.engines.relax.executables import (
    ArgumentKind,
    Array,
    DType,
    Executable,
    Function,
    FunctionKind,
    Instruction,
    Operation,
)
from tuner.engines.runtime.library.plan import Call, Convention, Kind, NotStandalone, Plan, Tensor, UnknownSizes

_MAIN = "main"
PREFIX = "__tvm_ffi_"
"""Of the symbols of kernels."""
_EQUAL, _ANY = 0, 3
"""What ``match_shape`` does with a size: compare it with a constant, or nothing. The rest is for symbolic shapes."""


def read(blob: bytes | memoryview, symbols: Collection[str], inputs: Sequence[Json], outputs: Sequence[Json]) -> Plan:
    """Return the plan of an executable, in the form in which it is linked into libraries.

    ``symbols`` are defined in the objects of its kernels. ``inputs`` and ``outputs`` are ``{name, dtype, shape}`` in
    the order of arguments and results. Raises NotStandalone.
    """
    return _Reader(executables.read(blob), symbols, inputs).plan(outputs)


class _Reader:
    """Registers hold positions of tensors (int), lists of these, shapes, or None."""

    def __init__(self, executable: Executable, symbols: Collection[str], inputs: Sequence[Json]) -> None:
        self._executable = executable
        self._symbols = symbols
        self._inputs = inputs
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
            "make_tuple": lambda *values: list(values),
            "match_shape": self._match,
            "null_value": lambda *_: None,
            "reshape": self._reshape,
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
            tensors=self._tensors,
            calls=self._calls,
            inputs=list(range(len(self._inputs))),
            outputs=results,
            input_names=[spec["name"] for spec in self._inputs],
            output_names=[spec["name"] for spec in outputs],
            constants=self._constants,
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
            at = len(self._constants)
            self._places[number] = self._add(constant.dtype, constant.shape, Kind.CONSTANT, at)
            self._constants.append(constant.content)
        return self._places[number]

    def _alloc(self, _storage: Any, _offset: Any, shape: Any, dtype: Any) -> int:
        if not isinstance(dtype, DType):
            raise NotStandalone("tensors of types that only a run decides")
        self._buffers += 1
        return self._add(dtype.name, _fixed(shape), Kind.SCRATCH, self._buffers)

    def _reshape(self, given: Any, shape: Any) -> int:
        source = self._tensors[self._tensor(given)]
        return self._add(source.dtype, _fixed(shape), source.kind, source.index)

    def _heap(self, *_: Any) -> None:
        raise UnknownSizes

    def _match(self, _given: Any, _heap: Any, _rank: Any, *rules: Any) -> None:
        # The last argument is the text of the error.
        codes = [code.value for code in rules[:-1:2] if isinstance(code, _Immediate)]
        if not set(codes) <= {_EQUAL, _ANY}:
            raise UnknownSizes

    def _add(self, dtype: str, shape: tuple[int, ...], kind: Kind, index: int) -> int:
        self._tensors.append(Tensor(dtype=dtype, shape=shape, kind=kind, index=index))
        return len(self._tensors) - 1

    def _tensor(self, value: Any) -> int:
        if not isinstance(value, int):
            raise NotStandalone("arguments or results that are no tensors")
        return value


class _Immediate:
    def __init__(self, value: int) -> None:
        self.value = value


def _fixed(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or min(shape, default=0) < 0:
        raise UnknownSizes
    return shape
