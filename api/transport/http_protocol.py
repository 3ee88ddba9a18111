"""uvicorn's HTTP/1.1, which lets nobody hold a connection by being slow, and refuses in problem documents."""

from __future__ import annotations

import asyncio
import fcntl
import http
import sys
import termios
from functools import partial
from typing import Any

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from api import problems
from api.live.event_hub import WRITE_CHUNK
from api.settings import ApiSettings
from api.transport.known_answers import REQUEST, KnownAnswers

_IDLE = {h11.CLIENT: h11.IDLE, h11.SERVER: h11.IDLE}


class HttpProtocol(H11Protocol):
    """uvicorn's own timer covers connections on which nothing comes after an answer. Ours covers a request whose head
    never ends, before the first answer too, and a reader that takes nothing of its answer."""

    settings: ApiSettings
    known: KnownAnswers

    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _unsent: int = 0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.app = self._extended(self.app)
        self._request = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._head_timer)
        self._stop(self._write_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._request = data if self._is_idle() else b""
        answer = self.known.answer(data, self.server_state.default_headers) if self._request else None
        if answer:
            self.transport.write(answer)
            self._stop(self._head_timer)
            self._head_timer = None
            self.on_response_complete()
            return
        super().data_received(data)
        if self.conn.trailing_data[0]:
            # More than one request came: the bytes are none of them.
            self._request = b""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop(self._head_timer)
            self._head_timer = None
        elif self.timeout_keep_alive_task is None:
            self._await_head()

    def _is_idle(self) -> bool:
        """Whether nothing is being asked, answered or waited for."""
        return (
            self.conn.states == _IDLE
            and not self.conn.trailing_data[0]
            and not self.flow.write_paused
            and (self.cycle is None or self.cycle.response_complete)
        )

    def _extended(self, app: ASGIApp) -> ASGIApp:
        """With what only a connection knows in the scope of each request."""

        async def extended(scope: Scope, receive: Receive, send: Send) -> None:
            extensions = scope.setdefault("extensions", {})
            cycle = self.cycle
            if self._request and cycle is not None and cycle.body == b"" and not self.conn.trailing_data[0]:
                extensions[REQUEST] = self._request
            if scope["method"] == "GET" and scope["http_version"] == "1.1":
                extensions[WRITE_CHUNK] = partial(self._write_chunk, cycle)
            await app(scope, receive, send)

        return extended

    def _write_chunk(self, cycle: RequestResponseCycle, chunk: bytes) -> bool:
        """Send one more chunk of the answer's body, ready as HTTP/1.1 has it; False where that would have to wait, or
        the answer has ended."""
        ended = cycle.disconnected or cycle.response_complete or self.transport.is_closing()
        if ended or self.transport.get_write_buffer_size():
            return False
        self.transport.write(chunk)
        return True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        self._stop(self._write_timer)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What h11 could not read: too much, or no HTTP."""
        error = sys.exception()
        status = getattr(error, "error_status_hint", http.HTTPStatus.BAD_REQUEST)
        self._refuse(status, str(error) if isinstance(error, h11.RemoteProtocolError) else msg)

    def _await_head(self) -> None:
        """Counted from the head's first byte, or from the connection; more bytes do not buy more time."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.settings.head_seconds, self._give_up_waiting)

    def _await_reader(self) -> None:
        self._unsent = self._not_taken()
        self._write_timer = self.loop.call_later(self.settings.write_seconds, self._cut_off)

    def _cut_off(self) -> None:
        """Unless something was taken meanwhile, however little: a slow line is no offence."""
        if self._not_taken() < self._unsent:
            self._await_reader()
        else:
            self.transport.abort()

    def _not_taken(self) -> int:
        """Bytes that the reader has not acknowledged; the kernel holds megabytes of them, and takes more in large steps
        only."""
        held = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        return self.transport.get_write_buffer_size() + int.from_bytes(held, sys.byteorder)

    def _give_up_waiting(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(http.HTTPStatus.REQUEST_TIMEOUT, "the request's headers took too long")
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        answer = problems.outside(status, detail)
        headers: list[Any] = [*answer.raw_headers, (b"connection", b"close")]
        reason = http.HTTPStatus(status).phrase.encode()
        for event in (
            h11.Response(status_code=status, headers=headers, reason=reason),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _stop(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def protocol(settings: ApiSettings, known: KnownAnswers) -> type[HttpProtocol]:
    """uvicorn makes instances by itself, and passes on nothing of ours."""
    return type("ConfiguredHttpProtocol", (HttpProtocol,), {"settings": settings, "known": known})
