"""Display names of devices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from sqlalchemy.orm import Session

from domain.targets import Device
from storage import workers

_THREADS = re.compile(r"t(\d+)")
_PROCESSOR = re.compile(r"(?:authenticamd|genuineintel|hygongenuine|centaurhauls)-[0-9]+-[0-9]+-(.+)")
"""Part of a device key for an x86 CPU: vendor, family, model and name."""


class DeviceNames:
    """Names of the devices that workers reported; for other devices, a name derived from the key."""

    def __init__(self, known: Iterable[Device]) -> None:
        self._names = {device.key: device.name for device in known}
        counts = Counter(_with_threads(name, key) for key, name in self._names.items())
        self._shared = {text for text, count in counts.items() if count > 1}

    def __call__(self, key: str) -> str:
        """Return a name such as ``AMD EPYC 7R13, 2 threads``, followed by the key if another device has this name."""
        text = _with_threads(self._names.get(key) or _from_key(key), key)
        return f"{text} ({key})" if text in self._shared else text


def names(session: Session, *more: Device) -> DeviceNames:
    reported = [device for worker in workers.known(session) for device in (worker.device, *worker.accelerators)]
    return DeviceNames([*more, *reported])


def _with_threads(name: str, key: str) -> str:
    threads = _THREADS.fullmatch(key.rsplit("/", 1)[-1])
    if threads is None:
        return name
    return f"{name}, {threads[1]} thread{'' if threads[1] == '1' else 's'}"


def _from_key(key: str) -> str:
    first, *rest = key.split("/")
    name = rest[0] if len(rest) > 1 else first
    processor = _PROCESSOR.fullmatch(name)
    return processor[1] if processor else name
