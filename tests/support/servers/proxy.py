"""A TCP proxy in front of a server: cuts, refuses, delays or swallows what passes, or answers HTTP writes itself."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

_CHUNK_BYTES = 64 * 1024
_DRAIN_SECONDS = 2.0
_WRITES = (b"PUT ", b"POST ")
_REASONS = {403: "Forbidden", 500: "Internal Server Error", 503: "Service Unavailable", 507: "Insufficient Storage"}
_CODES = {403: "AccessDenied", 500: "InternalError", 503: "SlowDown", 507: "InsufficientStorage"}


class Proxy:
    """Passes everything on until it is told otherwise; each attribute may be changed at any time."""

    def __init__(self, target: int) -> None:
        self.refusing = False
        """Whether new connections are reset at once."""
        self.silent = False
        """Whether what comes in is kept back, in both directions, as by a network that drops packets."""
        self.delay = 0.0
        """Seconds that each piece of data is kept back."""
        self.answer_writes: int | None = None
        """HTTP status with which PUT and POST are answered instead of the server."""
        self.refused = 0
        """How many HTTP writes were answered so."""
        self.cuts = 0
        """How many connections were cut."""
        self._target = target
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def cut(self) -> int:
        """Reset every connection that is open now; returns how many."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                _reset(end)
        self.cuts += len(pairs)
        return len(pairs)

    def close(self) -> None:
        # A thread that waits in accept() does not notice a close.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.silent = False
        self.cut()
        for thread in self._threads:
            thread.join(timeout=5)

    def _run(self, action: object, *arguments: object) -> None:
        thread = threading.Thread(target=action, args=arguments, name="proxy", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                _reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _reset(client)
                continue
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            self._run(self._pass_on, pair, client, server)
            self._run(self._pass_on, pair, server, client)

    def _pass_on(self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket) -> None:
        from_client = source is pair[0]
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                if self.delay:
                    time.sleep(self.delay)
                while self.silent and pair in self._pairs:
                    time.sleep(0.02)
                # The beginning of a request comes in a piece of its own: clients wait for the answer to the last one.
                if from_client and self.answer_writes and chunk.startswith(_WRITES):
                    self.refused += 1
                    _answer(source, self.answer_writes)
                    break
                sink.sendall(chunk)
        with self._lock:
            known = pair in self._pairs
            self._pairs.discard(pair)
        for end in pair if known else ():
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextlib.contextmanager
def before(port: int) -> Iterator[Proxy]:
    """A proxy in front of the server that listens on this loopback port."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()


def _answer(client: socket.socket, status: int) -> None:
    """As S3 would refuse; what is still to come of the request is read and forgotten, lest the answer be lost."""
    code = _CODES.get(status, "InternalError")
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>refused by a test</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}\r\nContent-Type: application/xml\r\n"
    client.sendall(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    client.shutdown(socket.SHUT_WR)
    client.settimeout(_DRAIN_SECONDS)
    with contextlib.suppress(TimeoutError):
        while client.recv(_CHUNK_BYTES):
            pass


def _reset(end: socket.socket) -> None:
    """Close with a TCP reset instead of an orderly end; a thread that reads from it wakes up."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RD)
    with contextlib.suppress(OSError):
        end.close()
