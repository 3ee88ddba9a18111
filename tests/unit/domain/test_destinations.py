"""Which addresses the service calls when somebody asks it to."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from domain import destinations, errors
from domain.destinations import AllowedHosts, Destination

NOBODY = AllowedHosts()


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://hooks.example.com/a?b=c&d", ("https", "hooks.example.com", 443, "/a?b=c&d")),
        ("http://Hooks.Example.com.:8080", ("http", "hooks.example.com", 8080, "/")),
        ("HTTPS://[2606:4700::1111]:99/x", ("https", "2606:4700::1111", 99, "/x")),
        ("http://8.8.8.8/%20x", ("http", "8.8.8.8", 80, "/%20x")),
    ],
)
def test_a_url_is_read(url: str, parts: tuple[object, ...]) -> None:
    found = destinations.parse(url)
    assert (found.scheme, found.host, found.port, found.path) == parts


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.com/a",
        "//hooks.example.com/a",
        "ftp://hooks.example.com/a",
        "file:///etc/passwd",
        "http://",
        "http:///a",
        "http://:80/",
        "https://user@hooks.example.com/",
        "https://user:word@hooks.example.com/",
        "https://@hooks.example.com/",
        "https://hooks.example.com/#fragment",
        "https://hooks.example.com/a b",
        "https://hooks.example.com\\@evil.example/",
        "https://hooks.example.com/\r\nX-Header: 1",
        "https://hooks.example.com/\x00",
        "https://hööks.example.com/",
        "https://hooks.example.com:0/",
        "https://hooks.example.com:65536/",
        "https://hooks.example.com:https/",
        "https://hooks..example.com/",
        "https://-hooks.example.com/",
        "https://ho%6fks.example.com/",
        "https://[::1/",
        "https://[fe80::1%25eth0]/",
        "https://[127.0.0.1]/",
        f"https://{'a' * 64}.example.com/",
        f"https://{'a.' * 150}com/",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(errors.InvalidWebhook) as refused:
        destinations.parse(url)
    assert refused.value.hint
    assert "word" not in refused.value.message


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "x.localhost", "LocalHost.", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1",
        "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200",  # noqa: S104
        "168.63.129.16", "198.18.0.1", "192.0.2.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.88.99.1",
        "[::1]", "[::]", "[fe80::1]", "[fc00::1]", "[fd00:ec2::254]", "[fec0::1]", "[ff02::1]", "[2001:db8::1]",
        "192.0.0.192", "[3fff::1]", "[5f00::1]", "[2002:7f00:1::1]", "[2002:808:808::1]", "[2001:0:1::1]",
        "[::127.0.0.1]", "[::ffff:127.0.0.1]", "[::ffff:8.8.8.8]", "[64:ff9b::7f00:1]", "[64:ff9b::a00:1]", "[100::1]",
    ],
)  # fmt: skip
def test_addresses_that_are_nobodys_server(host: str) -> None:
    with pytest.raises(errors.InvalidWebhook):
        destinations.check_host(destinations.parse(f"http://{host}/"), NOBODY)


@pytest.mark.parametrize(
    "host", ["8.8.8.8", "[2606:4700::1111]", "[64:ff9b::808:808]", "hooks.example.com", "134744072"]
)
def test_public_addresses_may_be_called(host: str) -> None:
    destinations.check_host(destinations.parse(f"http://{host}/"), NOBODY)


def test_every_address_of_a_name_counts() -> None:
    named = destinations.parse("https://hooks.example.com/")
    destinations.check_addresses(named, [ip_address("8.8.8.8"), ip_address("2606:4700::1111")], NOBODY)
    for bad in ("127.0.0.1", "fc00::1"):
        with pytest.raises(errors.InvalidWebhook):
            destinations.check_addresses(named, [ip_address("8.8.8.8"), ip_address(bad)], NOBODY)


@pytest.mark.parametrize(
    ("allowed", "url", "address"),
    [
        ("hooks.lan", "http://hooks.lan:81/", "10.0.0.1"),
        (" other.lan , HOOKS.lan:443 ", "https://hooks.lan/", "10.0.0.1"),
        ("localhost:8000", "http://localhost:8000/", "127.0.0.1"),
        ("10.0.0.0/8", "https://hooks.lan/", "10.9.8.7"),
        ("10.0.0.1", "https://10.0.0.1/", "10.0.0.1"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000/", "127.0.0.1"),
        ("::1", "http://[::1]:5/", "::1"),
        ("[::1]:5,[fc00::2]", "http://[::1]:5/", "::1"),
        ("[fc00::2]", "http://[fc00::2]/", "fc00::2"),
        ("fd00::/8", "http://hooks.lan/", "fd12::1"),
    ],
)
def test_an_admin_allows_more(allowed: str, url: str, address: str) -> None:
    destination, hosts = destinations.parse(url), AllowedHosts.parse(allowed)
    destinations.check_host(destination, hosts)
    destinations.check_addresses(destination, [ip_address(address)], hosts)


@pytest.mark.parametrize(
    ("allowed", "url", "address"),
    [
        ("hooks.lan:443", "http://hooks.lan/", "10.0.0.1"),
        ("lan", "http://hooks.lan/", "10.0.0.1"),
        ("10.0.0.1:80", "http://10.0.0.1:81/", "10.0.0.1"),
        ("10.0.0.0/16", "http://hooks.lan/", "10.1.0.1"),
        ("127.0.0.1", "http://hooks.lan/", "::1"),
        ("", "http://hooks.lan/", "10.0.0.1"),
    ],
)
def test_and_nothing_else(allowed: str, url: str, address: str) -> None:
    destination: Destination = destinations.parse(url)
    with pytest.raises(errors.InvalidWebhook):
        destinations.check_addresses(destination, [ip_address(address)], AllowedHosts.parse(allowed))


@pytest.mark.parametrize("text", ["http://hooks.lan", "10.0.0.1/8", "hooks.lan:0", "hooks.lan:99999", "a b", "*.lan"])
def test_a_setting_that_allows_nothing_is_told(text: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="TUNESMITH_WEBHOOK_HOSTS") as refused:
        AllowedHosts.parse(text)
    assert refused.value.hint
