"""A tensor function, read node by node: unscheduled loops over blocks, and nothing that is on no list."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tuner.engines.relax.modules.admission import refused
from tuner.engines.relax.modules.values import DTYPES, Access, Values, constant, dtype_name, handle, strange

MOST_BYTES = 1024**3
"""Of all buffers together; offsets into one then fit 32 bits."""
_ALIGNMENT = 64
_ANNOTATIONS = frozenset({"axis"})
"""Of blocks; read by nothing here."""


@dataclass(kw_only=True)
class Walk:
    """One reading of one function. Everything raises EngineFailure ``invalid_model``."""

    _values: Values = field(default_factory=Values)
    _bytes: int = 0

    def function(self, function: Any) -> list[Access]:
        """The buffers of its parameters, in their order."""
        accesses = [self._add(parameter) for parameter in function.params]
        self._root(function.body)
        if any(access.written and access.read_first for access in self._values.buffers.values()):
            raise refused("it reads a buffer before it writes it")
        return accesses

    def _add(self, variable: Any) -> Access:
        kind = variable.ty if isinstance(variable, ir.Var) else None
        if not isinstance(kind, tirx.buffer.BufferType) or handle(variable) in self._values.buffers:
            raise refused("its parameters must be buffers, each given once")
        shape, dtype = tuple(constant(size, "a shape") for size in kind.shape), dtype_name(kind.dtype)
        plain = (
            str(kind.storage_scope) == "global"
            and not kind.strides
            and not kind.allocated_addr
            and kind.layout is None
            and kind.data_alignment == _ALIGNMENT
            and kind.offset_factor == 1
            and constant(kind.elem_offset, "an offset") == 0
        )
        if not plain or min(shape, default=1) < 1 or dtype not in DTYPES:
            raise refused("it has a buffer that is not compact, static and in plain memory")
        self._bytes += math.prod(shape) * DTYPES[dtype]
        if self._bytes > MOST_BYTES:
            raise refused(f"its buffers have more than {MOST_BYTES} bytes")
        access = Access(variable=variable, shape=shape, dtype=dtype)
        self._values.buffers[handle(variable)] = access
        return access

    def _root(self, realize: Any) -> None:
        if not isinstance(realize, s_tir.SBlockRealize):
            raise refused("it has no blocks, which are what schedules apply to")
        block = realize.block
        _require_plain(realize, block)
        if block.iter_vars or block.reads or block.writes or block.init is not None:
            raise refused("its outermost block is not a plain root")
        for variable in block.alloc_buffers:
            self._add(variable)
        self._loops(block.body)

    def _loops(self, statement: Any) -> None:
        with self._values.counted():
            if isinstance(statement, tirx.SeqStmt):
                for each in statement.seq:
                    self._loops(each)
            elif isinstance(statement, tirx.For):
                self._loop(statement)
            elif isinstance(statement, s_tir.SBlockRealize):
                self._leaf(statement)
            else:
                raise strange(statement)

    def _loop(self, loop: Any) -> None:
        scheduled = loop.kind != tirx.ForKind.SERIAL or loop.thread_binding is not None or loop.annotations
        if scheduled or (loop.step is not None and constant(loop.step, "a step") != 1):
            raise refused("a loop is scheduled already: give the function as it was before scheduling")
        self._values.bind(loop.loop_var, constant(loop.min, "a loop"), constant(loop.extent, "a loop"))
        self._loops(loop.body)
        self._values.release(loop.loop_var)

    def _leaf(self, realize: Any) -> None:
        block = realize.block
        _require_plain(realize, block)
        if block.alloc_buffers or len(block.iter_vars) != len(realize.iter_values):
            raise refused("an inner block is not plain")
        for each, value in zip(block.iter_vars, realize.iter_values, strict=True):
            start, extent = constant(each.dom.min, "a block"), constant(each.dom.extent, "a block")
            if each.iter_type not in (tirx.IterVar.DataPar, tirx.IterVar.CommReduce) or str(each.thread_tag):
                raise refused("a block has an iterator that is neither spatial nor a reduction")
            self._values.index(value, start, extent)
            self._values.bind(each.var, start, extent)
        if block.init is not None:
            self._effects(block.init)
        self._effects(block.body)
        self._values.release(*(each.var for each in block.iter_vars))
        self._check_regions(block)

    def _check_regions(self, block: Any) -> None:
        """Schedules trust what a block says that it touches."""
        buffers = {access.variable: access.variable for access in self._values.buffers.values()}
        found = s_tir.analysis.get_sblock_access_region(block, buffers)
        for said, seen in ((block.reads, found[0]), (block.writes, found[1])):
            if len(said) != len(seen) or not all(map(tvm_ffi.structural_equal, said, seen)):
                raise refused("a block touches other regions than it says")

    def _effects(self, statement: Any) -> None:
        with self._values.counted():
            if isinstance(statement, tirx.SeqStmt):
                for each in statement.seq:
                    self._effects(each)
            elif isinstance(statement, tirx.BufferStore):
                self._store(statement)
            elif isinstance(statement, tirx.IfThenElse):
                self._branches(statement)
            else:
                raise strange(statement)

    def _branches(self, branch: Any) -> None:
        with self._values.where(branch.condition):
            self._effects(branch.then_case)
        if branch.else_case is not None:
            with self._values.where(prim.Not(branch.condition)):
                self._effects(branch.else_case)

    def _store(self, store: Any) -> None:
        # The value first: what it reads was there before.
        self._values.check(store.value, dtype_name(store.value.ty))
        access = self._values.access(store.buffer, store.indices)
        if dtype_name(store.value.ty) != access.dtype:
            raise refused("it stores another type than the buffer has")
        access.written = True


def _require_plain(realize: Any, block: Any) -> None:
    predicate = realize.predicate
    always = isinstance(predicate, prim.IntImm) and bool(predicate.value)
    if not always or not isinstance(block, s_tir.SBlock) or block.match_buffers:
        raise refused("a block is scheduled already: give the function as it was before scheduling")
    # Such as schedule_rule, which names a function that MetaSchedule then looks up and calls.
    found = sorted(str(key) for key in block.annotations if str(key) not in _ANNOTATIONS)
    if found:
        raise refused(f"a block has the annotation {found[0]}, which is not on the list")
