"""Devices by the names that people know them by, in place of their keys."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from sqlalchemy.orm import Session

from domain.targets import Device
from storage import workers

_THREADS = re.compile(r"t(\d+)")
_PROCESSOR = re.compile(r"(?:authenticamd|genuineintel|hygongenuine|centaurhauls)-[0-9]+-[0-9]+-(.+)")
"""What a key has of an x86 CPU: its maker, family, model, and name."""


class DeviceNames:
    """Of the devices that workers have told of; of another the part of its key that tells most."""

    def __init__(self, known: Iterable[Device]) -> None:
        self._names = {device.key: device.name for device in known}
        told = Counter(_said(name, key) for key, name in self._names.items())
        self._shared = {text for text, count in told.items() if count > 1}

    def __call__(self, key: str) -> str:
        """``AMD EPYC 7R13, 2 threads``; with its key behind where another device is called the same."""
        text = _said(self._names.get(key) or _from_key(key), key)
        return f"{text} ({key})" if text in self._shared else text


def names(session: Session, *more: Device) -> DeviceNames:
    told = [device for worker in workers.known(session) for device in (worker.device, *worker.accelerators)]
    return DeviceNames([*more, *told])


def _said(name: str, key: str) -> str:
    threads = _THREADS.fullmatch(key.rsplit("/", 1)[-1])
    if threads is None:
        return name
    return f"{name}, {threads[1]} thread{'' if threads[1] == '1' else 's'}"


def _from_key(key: str) -> str:
    first, *rest = key.split("/")
    name = rest[0] if len(rest) > 1 else first
    processor = _PROCESSOR.fullmatch(name)
    return processor[1] if processor else name
