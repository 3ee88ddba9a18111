"""Bytes arrive wholly or not at all, and what has arrived is not sent again."""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.tunesmith.flaky import Answer, flaky
from tunesmith import downloads, errors
from tunesmith.connection import Connection
from tunesmith.transport import Transport

BYTES = bytes(range(256)) * 4096
DIGEST = hashlib.sha256(BYTES).hexdigest()
SOURCE = "/v1/artifacts/a-1/download"
HALF = len(BYTES) // 2
REST = Answer(status=206, body=BYTES[HALF:])


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "best.tar"
    path.write_bytes(b"the old one")
    yield path
    assert {each.name for each in tmp_path.iterdir()} <= {"best.tar", part(path).name}


def part(target: Path) -> Path:
    return target.with_name(f".best.tar.{DIGEST[:12]}.part")


def fetch(url: str, target: Path, **options: object) -> Path:
    transport = Transport(Connection(url=url, token=None), retries=2)
    return downloads.fetch(transport, SOURCE, target, digest=DIGEST, size=len(BYTES), **options)  # type: ignore[arg-type]


def ranges(asked: list[tuple[str, str, dict[str, str]]]) -> list[str | None]:
    return [headers.get("range") for _, _, headers in asked]


def test_a_broken_connection_is_taken_up(target: Path) -> None:
    seen: list[tuple[int, int]] = []
    half = Answer(body=BYTES[:HALF], headers={"Content-Length": str(len(BYTES))})
    with flaky(half, REST) as server:
        fetch(server.url, target, progress=lambda there, total: seen.append((there, total)))
    assert target.read_bytes() == BYTES
    assert ranges(server.asked) == [None, f"bytes={HALF}-"]
    assert server.asked[1][2]["if-range"] == f'"{DIGEST}"'
    assert seen[-1] == (len(BYTES), len(BYTES))
    assert not part(target).exists()


def test_the_next_process_takes_it_up(target: Path) -> None:
    part(target).write_bytes(BYTES[:HALF])
    with flaky(Answer(status=503)) as server, pytest.raises(errors.ServerError):
        fetch(server.url, target)
    assert target.read_bytes() == b"the old one"
    with flaky(REST) as server:
        fetch(server.url, target)
    assert ranges(server.asked) == [f"bytes={HALF}-"]
    assert target.read_bytes() == BYTES


def test_all_of_it_was_there_already(target: Path) -> None:
    part(target).write_bytes(BYTES)
    with flaky(Answer()) as server:
        fetch(server.url, target)
    assert (server.asked, target.read_bytes()) == ([], BYTES)


@pytest.mark.parametrize("left", [b"something else", b"x" * len(BYTES), b"x" * (len(BYTES) + 1)])
def test_what_was_left_is_no_beginning_of_it(target: Path, left: bytes) -> None:
    part(target).write_bytes(left)
    whole = Answer(body=BYTES)
    with flaky(*([Answer(status=206, body=BYTES[len(left) :])] if len(left) < len(BYTES) else []), whole) as server:
        fetch(server.url, target)
    assert target.read_bytes() == BYTES


def test_a_server_without_ranges_sends_the_whole(target: Path) -> None:
    part(target).write_bytes(BYTES[:HALF])
    with flaky(Answer(body=BYTES)) as server:
        fetch(server.url, target)
    assert target.read_bytes() == BYTES


def test_wrong_bytes_are_nobodys(target: Path) -> None:
    with flaky(Answer(body=b"y" * len(BYTES))) as server, pytest.raises(errors.ServerError, match="digest"):
        fetch(server.url, target)
    assert target.read_bytes() == b"the old one"
    assert not part(target).exists()


def test_a_server_that_never_has_it(target: Path) -> None:
    answer = Answer(status=404, body=b'{"code": "blob_not_found", "detail": "gone"}')
    with flaky(answer) as server, pytest.raises(errors.NotFound) as caught:
        fetch(server.url, target)
    assert caught.value.code == "blob_not_found"
    assert (len(server.asked), part(target).exists()) == (1, False)


@pytest.mark.parametrize("seconds", ["86400", "9" * 400])
def test_a_server_that_wants_a_long_wait(target: Path, monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    body = b'{"code": "rate_limited", "detail": "slower"}'
    soon, late = (Answer(status=429, body=body, headers={"Retry-After": wait}) for wait in ("60", seconds))
    with flaky(soon, late) as server, pytest.raises(errors.TooMuch):
        fetch(server.url, target)
    assert (len(server.asked), pauses) == (2, [60.0])


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with flaky(Answer(body=BYTES)) as server, pytest.raises(errors.InvalidInput) as caught:
        fetch(server.url, tmp_path / "nowhere" / "best.tar")
    assert caught.value.code == "unwritable_file"


def _hold(path: Path, held: object, done: object) -> None:
    file = downloads._alone(path)
    held.set()  # type: ignore[attr-defined]
    done.wait(20)  # type: ignore[attr-defined]
    assert file is not None
    file.close()


@pytest.mark.contract
def test_two_at_one_place_do_not_mix(target: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(part(target), held, done))
    other.start()
    try:
        assert held.wait(20)
        with flaky(Answer(body=BYTES)) as server:
            fetch(server.url, target)
        assert target.read_bytes() == BYTES
        assert part(target).read_bytes() == b"", "the other's is left alone"
    finally:
        done.set()
        other.join(20)
