"""Who uploads slowly holds up nobody else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from api.middleware.upload_slots import UploadSlots
from domain import errors
from tests.integration.api.test_rough_clients import connected
from tests.support.api import callers
from tests.support.api.factories import Service, open_service
from tests.support.api.live import serving
from tests.support.waiting import until


def test_an_owner_has_half_of_the_slots() -> None:
    async def scenario() -> None:
        slots = UploadSlots(5)
        async with AsyncExitStack() as held:
            for _ in range(2):
                await held.enter_async_context(slots.one("ann"))
            with pytest.raises(errors.RateLimited, match="2 uploads") as caught:
                await held.enter_async_context(slots.one("ann"))
            assert caught.value.details["retry_after_seconds"] > 0
            await held.enter_async_context(slots.one("ben"))
            assert len(slots) == 3
        assert len(slots) == 0
        async with slots.one("ann"):
            assert len(slots) == 1

    anyio.run(scenario)


def test_of_one_slot_everybody_has_all() -> None:
    async def scenario() -> None:
        slots = UploadSlots(1)
        for owner in ("ann", "ben", "ann"):
            async with slots.one(owner):
                pass

    anyio.run(scenario)


def test_when_all_are_taken_others_wait_and_who_gives_up_leaves_nothing() -> None:
    async def scenario() -> None:
        slots = UploadSlots(2)
        async with slots.one("ann"), slots.one("ben"):
            with anyio.move_on_after(0.02) as waited:
                async with slots.one("cat"):
                    raise AssertionError
            assert waited.cancelled_caught
            assert len(slots) == 2
        with pytest.raises(ZeroDivisionError):
            async with slots.one("cat"):
                raise ZeroDivisionError
        async with slots.one("cat"):
            assert len(slots) == 1

    anyio.run(scenario)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_service(tmp_path, upload_slots=2) as made:
        yield made


@contextmanager
def under_way(url: str, service: Service, request: str, headers: dict[str, str]) -> Iterator[socket.socket]:
    """A request whose body never ends, and has begun to be received."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    before = len(service.app.state.services.uploads)
    with connected(url) as connection:
        connection.sendall(f"{request} HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: 90000\r\n\r\nbytes".encode())
        until(lambda: len(service.app.state.services.uploads) == before + 1)
        yield connection


@pytest.mark.parametrize("slow", ["PUT /v1/models", "POST /v1/records?tuner=autotvm"])
def test_slow_uploads_of_one_owner_leave_room_for_others(service: Service, slow: str) -> None:
    ann, again, ben = (callers.headers(service, owner=owner) for owner in ("ann", "ann", "ben"))
    with serving(service) as url, httpx.Client(base_url=url, trust_env=False) as http:
        with under_way(url, service, slow, ann):
            for request in (("PUT", "/v1/models"), ("POST", "/v1/records?tuner=autotvm&target=llvm")):
                refused = http.request(*request, content=b"bytes", headers=again)
                assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
                assert int(refused.headers["Retry-After"]) > 0
                assert "one at a time" in refused.json()["hint"]
            assert http.put("/v1/models", content=b"bytes", headers=ben).status_code == 201
        until(lambda: len(service.app.state.services.uploads) == 0)
        assert http.put("/v1/models", content=b"others", headers=again).status_code == 201
