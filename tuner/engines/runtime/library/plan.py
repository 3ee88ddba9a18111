"""Plans: a model as a straight list of kernel calls on tensors of known shapes, or of known largest ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class NotStandalone(Exception):
    """The model cannot become a library of its own; the text says what it needs TVM for."""


class UnknownSizes(NotStandalone):
    """Sizes of tensors are not known before a run, nor how large they may become."""

    def __init__(self) -> None:
        super().__init__("tensors whose sizes only a run decides")


class Kind(StrEnum):
    """What holds a tensor's data."""

    INPUT = "input"
    CONSTANT = "constant"
    SCRATCH = "scratch"
    SIZES = "sizes"
    """The numbers that a run decides, int64 [n]."""
    SIZE = "size"
    """One of them, which kernels take as a number."""


class Convention(StrEnum):
    """Calling convention of kernels."""

    PACKED = "CONVENTION_PACKED"
    """TVM 0.19: ``TVMPackedCFunc``."""
    FFI = "CONVENTION_FFI"
    """TVM 0.27: ``TVMFFISafeCallType``."""


@dataclass(frozen=True)
class DType:
    code: int
    """As in DLPack."""
    bits: int

    @property
    def bytes(self) -> int:
        return (self.bits + 7) // 8


_INT, _UINT, _FLOAT, _BFLOAT = 0, 1, 2, 4
_BOOL = {Convention.PACKED: DType(_UINT, 1), Convention.FFI: DType(6, 8)}
DTYPES = {
    **{f"int{bits}": DType(_INT, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": DType(_UINT, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": DType(_FLOAT, bits) for bits in (16, 32, 64)},
    "bfloat16": DType(_BFLOAT, 16),
}


def dtype(name: str, convention: Convention) -> DType:
    """Return the type of a dtype's name. Raises NotStandalone for others."""
    found = _BOOL[convention] if name == "bool" else DTYPES.get(name)
    if found is None:
        raise NotStandalone(f"tensors of type {name}")
    return found


@dataclass(frozen=True, kw_only=True)
class Tensor:
    dtype: str
    """Name of the type, as numpy writes it."""
    shape: tuple[int, ...]
    kind: Kind
    index: int
    """Position of the input, constant, scratch buffer or size. Tensors with one buffer share its first bytes."""
    open: tuple[int | None, ...] = ()
    """The position of the size of each axis among those that a run decides, or None; empty if none is decided so.

    ``shape`` has the largest size of such an axis."""


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Bytes of temporary memory that a kernel asks TVM's runtime for while it runs."""

    first: int = 0
    """Of the thread that calls it, with its part of a parallel loop."""
    other: int = 0
    """Of each further thread."""


@dataclass(frozen=True, kw_only=True)
class Call:
    symbol: str
    """Symbol of the kernel in the object files."""
    name: str
    """Name of the kernel in profiles."""
    arguments: tuple[int, ...]
    """Positions in ``Plan.tensors``."""
    workspace: Workspace = Workspace()


@dataclass(frozen=True, kw_only=True)
class Plan:
    convention: Convention
    tensors: Sequence[Tensor]
    calls: Sequence[Call]
    inputs: Sequence[int]
    """Positions in ``tensors``, in the order of the inputs."""
    outputs: Sequence[int]
    input_names: Sequence[str]
    output_names: Sequence[str]
    constants: Sequence[bytes | memoryview]
    sizes: int = 0
    """How many sizes a run decides."""

    @property
    def open_axes(self) -> list[tuple[int | None, ...]]:
        """Of each axis of each output, the position of its size among those that a run decides, or None.

        Empty if a run decides no output's size.
        """
        outputs = [self.tensors[number] for number in self.outputs]
        return (
            [each.open or (None,) * len(each.shape) for each in outputs] if any(each.open for each in outputs) else []
        )

    def bytes_of(self, tensor: Tensor) -> int:
        """Raises NotStandalone for a type without a fixed layout."""
        return math.prod(tensor.shape) * dtype(tensor.dtype, self.convention).bytes
