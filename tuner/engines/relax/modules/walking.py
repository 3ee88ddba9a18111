"""Validation of a tensor function, node by node: only unscheduled loops over blocks and listed expressions pass.

``Values`` checks expressions: their types, and that each index is provably inside its buffer. A loop nest is code like
any other: a store outside its buffer could write anywhere in the engine. TVM's analyzer proves that none does; because
it computes with ideal integers, the absence of overflow is proven as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tuner.engines.relax.modules import admission
from tuner.engines.relax.modules.admission import refused

DTYPES = {
    "float16": 2, "float32": 4, "float64": 8, "bool": 1,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip
"""Element types and their sizes in bytes."""
_INDEX_DTYPES = ("int32", "int64")
_DIVISIONS = (prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod)
_ARITHMETIC = (prim.Add, prim.Sub, prim.Mul, prim.Min, prim.Max, *_DIVISIONS)
_COMPARISONS = (prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE)
_MOST_DEPTH = 200
_MOST_VISITS = 200_000


@dataclass(kw_only=True)
class Access:
    """How the function uses a buffer."""

    variable: Any
    shape: tuple[int, ...]
    dtype: str
    written: bool = False
    read_first: bool = False
    """Whether it is read before anything was written to it."""


@dataclass(kw_only=True)
class Values:
    """Checks of one function's expressions. All methods raise EngineFailure ``invalid_model``."""

    buffers: dict[int, Access] = field(default_factory=dict)
    """Buffers by the handle of their variable."""
    _variables: set[int] = field(default_factory=set)
    """Variables of the enclosing loops and blocks."""
    _bound: set[int] = field(default_factory=set)
    _known: Any = field(default_factory=sym.Analyzer)
    _loads: int = 0
    _visits: int = 0
    _depth: int = 0

    def bind(self, variable: Any, start: int, extent: int) -> None:
        """Add a loop or block variable with ``extent`` values from ``start``."""
        require(isinstance(variable, ir.Var) and dtype_of(variable) in _INDEX_DTYPES)
        if extent < 1 or handle(variable) in self._bound:
            raise refused("a loop has no steps, or two loops share a variable")
        for number in (start, start + extent):
            _require_representable(number, "int32")
        self._variables.add(handle(variable))
        self._bound.add(handle(variable))
        bounds = (tirx.IntImm(dtype_of(variable), number) for number in (start, extent))
        self._known.bind(variable, ir.Range.from_min_extent(*bounds))

    def release(self, *variables: Any) -> None:
        """Remove variables at the end of their loop or block."""
        self._variables.difference_update(map(handle, variables))

    def access(self, buffer: Any, indices: Sequence[Any]) -> Access:
        """Return the buffer of this variable after proving that the indices are within its bounds."""
        access = self.buffers.get(handle(buffer)) if isinstance(buffer, ir.Var) else None
        if access is None:
            raise refused("it uses a buffer that it does not declare")
        if len(indices) != len(access.shape):
            raise refused("a buffer is used with the wrong rank")
        for index, size in zip(indices, access.shape, strict=True):
            self.index(index, 0, size)
        return access

    def index(self, index: Any, start: int, extent: int) -> None:
        """Prove that the index is one of ``extent`` numbers from ``start``."""
        dtype = dtype_of(index)
        if dtype not in _INDEX_DTYPES:
            raise refused(f"an index has dtype {dtype}")
        self.check(index, dtype, exact=True)
        if not self._known.can_prove(index >= start) or not self._known.can_prove(index < start + extent):
            raise refused(f"cannot prove that the index {_shown(index)} is from {start} to below {start + extent}")

    def check(self, node: Any, dtype: str, *, exact: bool = False) -> None:
        """Check that ``node`` is an allowed expression of that dtype.

        ``exact``: proofs depend on its value, so it must neither overflow nor depend on buffer contents.
        """
        with self.counted():
            if dtype not in DTYPES or dtype_of(node) != dtype:
                raise refused(f"an expression is not of dtype {dtype}")
            for kinds, judge in self._judges:
                if isinstance(node, kinds):
                    judge(node, dtype, exact)
                    return
            raise strange(node)

    @contextmanager
    def where(self, condition: Any) -> Iterator[None]:
        """Assume the condition while checking the branch that it guards; one that depends on memory proves nothing."""
        with self._known.constraint_scope(condition) if self._is_exact(condition) else self.counted():
            yield

    @contextmanager
    def counted(self) -> Iterator[None]:
        self._visits += 1
        self._depth += 1
        if self._visits > _MOST_VISITS or self._depth > _MOST_DEPTH:
            raise refused("it is too large or too deeply nested for one operator")
        yield
        self._depth -= 1

    def _is_exact(self, condition: Any) -> bool:
        before = self._loads
        self.check(condition, "bool")
        if self._loads > before:
            return False
        self.check(condition, "bool", exact=True)
        return True

    @property
    def _judges(self) -> tuple[tuple[Any, Callable[[Any, str, bool], None]], ...]:
        return (
            (ir.Var, self._variable),
            (prim.IntImm, lambda node, dtype, _: _require_representable(node.value, dtype)),
            (prim.FloatImm, lambda _node, dtype, _: require(dtype.startswith("float"))),
            (ir.TensorLoad, self._load),
            (_ARITHMETIC, self._arithmetic),
            (_COMPARISONS, self._comparison),
            ((prim.And, prim.Or), self._both),
            (prim.Not, lambda node, dtype, exact: self.check(node.a, dtype, exact=exact)),
            (prim.Select, self._select),
            (prim.Cast, self._cast),
            (ir.Call, self._call),
        )

    def _variable(self, node: Any, _dtype: str, _exact: bool) -> None:
        if handle(node) not in self._variables:
            raise refused(f"the variable {node.name} is not a loop variable: sizes must be constants")

    def _load(self, load: Any, dtype: str, exact: bool) -> None:
        if exact:
            raise refused("an index depends on buffer contents, so its bounds cannot be proven")
        access = self.access(load.source, load.indices)
        require(access.dtype == dtype)
        access.read_first = access.read_first or not access.written
        self._loads += 1

    def _arithmetic(self, node: Any, dtype: str, exact: bool) -> None:
        self._both(node, dtype, exact)
        if not exact or dtype.startswith("float"):
            return
        if isinstance(node, _DIVISIONS) and not self._known.can_prove(node.b > 0):
            raise refused(f"cannot prove that {_shown(node.b)}, the divisor of an index, is positive")
        self._require_fits(node, dtype)

    def _comparison(self, node: Any, dtype: str, exact: bool) -> None:
        require(dtype == "bool")
        self._both(node, dtype_of(node.a), exact)

    def _both(self, node: Any, dtype: str, exact: bool) -> None:
        self.check(node.a, dtype, exact=exact)
        self.check(node.b, dtype, exact=exact)

    def _select(self, node: Any, dtype: str, exact: bool) -> None:
        # Not a branch: both values are computed whatever the condition is.
        self.check(node.condition, "bool", exact=exact)
        self.check(node.true_value, dtype, exact=exact)
        self.check(node.false_value, dtype, exact=exact)

    def _cast(self, node: Any, dtype: str, exact: bool) -> None:
        self.check(node.value, dtype_of(node.value), exact=exact)
        if exact:
            self._require_fits(node.value, dtype)

    def _call(self, call: Any, dtype: str, exact: bool) -> None:
        name = str(call.op.name) if isinstance(call.op, ir.Op) else "a function"
        if name not in admission.INTRINSICS or call.attrs is not None or call.ty_args:
            raise refused(f"it calls {name}, which is not supported")
        if name == admission.CHOICE:
            self._choice(call, dtype, exact)
            return
        require(bool(call.args) and not exact)
        kind = dtype_of(call.args[0])
        require(kind.startswith("float") and dtype == ("bool" if name in admission.TESTS else kind))
        for argument in call.args:
            self.check(argument, kind)

    def _choice(self, call: Any, dtype: str, exact: bool) -> None:
        require(len(call.args) == 3)
        condition, chosen, other = call.args
        if exact:
            self.check(condition, "bool", exact=True)
        with self.where(condition):
            self.check(chosen, dtype, exact=exact)
        with self.where(prim.Not(condition)):
            self.check(other, dtype, exact=exact)

    def _require_fits(self, node: Any, dtype: str) -> None:
        require("float" not in dtype and "float" not in dtype_of(node))
        bound = self._known.const_int_bound(node)
        low, high = _limits(dtype)
        if not low <= bound.min_value <= bound.max_value <= high:
            raise refused(f"cannot prove that {_shown(node)} fits in {dtype}")


def constant(node: Any, place: str) -> int:
    """Return the value of a literal integer. Raises EngineFailure ``invalid_model`` otherwise."""
    if not isinstance(node, int | prim.IntImm):
        raise refused(f"{place} is not a constant: sizes must be static")
    return node if isinstance(node, int) else int(node.value)


def dtype_of(node: Any) -> str:
    """Return the dtype of an expression; "no number" for non-numeric ones."""
    return dtype_name(node.ty) if isinstance(node, ir.Expr) else "no number"


def dtype_name(kind: Any) -> str:
    return str(kind.dtype) if isinstance(kind, ir.PrimType) else "no number"


def handle(node: Any) -> int:
    return int(node.__chandle__())


def require(holds: bool) -> None:
    """Raise EngineFailure ``invalid_model`` with a type error unless ``holds``."""
    if not holds:
        raise refused("an expression combines incompatible types")


def strange(node: Any) -> Exception:
    if not isinstance(node, tvm_ffi.Object):
        return refused("a required part is missing")
    return refused(f"it contains a {type(node).__name__} in the wrong place")


def _limits(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    bits = DTYPES[dtype] * 8
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _require_representable(number: int, dtype: str) -> None:
    require("float" not in dtype)
    low, high = _limits(dtype)
    if not low <= int(number) <= high:
        raise refused(f"the number {number} does not fit {dtype}")


def _shown(node: Any) -> str:
    return str(node)[:120]


MOST_BYTES = 1024**3
"""Maximum size of all buffers together; offsets then fit in 32 bits."""
_ALIGNMENT = 64
_ANNOTATIONS = frozenset({"axis"})
"""Annotations allowed on blocks; nothing here reads them."""


@dataclass(kw_only=True)
class Walk:
    """Walks over one function. All methods raise EngineFailure ``invalid_model``."""

    _values: Values = field(default_factory=Values)
    _bytes: int = 0

    def function(self, function: Any) -> list[Access]:
        """Check the function and return the buffers of its parameters, in order."""
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
            raise refused("it has a buffer that is not compact, static and in global memory")
        self._bytes += math.prod(shape) * DTYPES[dtype]
        if self._bytes > MOST_BYTES:
            raise refused(f"its buffers have more than {MOST_BYTES} bytes")
        access = Access(variable=variable, shape=shape, dtype=dtype)
        self._values.buffers[handle(variable)] = access
        return access

    def _root(self, realize: Any) -> None:
        if not isinstance(realize, s_tir.SBlockRealize):
            raise refused("it has no blocks for schedules to apply to")
        block = realize.block
        _require_plain(realize, block)
        if block.iter_vars or block.reads or block.writes or block.init is not None:
            raise refused("its outermost block is not a simple root block")
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
            raise refused("a loop is already scheduled: use the unscheduled function")
        self._values.bind(loop.loop_var, constant(loop.min, "a loop"), constant(loop.extent, "a loop"))
        self._loops(loop.body)
        self._values.release(loop.loop_var)

    def _leaf(self, realize: Any) -> None:
        block = realize.block
        _require_plain(realize, block)
        if block.alloc_buffers or len(block.iter_vars) != len(realize.iter_values):
            raise refused("an inner block is not a simple block")
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
        """Check the declared regions, which schedules rely on, against the actual accesses."""
        buffers = {access.variable: access.variable for access in self._values.buffers.values()}
        found = s_tir.analysis.get_sblock_access_region(block, buffers)
        for declared, accessed in ((block.reads, found[0]), (block.writes, found[1])):
            if len(declared) != len(accessed) or not all(map(tvm_ffi.structural_equal, declared, accessed)):
                raise refused("a block accesses regions that it does not declare")

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
        # Check the value first: it must only read what was written before this store.
        self._values.check(store.value, dtype_name(store.value.ty))
        access = self._values.access(store.buffer, store.indices)
        if dtype_name(store.value.ty) != access.dtype:
            raise refused("it stores a value of another type than the buffer's")
        access.written = True


def _require_plain(realize: Any, block: Any) -> None:
    predicate = realize.predicate
    always = isinstance(predicate, prim.IntImm) and bool(predicate.value)
    if not always or not isinstance(block, s_tir.SBlock) or block.match_buffers:
        raise refused("a block is already scheduled: use the unscheduled function")
    # For example schedule_rule, which names a function that MetaSchedule looks up and calls.
    found = sorted(str(key) for key in block.annotations if str(key) not in _ANNOTATIONS)
    if found:
        raise refused(f"a block has the annotation {found[0]}, which is not supported")
