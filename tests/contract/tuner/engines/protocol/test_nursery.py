"""Processes that are forked from one that has imported what they need."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.tuner.engines.protocol import example_calls
from tuner.engines.protocol.children import Child, ChildDied, ChildTimedOut, Outcome
from tuner.engines.protocol.nursery import Nursery
from tuner.engines.protocol.serving import EngineFailure

_SECONDS = 20.0


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    nursery = Nursery(example_calls.__name__, {"TUNESMITH_TEST_VALUE": "of the nursery"})
    yield nursery
    nursery.close()


def child(nursery: Nursery, value: str = "its own") -> Child:
    return Child(example_calls.__name__, {"TUNESMITH_TEST_VALUE": value}, nursery)


def ask(child: Child, function: str, *arguments: object, timeout: float = _SECONDS) -> Outcome:
    child.submit(function, arguments, timeout)
    return child.fetch()


def test_what_is_imported_once_serves_all_each_in_its_own_environment(nursery: Nursery) -> None:
    first, second = child(nursery), child(nursery, "another")
    for each in (first, second):
        each.start()
    told = [ask(each, "whoami").value for each in (first, second)]
    assert told[0][1:] == (told[1][1], "1", "its own")
    assert told[1][3] == "another"
    assert len({told[0][0], told[1][0], told[0][1]}) == 3
    for each in (first, second):
        each.kill()


def test_a_crash_is_told_by_its_status_and_costs_no_other(nursery: Nursery) -> None:
    one, other = child(nursery), child(nursery)
    other.submit("sleep", (0.5,), _SECONDS)
    lost = ask(one, "die", 3)
    assert isinstance(lost.error, ChildDied)
    assert str(lost.error) == "ended with status 3"
    assert ask(one, "sleep", 0.0).value == 0.0
    assert other.fetch().value == 0.5


def test_a_signal_is_told_as_one(nursery: Nursery) -> None:
    one = child(nursery)
    process = ask(one, "whoami").value[0]
    one.submit("sleep", (30.0,), _SECONDS)
    os.kill(process, signal.SIGSEGV)
    lost = one.fetch()
    assert isinstance(lost.error, ChildDied)
    assert str(lost.error) == "ended by signal 11"


def test_one_that_hangs_is_killed_and_another_comes_without_importing_anew(nursery: Nursery) -> None:
    one = child(nursery)
    before = ask(one, "whoami").value
    assert isinstance(ask(one, "sleep", 60.0, timeout=0.2).error, ChildTimedOut)
    after = ask(one, "whoami").value
    assert after[0] != before[0]
    assert after[1] == before[1]
    assert not _lives(before[0])


def test_a_nursery_that_was_killed_starts_again(nursery: Nursery) -> None:
    one = child(nursery)
    process, parent = ask(one, "whoami").value[:2]
    os.kill(parent, signal.SIGKILL)
    _await_end(process)
    assert isinstance(ask(one, "sleep", 0.0).error, ChildDied)
    again = ask(one, "whoami").value
    assert again[1] != parent


def test_a_nursery_that_hangs_is_replaced(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = child(nursery), child(nursery)
    parent = ask(one, "whoami").value[1]
    os.kill(parent, signal.SIGSTOP)
    monkeypatch.setattr("tuner.engines.protocol.children.START_SECONDS", 0.3)
    with pytest.raises(EngineFailure, match="did not start"):
        other.submit("whoami", (), _SECONDS)
    monkeypatch.undo()
    assert ask(other, "whoami").value[1] != parent
    assert not _lives(parent)
    assert isinstance(ask(one, "sleep", 0.0).error, ChildDied)
    assert ask(one, "sleep", 0.0).value == 0.0


def test_one_that_hangs_is_killed_where_the_system_has_no_pidfd(
    nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    one = child(nursery)
    process = ask(one, "whoami").value[0]
    assert isinstance(ask(one, "sleep", 60.0, timeout=0.2).error, ChildTimedOut)
    _await_end(process)
    assert ask(one, "sleep", 0.0).value == 0.0


def test_nobody_is_started_to_ask_how_a_process_ended(nursery: Nursery) -> None:
    one = child(nursery)
    ask(one, "whoami")
    nursery.close()
    one.kill()
    assert nursery._process is None


def test_closing_leaves_no_process(nursery: Nursery) -> None:
    one = child(nursery)
    process, parent = ask(one, "whoami").value[:2]
    nursery.close()
    _await_end(process)
    assert not _lives(parent)


def test_one_that_was_never_ready_ends_with_its_connection(nursery: Nursery) -> None:
    one, other = child(nursery), child(nursery)
    one.start()
    one.kill()
    parent = ask(other, "whoami").value[1]
    deadline = time.monotonic() + _SECONDS
    while len(_children(parent)) > 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert _children(parent) == [ask(other, "whoami").value[0]]


def _children(parent: int) -> list[int]:
    """Those that live: what has ended and was not asked for is still in the table."""
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    return [int(pid) for pid in text.split() if _lives(int(pid))]


def _await_end(process: int) -> None:
    deadline = time.monotonic() + _SECONDS
    while _lives(process) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _lives(process)


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
