from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tuner.engines.runtime.trackers import DeviceOffer, Tracker, TrackerSilent

MAGIC = struct.pack("<i", 0x2F271)


@contextmanager
def _listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that gives its first client to ``serve``."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            client, _ = server.accept()
            with client:
                serve(client)

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        thread.join(timeout=10)
        assert not thread.is_alive()


def _message(value: object) -> bytes:
    encoded = json.dumps(value).encode()
    return struct.pack("<i", len(encoded)) + encoded


def _greet(client: socket.socket) -> None:
    assert client.recv(4) == MAGIC
    client.sendall(MAGIC)


@pytest.mark.parametrize("address", ["", "board", "board:", ":9190", "board:http"])
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(TrackerSilent, match="HOST:PORT"):
        Tracker(address)


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(TrackerSilent, match="refused"):
        Tracker(f"127.0.0.1:{port}").devices()


@pytest.mark.parametrize("answer", [b"HTTP", b"", b"\x00"])
def test_something_else_answers(answer: bytes) -> None:
    def serve(client: socket.socket) -> None:
        client.recv(4)
        client.sendall(answer)

    with _listening(serve) as port, pytest.raises(TrackerSilent):
        Tracker(f"127.0.0.1:{port}").devices()


def test_devices_come_by_key() -> None:
    servers = [
        {"key": "server:rpi4", "addr": ["10.0.0.1", 9090]},
        {"key": "server:rpi4", "addr": ["10.0.0.2", 9090]},
        {"key": "server:a:b", "addr": ["10.0.0.3", 9091]},
    ]

    def serve(client: socket.socket) -> None:
        _greet(client)
        client.recv(64)
        answer = _message([0, {"queue_info": {}, "server_info": servers}])
        client.sendall(answer[:7])
        time.sleep(0.05)
        client.sendall(answer[7:])

    with _listening(serve) as port:
        found = Tracker(f"127.0.0.1:{port}").devices()
    assert found == {"rpi4": {"10.0.0.1:9090", "10.0.0.2:9090"}, "a:b": {"10.0.0.3:9091"}}


def test_waiting_does_not_block() -> None:
    go_on = threading.Event()

    def serve(client: socket.socket) -> None:
        _greet(client)
        assert json.loads(client.recv(64)[4:]) == [4, "rpi4", "", 1]
        go_on.wait(10)
        client.sendall(_message([0, ["10.0.0.1", 9090, "rpi4:0.5"]]))

    with _listening(serve) as port:
        ticket = Tracker(f"127.0.0.1:{port}").queue("rpi4")
        assert ticket.poll() is None
        go_on.set()
        ends = time.monotonic() + 10
        while (offer := ticket.poll()) is None:
            assert time.monotonic() < ends
            time.sleep(0.01)
        ticket.leave()
    assert offer == DeviceOffer(host="10.0.0.1", port=9090, match_key="rpi4:0.5")
    assert offer.device == "10.0.0.1:9090"


def test_a_tracker_that_hangs_up_is_noticed() -> None:
    def serve(client: socket.socket) -> None:
        _greet(client)
        client.recv(64)

    with _listening(serve) as port:
        ticket = Tracker(f"127.0.0.1:{port}").queue("rpi4")
    with pytest.raises(TrackerSilent):
        ticket.poll()
    ticket.leave()
