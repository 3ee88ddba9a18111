"""Requests to servers that somebody else named."""

from __future__ import annotations

import socket
import ssl
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.destinations import Address, AllowedHosts
from tests.support.worker.receivers import dripping, receiving
from worker import http_client
from worker.http_client import HttpClient, Unreachable

CERTIFICATE = Path(__file__).with_name("hooks_example.pem")
LOCAL = AllowedHosts.parse("127.0.0.1")
HEADERS = {"Content-Type": "application/json", "X-Own": "1"}


def client(*addresses: str, allowed: AllowedHosts = LOCAL, **options: Any) -> HttpClient:
    found: list[Address] = [ip_address(address) for address in addresses or ["127.0.0.1"]]
    return HttpClient(allowed=allowed, resolve=lambda *_: found, make_tls=_trusting, **options)


def _trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


def test_a_body_arrives_with_its_headers() -> None:
    with receiving(201) as receiver:
        assert client().post(receiver.url, b'{"a": 1}', HEADERS).status == 201
    (received,) = receiver.received
    assert (received.path, received.body) == ("/hooks?key=value", b'{"a": 1}')
    assert received.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert received.headers["content-type"] == "application/json"
    assert received.headers["x-own"] == "1"


def test_how_long_to_wait_comes_with_the_answer() -> None:
    with receiving(503, 204, retry_after="120") as receiver:
        first, second = (client().post(receiver.url, b"", HEADERS) for _ in range(2))
    assert (first.status, first.retry_after) == (503, "120")
    assert (second.status, second.retry_after) == (204, None)


def test_an_address_that_was_not_allowed_is_not_connected_to() -> None:
    with receiving() as receiver, pytest.raises(errors.InvalidWebhook):
        client(allowed=AllowedHosts()).post(receiver.url, b"", HEADERS)
    assert receiver.received == []


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"]])
def test_a_name_that_leads_inside_is_not_connected_to(addresses: list[str]) -> None:
    with receiving() as receiver, pytest.raises(errors.InvalidWebhook):
        client(*addresses, allowed=AllowedHosts()).post(f"http://hooks.example:{receiver.port}/", b"", HEADERS)
    assert receiver.received == []


def test_the_address_that_was_checked_is_the_one_that_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    lookup = socket.getaddrinfo

    def watched(host: str, *rest: Any, **options: Any) -> Any:
        asked.append(host)
        return lookup(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", watched)
    resolved: list[str] = []

    def rebinding(host: str, _port: int) -> list[Address]:
        resolved.append(host)
        return [ip_address("127.0.0.1" if len(resolved) == 1 else "169.254.169.254")]

    with receiving() as receiver:
        once = HttpClient(allowed=LOCAL, resolve=rebinding)
        assert once.post(f"http://hooks.example:{receiver.port}/", b"", HEADERS).status == 204
        assert receiver.received[0].headers["host"] == f"hooks.example:{receiver.port}"
        with pytest.raises(errors.InvalidWebhook):
            once.post(f"http://hooks.example:{receiver.port}/", b"", HEADERS)
    assert resolved == ["hooks.example"] * 2
    assert "hooks.example" not in asked


def test_names_are_looked_up() -> None:
    assert ip_address("127.0.0.1") in http_client.look_up("localhost", 80)
    with pytest.raises(Unreachable, match="does not resolve"):
        HttpClient(allowed=AllowedHosts()).post("http://nothing.invalid/", b"", HEADERS)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with receiving(status) as receiver:
        assert client().post(receiver.url, b"", HEADERS).status == status
    assert [received.path for received in receiver.received] == ["/hooks?key=value"]


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert client().post(receiver.url, b"", HEADERS).status == 204
    assert (len(proxy.received), len(receiver.received)) == (0, 1)


def test_a_certificate_is_checked_against_the_name() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with receiving(tls=context) as receiver:
        assert client().post(f"https://hooks.example:{receiver.port}/x", b"1", HEADERS).status == 204
        with pytest.raises(Unreachable, match="certificate"):
            client().post(f"https://other.example:{receiver.port}/x", b"2", HEADERS)
        with pytest.raises(Unreachable, match="certificate"):
            HttpClient(allowed=LOCAL, resolve=lambda *_: [ip_address("127.0.0.1")]).post(
                f"https://hooks.example:{receiver.port}/x", b"3", HEADERS
            )
    assert [received.body for received in receiver.received] == [b"1"]


def test_plain_http_where_tls_is_expected_is_told() -> None:
    with receiving() as receiver, pytest.raises(Unreachable, match="TLS failed"):
        client().post(f"https://hooks.example:{receiver.port}/x", b"", HEADERS)


@pytest.mark.parametrize(
    "pieces",
    [
        [b""],
        [b"HTTP/1.1 200 OK\r\n", b"X-Drip: 1\r\n"],
        [b"H"],
    ],
    ids=["silent", "headers without end", "garbage without end"],
)
def test_no_server_holds_us_up(pieces: list[bytes]) -> None:
    with dripping(pieces, pause=0.05) as port:
        started = time.monotonic()
        with pytest.raises(Unreachable, match=r"no response within 0.4 s|not an HTTP response"):
            client(seconds=0.4).post(f"http://127.0.0.1:{port}/", b"", HEADERS)
        # What the server sends has no end: whoever goes by that would still be here.
        assert time.monotonic() - started < 20


def test_a_body_without_end_is_cut_off_and_its_status_counts() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
    with dripping([head, b"x" * 8192], pause=0.0) as port:
        assert client(seconds=5).post(f"http://127.0.0.1:{port}/", b"", HEADERS).status == 200


def test_headers_without_end_are_cut_off() -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    with dripping([head, b"X-Long: " + b"x" * 8000 + b"\r\n"], pause=0.0) as port:
        assert client(seconds=5).post(f"http://127.0.0.1:{port}/", b"", HEADERS).status == 200


def test_what_is_no_http_is_told() -> None:
    greeting = b"220 mail.example ESMTP\r\n"
    with dripping([greeting], pause=0.01) as port, pytest.raises(Unreachable, match="not an HTTP response"):
        client().post(f"http://127.0.0.1:{port}/", b"", HEADERS)


def test_the_next_address_is_tried() -> None:
    with receiving() as receiver:
        both = client("::1", "127.0.0.1", allowed=AllowedHosts.parse("127.0.0.0/8,::1"))
        assert both.post(f"http://hooks.example:{receiver.port}/", b"", HEADERS).status == 204


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match="refused"):
        client().post(f"http://127.0.0.1:{port}/", b"", HEADERS)
