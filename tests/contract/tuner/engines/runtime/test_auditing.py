from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.tuner.engines.runtime import example_comparing
from tuner.engines.runtime import auditing, processes
from tuner.engines.runtime.auditing import Check


@pytest.fixture
def child() -> Iterator[processes.Child]:
    child = processes.Child(example_comparing.__name__, {})
    yield child
    child.kill()


def _check(line: str, function: str = "answer", **found: object) -> Check:
    return Check(line=line, function=function, arguments=(found,) if function == "answer" else ())


def test_each_record_is_told_by_what_became_of_it(child: processes.Child) -> None:
    told: list[None] = []
    checks = [
        _check("right", wrong=False),
        _check("wrong", wrong=True),
        _check("crashed", "crash"),
        _check("refused", "refuse"),
        _check("unbuilt", failed="InternalError: Check failed"),
        _check("alone", skipped="nothing to compare it with"),
        _check("right too", wrong=False),
    ]
    audited = auditing.audit(checks, child, lambda: told.append(None))
    assert audited == {
        "checked": 7,
        "wrong": [{"line": "wrong", "max_abs": 2.0, "max_rel": 0.5}],
        "failed": [
            {"line": "crashed", "message": "ended by signal 11"},
            {"line": "refused", "message": "ValueError: no such operator"},
            {"line": "unbuilt", "message": "InternalError: Check failed"},
        ],
        "skipped": [{"line": "alone", "message": "nothing to compare it with"}],
    }
    assert len(told) == 7


def test_what_was_wrong_takes_its_process_with_it(child: processes.Child) -> None:
    def pid() -> int:
        child.submit("answer", ({"wrong": False},), 10.0)
        return int(child.fetch().value["pid"])

    first = pid()
    auditing.audit([_check("right", wrong=False)], child)
    assert pid() == first
    auditing.audit([_check("wrong", wrong=True)], child)
    assert pid() != first
