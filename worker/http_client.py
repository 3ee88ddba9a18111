"""Send one HTTP request to a URL that a caller chose, with limits on where it goes, how long it takes and its size.

The host name is resolved once, every address is checked, and the connection goes to a checked address, so a name server
that answers differently the second time gains nothing. TLS still verifies the host name. Redirects are not followed,
and the environment's proxies are not used.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from typing import Any

from domain import destinations
from domain.destinations import Address, AllowedHosts, Destination

SECONDS = 10.0
"""Time limit of a request without the name lookup, which has its own."""
_MOST_BODY_BYTES = 64 * 1024
_MOST_ANSWER_BYTES = 128 * 1024
"""With the headers."""

Resolve = Callable[[str, int], list[Address]]
"""Addresses of a host, best first. Raises OSError."""


@dataclass(frozen=True, kw_only=True)
class Response:
    status: int
    retry_after: str | None
    """The header's text."""


class Unreachable(Exception):
    """No response; the message gives the reason, without the URL."""


def look_up(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    texts = dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in found)
    return [ip_address(text) for text in texts]


@dataclass(frozen=True, kw_only=True)
class HttpClient:
    allowed: AllowedHosts
    resolve: Resolve = look_up
    seconds: float = SECONDS
    make_tls: Callable[[], ssl.SSLContext] = field(default=ssl.create_default_context)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self.make_tls()

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Response:
        """Raises Unreachable, and InvalidWebhook for a URL that is not allowed."""
        destination = destinations.parse(url)
        destinations.check_host(destination, self.allowed)
        addresses = self._resolved(destination)
        destinations.check_addresses(destination, addresses, self.allowed)
        deadline = time.monotonic() + self.seconds
        try:
            with contextlib.closing(self._connected(destination, addresses, deadline)) as connected:
                return _ask(destination, _Wire(connected, deadline), body, headers)
        except TimeoutError:
            raise Unreachable(f"no response within {self.seconds:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(f"invalid certificate: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise Unreachable(f"TLS failed: {error.reason}") from None
        except http.client.HTTPException as error:
            raise Unreachable(f"not an HTTP response: {type(error).__name__}") from None
        except OSError as error:
            raise Unreachable(f"the connection failed: {error.strerror or type(error).__name__}") from None

    def _resolved(self, destination: Destination) -> list[Address]:
        if destination.literal is not None:
            return [destination.literal]
        try:
            return self.resolve(destination.host, destination.port)
        except OSError:
            raise Unreachable("the host name does not resolve") from None

    def _connected(self, destination: Destination, addresses: list[Address], deadline: float) -> socket.socket:
        plain = _first(addresses, destination.port, deadline)
        if destination.scheme == "http":
            return plain
        try:
            return self._tls.wrap_socket(plain, server_hostname=destination.host)
        except BaseException:
            plain.close()
            raise


def _first(addresses: list[Address], port: int, deadline: float) -> socket.socket:
    """Connect to the first address that accepts; each gets an equal share of the remaining time."""
    failure: OSError = OSError("no address")
    for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
        try:
            connected = socket.create_connection((str(address), port), timeout=_until(deadline) / left)
        except OSError as error:
            failure = error
        else:
            connected.settimeout(_until(deadline))
            return connected
    raise failure


def _ask(destination: Destination, wire: _Wire, body: bytes, headers: Mapping[str, str]) -> Response:
    host = f"[{destination.host}]" if ":" in destination.host else destination.host
    connection = http.client.HTTPConnection(host, destination.port)
    connection.default_port = 443 if destination.scheme == "https" else 80
    connection.sock = wire
    connection.request("POST", destination.path, body, {**headers, "Connection": "close"})
    answer = connection.getresponse()
    # The status is known: errors in the body do not matter.
    with contextlib.suppress(OSError, http.client.HTTPException):
        answer.read(_MOST_BODY_BYTES)
    return Response(status=answer.status, retry_after=answer.getheader("Retry-After"))


class _Wire:
    """A socket for http.client, with one deadline for the whole exchange and a limit on the bytes read."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._connected = connected
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._connected.settimeout(_until(self._deadline))
            rest = rest[self._connected.send(rest) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Received(self._connected, self._deadline))

    def close(self) -> None:
        """Do nothing: http.client closes before the response is read; the caller closes the socket."""


class _Received(io.RawIOBase):
    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._connected = connected
        self._deadline = deadline
        self._left = _MOST_ANSWER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            return 0
        self._connected.settimeout(_until(self._deadline))
        count = self._connected.recv_into(buffer, min(len(buffer), self._left))
        self._left -= count
        return count


def _until(deadline: float) -> float:
    """Seconds left. Raises TimeoutError."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
