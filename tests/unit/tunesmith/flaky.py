"""An HTTP server by script: each request gets the next answer, and what was asked is kept."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks_after: int | None = None
    """Bytes of the body after which the connection is reset."""


@dataclass
class Flaky:
    answers: list[Answer]
    """The last one is repeated."""
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path and headers."""
    url: str = ""

    def next(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        self.asked.append((method, path, {name.lower(): value for name, value in headers.items()}))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def flaky(*answers: Answer) -> Iterator[Flaky]:
    script = Flaky(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = script.next(self.command, self.path, dict(self.headers))
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body[: answer.breaks_after])
            if answer.breaks_after is not None:
                self.wfile.flush()
                # Closed without lingering: the other side sees a reset.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True

        do_GET = do_POST = do_PUT = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
