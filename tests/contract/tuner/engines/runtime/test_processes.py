"""Processes that crash, hang and come back, forked or started, alone and in pools."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.tuner.engines.runtime import example_calls
from tests.support.waiting import until
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime.processes import (
    Child,
    ChildDied,
    ChildRaised,
    ChildTimedOut,
    ForkServer,
    ForkServerDied,
    Outcome,
    Pool,
)

_SECONDS = 20.0


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer(example_calls.__name__, {"TUNESMITH_TEST_VALUE": "of the server"})
    yield server
    server.close()


BOTH = pytest.mark.parametrize("forked", [True, False], ids=["forked", "started"])


def child(server: ForkServer | None, value: str = "its own") -> Child:
    return Child(example_calls.__name__, {"TUNESMITH_TEST_VALUE": value}, server)


def ask(child: Child, function: str, *arguments: object, timeout: float = _SECONDS) -> Outcome:
    child.submit(function, arguments, timeout)
    return child.fetch()


def test_what_is_imported_once_serves_all_each_in_its_own_environment(server: ForkServer) -> None:
    first, second = child(server), child(server, "another")
    for each in (first, second):
        each.start()
    told = [ask(each, "whoami").value for each in (first, second)]
    assert told[0][1:] == (told[1][1], "1", "its own")
    assert told[1][3] == "another"
    assert len({told[0][0], told[1][0], told[0][1]}) == 3
    for each in (first, second):
        each.kill()


@BOTH
def test_a_crash_is_told_by_its_status_and_costs_no_other(server: ForkServer, forked: bool) -> None:
    one, other = (child(server if forked else None) for _ in range(2))
    other.submit("sleep", (0.5,), _SECONDS)
    lost = ask(one, "die", 3)
    assert isinstance(lost.error, ChildDied)
    assert str(lost.error) == "ended with status 3"
    assert ask(one, "sleep", 0.0).value == 0.0
    assert other.fetch().value == 0.5
    one.kill()
    other.kill()


@BOTH
def test_a_signal_is_told_as_one(server: ForkServer, forked: bool) -> None:
    one = child(server if forked else None)
    process = ask(one, "whoami").value[0]
    one.submit("sleep", (30.0,), _SECONDS)
    os.kill(process, signal.SIGSEGV)
    lost = one.fetch()
    assert isinstance(lost.error, ChildDied)
    assert str(lost.error) == "ended by signal 11"
    one.kill()


def test_one_that_hangs_is_killed_and_told_as_one_however_it_was_started() -> None:
    one = child(None)
    process = ask(one, "whoami").value[0]
    os.kill(process, signal.SIGSTOP)
    assert isinstance(ask(one, "whoami", timeout=0.2).error, ChildTimedOut)
    assert not _lives(process)
    raised = ask(one, "sleep", "a while")
    assert isinstance(raised.error, ChildRaised)
    assert "TypeError" in str(raised.error)
    one.kill()


def test_one_that_hangs_is_killed_and_another_comes_without_importing_anew(server: ForkServer) -> None:
    one = child(server)
    before = ask(one, "whoami").value
    assert isinstance(ask(one, "sleep", 60.0, timeout=0.2).error, ChildTimedOut)
    after = ask(one, "whoami").value
    assert after[0] != before[0]
    assert after[1] == before[1]
    assert not _lives(before[0])


def test_a_fork_server_that_was_killed_starts_again(server: ForkServer) -> None:
    one = child(server)
    process, parent = ask(one, "whoami").value[:2]
    os.kill(parent, signal.SIGKILL)
    _await_end(process)
    again = ask(one, "whoami").value
    assert again[1] != parent
    one.submit("sleep", (30.0,), _SECONDS)
    os.kill(again[1], signal.SIGKILL)
    assert isinstance(one.fetch().error, ForkServerDied)


def test_a_call_is_repeated_after_its_fork_server_was_killed(server: ForkServer, tmp_path: Path) -> None:
    one = child(server)
    assert one.ask("outlive", (str(tmp_path / "a"), 1), _SECONDS).value == 2
    with pytest.raises(EngineFailure, match="again and again"):
        one.ask("outlive", (str(tmp_path / "b"), 99), _SECONDS)
    assert one.ask("sleep", (0.0,), _SECONDS).value == 0.0


def test_a_child_that_starts_while_its_fork_server_is_killed_starts_again(server: ForkServer) -> None:
    one, other = child(server), child(server)
    parent = ask(one, "whoami").value[1]
    os.kill(parent, signal.SIGSTOP)
    other.start()
    os.kill(parent, signal.SIGKILL)
    assert ask(other, "whoami").value[1] != parent
    one.kill()
    other.kill()


def test_a_fork_server_that_hangs_is_replaced(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = child(server), child(server)
    parent = ask(one, "whoami").value[1]
    os.kill(parent, signal.SIGSTOP)
    monkeypatch.setattr("tuner.engines.runtime.processes.START_SECONDS", 0.3)
    with pytest.raises(EngineFailure, match="did not start"):
        other.submit("whoami", (), _SECONDS)
    monkeypatch.undo()
    assert ask(other, "whoami").value[1] != parent
    assert not _lives(parent)
    assert ask(one, "sleep", 0.0).value == 0.0


def test_one_that_hangs_is_killed_where_the_system_has_no_pidfd(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    one = child(server)
    process = ask(one, "whoami").value[0]
    assert isinstance(ask(one, "sleep", 60.0, timeout=0.2).error, ChildTimedOut)
    _await_end(process)
    assert ask(one, "sleep", 0.0).value == 0.0


def test_nobody_is_started_to_ask_how_a_process_ended(server: ForkServer) -> None:
    one = child(server)
    ask(one, "whoami")
    server.close()
    one.kill()
    assert server._process is None


def test_closing_leaves_no_process(server: ForkServer) -> None:
    one = child(server)
    process, parent = ask(one, "whoami").value[:2]
    server.close()
    _await_end(process)
    assert not _lives(parent)


def test_one_that_was_never_ready_ends_with_its_connection(server: ForkServer) -> None:
    one, other = child(server), child(server)
    one.start()
    one.kill()
    parent = ask(other, "whoami").value[1]
    until(lambda: len(_children(parent)) <= 1, seconds=_SECONDS)
    assert _children(parent) == [ask(other, "whoami").value[0]]


@pytest.fixture
def pool(server: ForkServer) -> Iterator[Pool]:
    pool = Pool(2, example_calls.__name__, {}, server)
    yield pool
    pool.kill()


def sleeps(*seconds: float) -> list[tuple[str, tuple[float]]]:
    return [("sleep", (each,)) for each in seconds]


def test_outcomes_come_in_the_order_of_the_calls(pool: Pool) -> None:
    outcomes = pool.map(sleeps(0.3, 0.0, 0.1, 0.05, 0.0), lambda: _SECONDS)
    assert [outcome.value for outcome in outcomes] == [0.3, 0.0, 0.1, 0.05, 0.0]
    assert not pool.connections


def test_calls_outlive_the_fork_server(pool: Pool, tmp_path: Path) -> None:
    calls = [*sleeps(0.3, 0.0), ("outlive", (str(tmp_path / "kills"), 2)), *sleeps(0.3, 0.2, 0.1)]
    seen: list[Outcome] = []
    outcomes = pool.map(calls, lambda: _SECONDS, seen.append)
    assert [outcome.value for outcome in outcomes] == [0.3, 0.0, 3, 0.3, 0.2, 0.1]
    assert len(seen) == len(calls)
    with pytest.raises(EngineFailure, match="again and again"):
        pool.map([("outlive", (str(tmp_path / "more"), 99))], lambda: _SECONDS)
    assert [outcome.value for outcome in pool.map(sleeps(0.1), lambda: _SECONDS)] == [0.1]


def test_one_that_kills_its_own_process_is_an_outcome(pool: Pool) -> None:
    outcomes = pool.map([("die", (1,)), ("kill", ()), *sleeps(0.0)], lambda: _SECONDS)
    assert [str(outcome.error) for outcome in outcomes[:2]] == ["ended with status 1", "ended by signal 9"]
    assert outcomes[2].value == 0.0


def test_what_others_took_shortens_the_time_of_one_under_way(pool: Pool) -> None:
    seen: list[Outcome] = []
    started = time.monotonic()
    outcomes = pool.map(sleeps(60.0, 0.0, 0.0, 0.0), lambda: 1.0 if len(seen) >= 3 else _SECONDS * 3, seen.append)
    assert time.monotonic() - started < _SECONDS
    assert isinstance(outcomes[0].error, ChildTimedOut)
    assert [outcome.value for outcome in outcomes[1:]] == [0.0, 0.0, 0.0]
    assert len(seen) == 4


def test_a_limit_that_grows_spares_a_call_that_waits(pool: Pool) -> None:
    limits = iter([0.05, *[_SECONDS] * 10])
    outcomes = pool.map(sleeps(0.0, 0.0, 0.3, 0.3), lambda: next(limits))
    assert [outcome.value for outcome in outcomes] == [0.0, 0.0, 0.3, 0.3]


def test_calls_that_were_left_behind_answer_nobody_else(pool: Pool) -> None:
    def fail(_: Outcome) -> None:
        raise RuntimeError("as when a process cannot be started")

    with pytest.raises(RuntimeError):
        pool.map(sleeps(0.0, 0.4, 0.4, 0.4), lambda: _SECONDS, fail)
    assert not pool.connections
    assert [outcome.value for outcome in pool.map(sleeps(0.01, 0.02, 0.03), lambda: _SECONDS)] == [0.01, 0.02, 0.03]


def test_one_that_starts_again_keeps_nobody_waiting() -> None:
    slow_to_start = Pool(2, example_calls.__name__, {})
    try:
        slow_to_start.map(sleeps(0.0, 0.0), lambda: _SECONDS)
        outcomes = slow_to_start.map([("die", (1,)), *sleeps(*[0.0] * 20)], lambda: _SECONDS)
        assert outcomes[0].error is not None
        assert all(outcome.value == 0.0 for outcome in outcomes[1:])
        assert math.isinf(slow_to_start.remaining)
    finally:
        slow_to_start.kill()


def _children(parent: int) -> list[int]:
    """Those that live: what has ended and was not asked for is still in the table."""
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    return [int(pid) for pid in text.split() if _lives(int(pid))]


def _await_end(process: int) -> None:
    until(lambda: not _lives(process), seconds=_SECONDS)


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
