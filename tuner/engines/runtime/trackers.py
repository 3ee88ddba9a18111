"""Non-blocking client of TVM's RPC tracker that also learns the address of the device it gets.

TVM's ``TrackerSession.request`` blocks until a device is free and does not expose its address. After a handshake the
tracker speaks length-prefixed JSON; see ``tvm.rpc.tracker`` and ``tvm.rpc.base``, which are alike in TVM 0.19 and 0.27.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
from dataclasses import dataclass
from typing import Any

_TRACKER_MAGIC, _SERVER_MAGIC = 0x2F271, 0xFF271
_REQUEST, _SUMMARY = 4, 6
_ANSWER_SECONDS = 5.0
_MOST_BYTES = 1 << 24


class TrackerSilent(Exception):
    """No tracker answers at that address; the message is the cause."""


@dataclass(frozen=True, kw_only=True)
class DeviceOffer:
    """A device reserved for us by the tracker until a session on it ends or ``give_back`` is called."""

    host: str
    port: int
    match_key: str

    @property
    def device(self) -> str:
        return f"{self.host}:{self.port}"

    def give_back(self) -> None:
        """Open a session and leave it, after which the server reports to the tracker again."""
        key = f"client:{self.match_key}".encode()
        with contextlib.suppress(OSError), _connect((self.host, self.port)) as connection:
            connection.sendall(struct.pack("<ii", _SERVER_MAGIC, len(key)) + key)
            # Read the whole answer and shut down cleanly: TVM's server exits for good when it reads from a connection
            # that was reset.
            (size,) = struct.unpack("<4xi", _receive(connection, 8))
            _receive(connection, size)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)

    def is_reachable(self) -> bool:
        """Return whether the device's server accepts connections, even while in a session."""
        try:
            _connect((self.host, self.port)).close()
        except OSError:
            return False
        return True


class Ticket:
    """Position in the tracker's queue for one device."""

    def __init__(self, connection: socket.socket, key: str) -> None:
        self._connection = connection
        self._received = bytearray()
        _send(connection, [_REQUEST, key, "", 1])
        connection.setblocking(False)

    def fileno(self) -> int:
        return self._connection.fileno()

    def poll(self) -> DeviceOffer | None:
        """Return the device once it is our turn, without blocking. Raises TrackerSilent if disconnected."""
        try:
            while _decode(bytes(self._received)) is None and select.select([self._connection], [], [], 0)[0]:
                chunk = self._connection.recv(4096)
                if not chunk:
                    raise TrackerSilent("the tracker closed the connection")
                self._received += chunk
            answer = _decode(bytes(self._received))
            if answer is None:
                return None
            _, (host, port, match_key) = answer
        except (OSError, ValueError, TypeError) as error:
            raise TrackerSilent(str(error)) from error
        return DeviceOffer(host=str(host), port=int(port), match_key=str(match_key))

    def close(self) -> None:
        """Leave the queue; a device offered meanwhile is given back."""
        offer = None
        with contextlib.suppress(TrackerSilent):
            offer = self.poll()
        self.leave()
        if offer is not None:
            offer.give_back()

    def leave(self) -> None:
        """Close the connection; a device already polled remains ours."""
        self._connection.close()


class Tracker:
    """Client of one tracker. Every method raises TrackerSilent."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise TrackerSilent(f"{address!r} is not HOST:PORT")
        self._place = (host.strip("[]"), int(port))

    def queue(self, key: str) -> Ticket:
        connection = self._connected()
        try:
            return Ticket(connection, key)
        except OSError as error:
            connection.close()
            raise TrackerSilent(str(error)) from error

    def devices(self) -> dict[str, set[str]]:
        """Return the ``HOST:PORT`` of each key's servers, both free and busy."""
        with self._connected() as connection:
            try:
                _send(connection, [_SUMMARY])
                received = bytearray()
                while (answer := _decode(bytes(received))) is None:
                    chunk = connection.recv(65536)
                    if not chunk:
                        raise TrackerSilent("the tracker closed the connection")
                    received += chunk
                servers = answer[1]["server_info"]
                found: dict[str, set[str]] = {}
                for server in servers:
                    host, port = server["addr"]
                    found.setdefault(server["key"].partition(":")[2], set()).add(f"{host}:{port}")
            except (OSError, ValueError, LookupError, TypeError) as error:
                raise TrackerSilent(str(error)) from error
        return found

    def _connected(self) -> socket.socket:
        try:
            connection = _connect(self._place)
        except OSError as error:
            raise TrackerSilent(str(error)) from error
        try:
            connection.sendall(struct.pack("<i", _TRACKER_MAGIC))
            answer = _receive(connection, 4)
            if answer != struct.pack("<i", _TRACKER_MAGIC):
                raise TrackerSilent("the program that listens there is not an RPC tracker")
        except (OSError, TrackerSilent) as error:
            connection.close()
            raise TrackerSilent(str(error)) from error
        return connection


def _connect(place: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(place, timeout=_ANSWER_SECONDS)
    # Messages are sent in two parts, which Nagle's algorithm would delay by 40 ms.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise ConnectionError("the connection was closed")
        received += chunk
    return received


def _send(connection: socket.socket, message: Any) -> None:
    encoded = json.dumps(message).encode()
    connection.sendall(struct.pack("<i", len(encoded)) + encoded)


def _decode(received: bytes) -> Any:
    """Decode the first message; None while it is incomplete. Raises ValueError."""
    if len(received) < 4:
        return None
    (size,) = struct.unpack("<i", received[:4])
    if not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"a message of {size} bytes")
    return json.loads(received[4 : 4 + size]) if len(received) >= 4 + size else None
