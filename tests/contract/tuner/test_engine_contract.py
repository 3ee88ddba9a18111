"""What ``domain.ports.Engine`` promises, asked of the real session and of the fake."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from domain import errors
from domain.ports import Canceled, Engine, OnEvent
from tests.support.tuner.fakes import FakeEngine
from tests.support.tuner.fixtures import Start
from tuner.engines.protocol.serving import EngineFailure

Json = dict[str, Any]


def fake_echo(params: Json, _: OnEvent) -> Json:
    return {"echo": params}


def fake_count(params: Json, emit: OnEvent) -> Json:
    for number in range(params["events"]):
        emit("progress", {"number": number})
    return {"events": params["events"]}


def fake_refuse(params: Json, _: OnEvent) -> Json:
    raise EngineFailure(
        "unsupported_operators", "no such operator", hint="change it", details={"operators": {"Foo": 2}}
    )


def fake_sleep(params: Json, emit: OnEvent) -> Json:
    end = time.monotonic() + params["seconds"]
    while time.monotonic() < end:
        time.sleep(0.01)
        emit("heartbeat", {})
    return {"slept": params["seconds"]}


def fake_exit(params: Json, _: OnEvent) -> Json:
    raise errors.EngineCrashed(f"ended with exit status {params['status']}")


@pytest.fixture(params=["session", "fake"])
def engine(request: pytest.FixtureRequest, start: Start) -> Iterator[Engine]:
    answers = {"echo": fake_echo, "count": fake_count, "refuse": fake_refuse, "sleep": fake_sleep, "exit": fake_exit}
    engine: Engine = start() if request.param == "session" else FakeEngine(answers)
    yield engine
    engine.close()


def assert_dead(engine: Engine) -> None:
    assert not engine.alive
    with pytest.raises(errors.EngineCrashed):
        engine.request("echo", {}, timeout=5)


def test_it_introduces_itself(engine: Engine) -> None:
    assert engine.alive
    assert engine.hello["protocol"] == 1
    assert "echo" in engine.hello["methods"]


def test_it_answers_request_after_request(engine: Engine) -> None:
    for number in range(5):
        given = {"number": number, "text": "naïve\n\u2028 \U0001f600", "nested": [{"a": None}, 1.5, True]}
        assert engine.request("echo", given, timeout=10)["echo"] == given


def test_it_hands_on_events_in_order(engine: Engine) -> None:
    seen: list[Any] = []
    answer = engine.request("count", {"events": 300}, timeout=30, on_event=lambda kind, data: seen.append((kind, data)))
    assert answer == {"events": 300}
    assert seen == [("progress", {"number": number}) for number in range(300)]


def test_events_nobody_asked_for_are_dropped(engine: Engine) -> None:
    assert engine.request("count", {"events": 3}, timeout=10) == {"events": 3}


def test_a_refusal_keeps_the_engines_own_words_and_the_engine(engine: Engine) -> None:
    with pytest.raises(errors.EngineRequestFailed, match="no such operator") as caught:
        engine.request("refuse", {}, timeout=10)
    assert caught.value.engine_code == "unsupported_operators"
    assert caught.value.hint == "change it"
    assert caught.value.details == {"operators": {"Foo": 2}}
    assert engine.alive
    assert engine.request("echo", {"a": 1}, timeout=10)["echo"] == {"a": 1}


def test_an_unknown_method_is_a_refusal(engine: Engine) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        engine.request("dance", {}, timeout=10)
    assert caught.value.engine_code == "unknown_method"
    assert engine.alive


def test_a_time_limit_ends_the_engine(engine: Engine) -> None:
    started = time.monotonic()
    with pytest.raises(errors.EngineTimeout):
        engine.request("sleep", {"seconds": 30}, timeout=0.3)
    assert time.monotonic() - started < 5
    assert_dead(engine)


def test_no_time_limit_is_possible(engine: Engine) -> None:
    assert engine.request("sleep", {"seconds": 0.2}, timeout=None) == {"slept": 0.2}


def test_cancelling_ends_the_engine_soon(engine: Engine) -> None:
    started = time.monotonic()
    with pytest.raises(Canceled):
        engine.request("sleep", {"seconds": 30}, timeout=60, canceled=lambda: time.monotonic() > started + 0.2)
    assert time.monotonic() - started < 3
    assert_dead(engine)


def test_a_request_that_is_not_canceled_ends_well(engine: Engine) -> None:
    assert engine.request("count", {"events": 2}, timeout=10, canceled=lambda: False) == {"events": 2}


def test_an_error_of_the_listener_reaches_the_caller_and_ends_the_engine(engine: Engine) -> None:
    def listen(kind: str, data: Json) -> None:
        raise LookupError("the listener's own")

    with pytest.raises(LookupError, match="the listener's own"):
        engine.request("count", {"events": 2}, timeout=10, on_event=listen)
    assert_dead(engine)


def test_a_crash_is_told_and_final(engine: Engine) -> None:
    with pytest.raises(errors.EngineCrashed, match="3"):
        engine.request("exit", {"status": 3}, timeout=10)
    assert_dead(engine)


def test_closing_is_final_and_may_be_repeated(engine: Engine) -> None:
    engine.close()
    engine.close()
    assert_dead(engine)
