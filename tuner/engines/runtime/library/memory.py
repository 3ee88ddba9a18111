"""Memory plans: a place for each scratch buffer and workspace, in one arena or in an output of the caller."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tuner.engines.runtime.library.plan import Kind, Plan

ALIGNMENT = 64
"""TVM's kernels use aligned vector moves on their arguments."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    in_output: dict[int, int]
    """Scratch buffers that lie in an output: scratch index to position of the output."""
    offsets: dict[int, int]
    """Bytes from the start of the arena, of all other scratch buffers."""
    workspaces: dict[int, int]
    """Likewise, of the workspaces of calls, by the position of the call. That of the first thread comes first."""
    arena_bytes: int
    copies: tuple[tuple[int, int], ...]
    """Outputs that are copied after the last call: positions of the tensor and of the output."""


@dataclass(frozen=True, kw_only=True)
class Buffer:
    index: int
    """Scratch index, or position of the call whose workspace it is."""
    bytes: int
    first: int
    """Position of the first call that uses it."""
    last: int
    is_workspace: bool = False

    def overlaps(self, other: Buffer) -> bool:
        return self.first <= other.last and other.first <= self.last


def lay_out(plan: Plan, threads: int) -> Memory:
    """Plan the memory of runs with so many threads. Raises NotStandalone for tensors of unknown size."""
    in_output, copies = _outputs(plan)
    scratch = [each for each in _buffers(plan) if each.index not in in_output]
    placed = _place([*scratch, *_workspaces(plan, threads)])
    end = max((offset + each.bytes for each, offset in placed), default=0)
    return Memory(
        in_output=in_output,
        offsets={each.index: offset for each, offset in placed if not each.is_workspace},
        workspaces={each.index: offset for each, offset in placed if each.is_workspace},
        arena_bytes=aligned(end),
        copies=copies,
    )


def aligned(number: int) -> int:
    return -(-number // ALIGNMENT) * ALIGNMENT


def _outputs(plan: Plan) -> tuple[dict[int, int], tuple[tuple[int, int], ...]]:
    """Kernels write an output in place if it is all of a scratch buffer; an input, say, must be copied to it."""
    sizes = _sizes(plan)
    in_output: dict[int, int] = {}
    copies = []
    for place, number in enumerate(plan.outputs):
        tensor = plan.tensors[number]
        whole = tensor.kind is Kind.SCRATCH and plan.bytes_of(tensor) == sizes[tensor.index]
        if whole and tensor.index not in in_output:
            in_output[tensor.index] = place
        else:
            copies.append((number, place))
    return in_output, tuple(copies)


def _sizes(plan: Plan) -> dict[int, int]:
    """Bytes of each scratch buffer, which holds the largest of its tensors."""
    sizes: dict[int, int] = {}
    for tensor in plan.tensors:
        if tensor.kind is Kind.SCRATCH:
            sizes[tensor.index] = max(sizes.get(tensor.index, 0), plan.bytes_of(tensor))
    return sizes


def _buffers(plan: Plan) -> list[Buffer]:
    """The scratch buffers with their lifetimes."""
    uses: dict[int, list[int]] = {}
    sizes = _sizes(plan)
    end = len(plan.calls)
    touched = [(number, call.arguments) for number, call in enumerate(plan.calls)]
    for when, numbers in [*touched, (end, tuple(plan.outputs))]:
        for tensor in (plan.tensors[number] for number in numbers):
            if tensor.kind is Kind.SCRATCH:
                uses.setdefault(tensor.index, []).append(when)
    return [Buffer(index=index, bytes=sizes[index], first=calls[0], last=calls[-1]) for index, calls in uses.items()]


def _workspaces(plan: Plan, threads: int) -> list[Buffer]:
    sizes = [each.workspace.first + (threads - 1) * each.workspace.other for each in plan.calls]
    return [
        Buffer(index=call, bytes=size, first=call, last=call, is_workspace=True)
        for call, size in enumerate(sizes)
        if size
    ]


def _place(buffers: Iterable[Buffer]) -> list[tuple[Buffer, int]]:
    """Give each buffer the lowest gap among those that live at the same time, the largest buffers first."""
    placed: list[tuple[Buffer, int]] = []
    for buffer in sorted(buffers, key=lambda each: (-each.bytes, each.first, each.is_workspace, each.index)):
        offset = 0
        neighbours = ((start, each.bytes) for each, start in placed if each.overlaps(buffer))
        for start, size in sorted(neighbours):
            if offset + buffer.bytes <= start:
                break
            offset = max(offset, aligned(start + size))
        placed.append((buffer, offset))
    return placed
