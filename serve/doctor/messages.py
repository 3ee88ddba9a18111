"""Check of the broker: it responds, persists messages and evicts none."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
from redis.exceptions import RedisError

from serve.doctor import findings
from serve.doctor.findings import Finding

CHECK = "broker"
_SECONDS = 5.0
_MEMORY_SHARE = 0.9


def check(url: str) -> list[Finding]:
    try:
        client = connect(url)
    except (ValueError, RedisError) as error:
        hint = "Write it as redis://:PASSWORD@host:6379/0, or rediss:// with TLS."
        return [findings.fail(CHECK, "broker_url_invalid", f"invalid TUNESMITH_BROKER_URL: {error}", hint)]
    with client:
        try:
            return list(_checked(client))
        except RedisError as error:
            hint = "Check that it runs and is reachable, and that TUNESMITH_BROKER_URL has its host, port and password."
            return [findings.fail(CHECK, "broker_unavailable", f"the broker does not respond: {error}", hint)]


def connect(url: str) -> redis.Redis:
    """Create a client for a URL in Celery's form. Raises ValueError."""
    options: dict[str, Any] = {"socket_timeout": _SECONDS, "socket_connect_timeout": _SECONDS}
    parts = urlsplit(url)
    if parts.scheme != "redis+socket":
        return redis.Redis.from_url(url, **options)
    number = dict(parse_qsl(parts.query)).get("virtual_host", "0")
    password = unquote(parts.password) if parts.password else None
    return redis.Redis(unix_socket_path=unquote(parts.path), db=int(number), password=password, **options)


def _checked(client: redis.Redis) -> Iterator[Finding]:
    started = time.monotonic()
    client.ping()
    took = time.monotonic() - started
    info: Mapping[str, Any] = client.info()
    kind, version = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", info["redis_version"])
    yield findings.ok(CHECK, f"{kind} {version} responds in {took * 1e3:.0f} ms")
    yield from of_info(info)
    key = f"tunesmith.doctor.{secrets.token_hex(8)}"
    client.set(key, "1", ex=60)
    client.delete(key)


def of_info(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Check the server's ``INFO`` for settings that lose messages."""
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        message = f"maxmemory-policy is {policy}: when memory is short, messages are lost"
        yield findings.fail(CHECK, "broker_evicts", message, "Set maxmemory-policy noeviction.")
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if limit and used > _MEMORY_SHARE * limit:
        message = f"it uses {used / limit:.0%} of its memory limit; at the limit it rejects writes"
        yield findings.warn(CHECK, "broker_memory_low", message, "Raise maxmemory.")
    if info.get("role", "master") != "master":
        yield findings.fail(
            CHECK, "broker_is_replica", "it is a replica, which accepts no writes", "Use the address of its primary."
        )
    yield _persistence(info)


def _persistence(info: Mapping[str, Any]) -> Finding:
    if info.get("aof_enabled") and info.get("aof_last_write_status", "ok") != "ok":
        return findings.fail(
            CHECK, "broker_cannot_save", "its last write to disk failed", "Check its disk and its log."
        )
    if info.get("aof_enabled"):
        return findings.ok(CHECK, "messages are persisted (appendonly)")
    message = "messages are not persisted (appendonly no): a restart loses them, and their jobs start later"
    return findings.warn(CHECK, "broker_not_durable", message, "Set appendonly yes. Workers send lost messages again.")
