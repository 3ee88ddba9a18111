"""Removing messages that are void and that nobody has read.

A worker drops them as it reads. But a queue that all its readers leave alone for hours, as they are at work, or for
ever, as they are gone, would grow by every message that the reaper sends for each of its jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from kombu.transport import redis

from domain import dispatch

_AT_ONCE = 500


def remove(app: Celery, now: datetime) -> int:
    """Of all queues; returns how many messages those were. Raises what the broker's client does."""
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        if not isinstance(channel, redis.Channel):
            return 0
        return sum(_remove(channel.client, key, now) for key in _lists(channel))


def _lists(channel: redis.Channel) -> list[bytes]:
    """Of our messages: one of each queue and priority that has some."""
    found = channel.client.scan_iter(match=f"{dispatch.QUEUE}*", count=_AT_ONCE, _type="list")
    names = {key: key.decode().partition(channel.sep)[0] for key in found}
    return [key for key, name in names.items() if name == dispatch.QUEUE or name.startswith(f"{dispatch.QUEUE}.")]


def _remove(client: Any, key: bytes, now: datetime) -> int:
    """The jobs' void ones of a list, and all that lie behind them.

    They are older: whichever job they are of, the reaper has sent another message for it since, or will soon. Calls for
    help are void within seconds, when what lies behind them may not be.
    """
    length = client.llen(key)
    valid = next((number for number, text in enumerate(_newest_first(client, key)) if _is_void(text, now)), length)
    if valid >= length:
        return 0
    # Counted from the oldest, as new ones come before the newest; if a worker takes some meanwhile, as many that are
    # almost void go with them, and the reaper sends those again.
    client.ltrim(key, 0, valid - length - 1)
    return int(length - valid)


def _newest_first(client: Any, key: bytes) -> Iterator[bytes]:
    start = 0
    while some := client.lrange(key, start, start + _AT_ONCE - 1):
        yield from some
        start += len(some)


def _is_void(text: bytes, now: datetime) -> bool:
    try:
        headers = json.loads(text)["headers"]
        expires = datetime.fromisoformat(headers["expires"])
    except (ValueError, KeyError, TypeError):
        return False
    if headers.get("task") == dispatch.HELP_JOB:
        return False
    return (expires if expires.tzinfo else expires.replace(tzinfo=UTC)) <= now
