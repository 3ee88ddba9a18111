"""The codec: golden transcripts hold its form, properties hold for everything else."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tuner.engines.protocol import messages
from tuner.engines.protocol.messages import Event, MalformedMessage, Request

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.dictionaries(
    TEXT, st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)
)
LINES = st.binary(max_size=300) | st.recursive(SCALARS, st.lists).map(lambda value: repr(value).encode())


def lines(transcript: Path, mark: str) -> list[bytes]:
    return [
        line[2:].encode() for line in transcript.read_text().splitlines(keepends=True) if line.startswith(f"{mark} ")
    ]


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_form_of_messages_stays(transcript: Path) -> None:
    requests, events = lines(transcript, ">"), lines(transcript, "<")
    assert requests
    assert events
    assert [messages.encode_request(messages.decode_request(line)) for line in requests] == requests
    assert [messages.encode_event(messages.decode_event(line)) for line in events] == events


@given(st.integers(), TEXT, JSON)
def test_a_request_comes_back_as_it_went(identifier: int, method: str, params: dict[str, Any]) -> None:
    request = Request(id=identifier, method=method, params=params)
    line = messages.encode_request(request)
    assert messages.decode_request(line) == request
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


@given(TEXT, st.none() | st.integers(), JSON)
def test_an_event_comes_back_as_it_went(kind: str, request: int | None, data: dict[str, Any]) -> None:
    event = Event(kind=kind, request=request, data=data)
    line = messages.encode_event(event)
    assert messages.decode_event(line) == event
    assert line.count(b"\n") == 1


@given(LINES)
@example(b'{"event":"result","id":1,"data":{"seconds":NaN}}')
@example(b'{"event":"result","id":1,"data":{"seconds":-Infinity}}')
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b'{"id":' + b"9" * 5000 + b"}")
@example(b"\xff\xfe{}")
def test_any_other_line_is_malformed_and_nothing_else(line: bytes) -> None:
    for decode in (messages.decode_event, messages.decode_request):
        with pytest.raises(MalformedMessage):
            decode(line)


@given(JSON)
def test_an_object_is_a_message_or_malformed(data: dict[str, Any]) -> None:
    line = messages.encode_event(Event(kind="x", data=data))
    inner = line[line.index(b'"data":') + len(b'"data":') : -2]
    for decode in (messages.decode_event, messages.decode_request):
        with contextlib.suppress(MalformedMessage):
            assert isinstance(decode(inner), Event | Request)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_lacks_are_not_sent(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        messages.encode_event(Event(kind="result", data={"seconds": value}))


def test_a_message_may_fill_its_line_and_no_more() -> None:
    empty = len(messages.encode_event(Event(kind="log", data={"text": ""})))
    fitting = Event(kind="log", data={"text": "x" * (messages.MAX_LINE_BYTES - empty)})
    assert len(messages.encode_event(fitting)) == messages.MAX_LINE_BYTES
    with pytest.raises(MalformedMessage, match="bytes"):
        messages.encode_event(Event(kind="log", data={"text": fitting.data["text"] + "x"}))
