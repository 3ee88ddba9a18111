"""Temporary memory of kernels: what their code asks TVM's runtime for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from tuner.engines.runtime.compiling import Release
from tuner.engines.runtime.library.memory import aligned
from tuner.engines.runtime.library.plan import Plan, Workspace

MOST_STACK_BYTES = 4 << 10
"""Of memory that stays on the stack of a thread: twice what the registers of a CPU hold."""
ON_STACK = "disable_lower_builtin"
"""Annotation of memory that TVM's ``LowerTVMBuiltin`` leaves on the stack."""
_ALLOC, _FREE = "TVMBackendAllocWorkspace", "TVMBackendFreeWorkspace"
_PARALLEL_LOOP = 1
_LAUNCH = "pragma_parallel_launch_point"
_EXPRESSIONS = {
    "Bind": "value",
    "DeclBuffer": "data",
    "Evaluate": "value",
    "IfThenElse": "condition",
    "LetStmt": "value",
}
"""Where statements of both TVM releases hold such calls, by the name of the class."""
_BODIES = {
    **dict.fromkeys(
        ("Allocate", "AllocateConst", "AssertStmt", "AttrStmt", "DeclBuffer", "For", "LetStmt", "While"), ("body",)
    ),
    "IfThenElse": ("then_case", "else_case"),
}


class _Step(Enum):
    RETURN = auto()
    """The memory that was borrowed last is returned."""
    TASKS = auto()
    """What follows runs in all threads."""
    END = auto()
    """As before ``TASKS``."""


class Workspaces:
    """The workspaces of all functions that TVM lowers in a ``PassContext`` with ``instrument``."""

    def __init__(self, release: Release) -> None:
        self._found: dict[str, Workspace] = {}
        self.instrument = _instrument(release, self._found)

    def add_to(self, plan: Plan) -> Plan:
        """Return the plan with the workspaces of its calls."""
        calls = [replace(call, workspace=self._found.get(call.symbol, call.workspace)) for call in plan.calls]
        return replace(plan, calls=calls)


def _instrument(release: Release, found: dict[str, Workspace]) -> Any:
    @release.tvm.instrument.pass_instrument
    class Reading:
        def run_after_pass(self, module: Any, info: Any) -> None:
            if info.name == f"{release.tir}.LowerTVMBuiltin":
                for function in module.functions.values():
                    if "global_symbol" in function.attrs:
                        found[str(function.attrs["global_symbol"])] = read(function.body)

    return Reading()


def read(body: Any) -> Workspace:
    """Return the workspace of a function's body. Memory whose size is not a constant is left out."""
    first = other = live = before_tasks = depth = 0
    # Code returns what it borrowed in the same scope, so that each statement is read once, in order.
    borrowed: list[int] = []
    for step in _steps(body):
        if step is _Step.TASKS:
            before_tasks = before_tasks if depth else live
            depth += 1
        elif step is _Step.END:
            depth -= 1
        elif step is _Step.RETURN:
            live -= borrowed.pop()
        else:
            borrowed.append(step)
            live += step
            first = max(first, live)
            other = max(other, live - before_tasks) if depth else other
    return Workspace(first=first, other=other)


def _steps(body: Any) -> Iterator[int | _Step]:
    """Yield the bytes that the code borrows, and the steps between."""
    todo: list[Any] = [body]
    while todo:
        node = todo.pop()
        kind = type(node).__name__
        if isinstance(node, _Step):
            yield node
        elif kind == "SeqStmt":
            todo += reversed(list(node.seq))
        else:
            if kind in _EXPRESSIONS:
                yield from _called(getattr(node, _EXPRESSIONS[kind], None))
            if _is_parallel(node, kind):
                yield _Step.TASKS
                todo.append(_Step.END)
            bodies = (getattr(node, name, None) for name in reversed(_BODIES.get(kind, ())))
            todo += (each for each in bodies if each is not None)


def _is_parallel(node: Any, kind: str) -> bool:
    return (kind == "For" and int(node.kind) == _PARALLEL_LOOP) or (kind == "AttrStmt" and node.attr_key == _LAUNCH)


def _called(expression: Any) -> Iterator[int | _Step]:
    # The result of a return is compared with 0.
    call = expression.a if type(expression).__name__ == "NE" else expression
    name = getattr(getattr(call, "op", None), "name", "") if type(call).__name__ == "Call" else ""
    if name.endswith(_FREE):
        yield _Step.RETURN
    elif name.endswith(_ALLOC):
        size = getattr(call.args[2], "value", None)
        yield aligned(int(size)) if isinstance(size, int) else 0
