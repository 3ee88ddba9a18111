"""How workspaces are counted, in code of the forms that both TVM releases have; tests/contract reads real code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tuner.engines.runtime import workspaces
from tuner.engines.runtime.library.plan import Workspace

SERIAL, PARALLEL = 0, 1


def node(kind: str, /, **fields: Any) -> Any:
    """An object of a class with this name, as TVM's Python has for each kind of node."""
    return type(kind, (), fields)()


def call(name: str, *arguments: Any) -> Any:
    return node("Call", op=SimpleNamespace(name=f"tir.{name}"), args=arguments)


def sequence(*statements: Any) -> Any:
    return node("SeqStmt", seq=statements)


def loop(kind: int, *statements: Any) -> Any:
    return node("For", kind=kind, body=sequence(*statements))


RETURNED = node(
    "IfThenElse",
    condition=node("NE", a=call("TVMBackendFreeWorkspace"), b=0),
    then_case=node("Evaluate", value=call("tvm_throw_last_error")),
    else_case=None,
)


def asked(size: Any) -> Any:
    return call("TVMBackendAllocWorkspace", 1, 0, size, 2, 32)


def nested(size: Any, *statements: Any) -> Any:
    """TVM 0.19: the memory's users are the body of a statement."""
    body = sequence(node("AttrStmt", attr_key="storage_alignment", body=sequence(*statements)), RETURNED)
    return node("LetStmt", value=asked(size), body=body)


def flat(size: Any, *statements: Any) -> Any:
    """TVM 0.27: they follow in the same scope."""
    return sequence(node("DeclBuffer", data=asked(size)), *statements, RETURNED)


@pytest.mark.parametrize("using", [nested, flat])
def test_the_most_that_is_borrowed_at_a_time_counts(using: Any) -> None:
    def of(size: int) -> Any:
        return node("IntImm", value=size)

    computed = node("BufferStore")
    body = sequence(
        using(
            of(2000),
            loop(PARALLEL, using(of(1024), loop(SERIAL, using(of(65), computed), using(of(10), computed)))),
            using(of(640), computed),
        ),
        using(of(3000), computed),
        using(node("Mul"), computed),
        loop(PARALLEL, using(of(1), computed)),
    )
    # Multiples of 64: 2048 + 1024 + 128 by the first thread, 1024 + 128 by others.
    assert workspaces.read(body) == Workspace(first=3200, other=1152)


def test_a_launch_around_a_parallel_loop_begins_the_tasks() -> None:
    inner = node("LetStmt", value=asked(node("IntImm", value=64)), body=sequence(loop(PARALLEL), RETURNED))
    body = node("AttrStmt", attr_key="pragma_parallel_launch_point", body=inner)
    assert workspaces.read(body) == Workspace(first=64, other=64)


def test_code_without_requests_has_no_workspace() -> None:
    assert workspaces.read(sequence(node("BufferStore"), loop(PARALLEL, node("BufferStore")))) == Workspace()
