"""Allowed destinations of webhooks: public addresses, and those that an admin has allowed.

Everyone who may submit jobs can make the service call an address. Without restrictions, that could be anything that its
machine can reach: local ports, neighbours, or a cloud's metadata service.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from domain import errors

ALLOWED_HOSTS = (
    "Comma-separated hosts that webhooks may call although their addresses are not public: HOST, HOST:PORT or a "
    "network such as 10.1.0.0/16. For the API and the workers alike."
)
"""Description of the setting."""

Address = IPv4Address | IPv6Address
_PORTS = {"http": 80, "https": 443}
_READABLE = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+")
"""Characters of a URL by RFC 3986, without the fragment; URL parsers disagree about others."""
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NAT64 = IPv6Network("64:ff9b::/96")
_CLOSED = tuple(
    ip_network(text)
    for text in (
        "168.63.129.16/32",  # Azure's service for its virtual machines
        "192.0.0.0/24",  # IETF protocols; Oracle's metadata
        "192.88.99.0/24",  # 6to4 relays
        "2002::/16",  # 6to4, which can embed any IPv4 address
        "3fff::/20",  # documentation
        "fec0::/10",  # deprecated site-local addresses
    )
)
"""Not public, although Python's ipaddress may regard some of them as global."""


@dataclass(frozen=True, kw_only=True)
class Destination:
    scheme: str
    host: str
    """In lower case, without brackets and trailing dot."""
    port: int
    path: str
    """Including the query."""

    @property
    def literal(self) -> Address | None:
        """Return the address if the host is a literal one, also in forms that resolvers accept: ``127.1``,
        ``0x7f000001``."""
        try:
            return ip_address(self.host)
        except ValueError:
            pass
        try:
            return IPv4Address(socket.inet_aton(self.host))
        except OSError:
            return None


@dataclass(frozen=True, kw_only=True)
class AllowedHosts:
    """Hosts and networks that may be called although they are not public; a port of None means any port."""

    names: frozenset[tuple[str, int | None]] = frozenset()
    networks: frozenset[tuple[IPv4Network | IPv6Network, int | None]] = frozenset()

    @staticmethod
    def parse(text: str) -> AllowedHosts:
        """Parse ``HOST``, ``HOST:PORT`` and ``ADDRESS/BITS``, separated by commas. Raises ConfigurationError."""
        names, networks = set(), set()
        for entry in filter(None, (part.strip() for part in text.split(","))):
            host, port = _host_and_port(entry)
            try:
                networks.add((ip_network(host), port))
            except ValueError:
                if not _NAME.fullmatch(host):
                    raise _not_allowable(entry) from None
                names.add((host, port))
        return AllowedHosts(names=frozenset(names), networks=frozenset(networks))

    def has_name(self, destination: Destination) -> bool:
        return any((destination.host, port) in self.names for port in (None, destination.port))

    def has_address(self, address: Address, port: int) -> bool:
        return any(known in (None, port) and address in network for network, known in self.networks)


def checked_hosts(text: str) -> str:
    """Return ``text`` if it is valid. Raises ConfigurationError."""
    AllowedHosts.parse(text)
    return text


def parse(url: str) -> Destination:
    """Parse an http or https URL. Raises InvalidWebhook, also for credentials or a fragment."""
    if not _READABLE.fullmatch(url):
        raise _refusal("has characters that a URL must percent-encode, or a fragment")
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), (parts.hostname or "").removesuffix("."), parts.port
    except ValueError:
        raise _refusal("is not a valid URL") from None
    if scheme not in _PORTS:
        raise _refusal("is neither https:// nor http://")
    if "@" in parts.netloc:
        raise _refusal("contains credentials")
    if not _is_host(host, bracketed="[" in parts.netloc) or port == 0:
        raise _refusal("has no valid host or port")
    query = f"?{parts.query}" if parts.query else ""
    return Destination(scheme=scheme, host=host, port=port or _PORTS[scheme], path=(parts.path or "/") + query)


def check_host(destination: Destination, allowed: AllowedHosts) -> None:
    """Check the host without name resolution. Raises InvalidWebhook."""
    if allowed.has_name(destination):
        return
    if destination.host == "localhost" or destination.host.endswith(".localhost"):
        raise _refusal("refers to the server itself")
    if destination.literal is not None:
        check_addresses(destination, [destination.literal], allowed)


def check_addresses(destination: Destination, addresses: Iterable[Address], allowed: AllowedHosts) -> None:
    """Check all addresses that the host resolves to, as any of them may be used. Raises InvalidWebhook."""
    if allowed.has_name(destination):
        return
    for address in addresses:
        if not is_public(address) and not allowed.has_address(address, destination.port):
            raise _refusal("resolves to a private or reserved address")


def is_public(address: Address) -> bool:
    """Return whether it is the address of a single machine on the internet."""
    if isinstance(address, IPv6Address) and address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    if any(address in network for network in _CLOSED):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _is_host(host: str, *, bracketed: bool) -> bool:
    if not bracketed:
        return len(host) <= 253 and _NAME.fullmatch(host) is not None
    try:
        return isinstance(ip_address(host), IPv6Address) and "%" not in host
    except ValueError:
        return False


def _host_and_port(entry: str) -> tuple[str, int | None]:
    """Split host and port. Raises ConfigurationError."""
    match = re.fullmatch(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:]+)):(?P<port>[0-9]{1,5})", entry)
    if match is None:
        return entry.lower().strip("[]").removesuffix("."), None
    if not 0 < int(match["port"]) < 2**16:
        raise _not_allowable(entry)
    return (match["six"] or match["host"]).lower().removesuffix("."), int(match["port"])


def _not_allowable(entry: str) -> errors.ConfigurationError:
    return errors.ConfigurationError(
        f"TUNESMITH_WEBHOOK_HOSTS: {entry[:80]!r} is not a host or network",
        hint="List hosts separated by commas: hooks.lan, hooks.lan:8443, 10.1.2.3, 10.1.0.0/16.",
    )


def _refusal(what: str) -> errors.InvalidWebhook:
    # Without the URL, which may contain a secret.
    return errors.InvalidWebhook(f"the webhook's URL {what}")
