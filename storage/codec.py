"""Domain dataclasses to JSON columns and back."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


def dump(value: Any) -> Any:
    """What ``json`` can write; keys are the fields' names, enums their values."""
    return _adapter(type(value)).dump_python(value, mode="json")


def load(kind: type[T], data: Any) -> T:
    """The inverse of ``dump``. Fields that ``kind`` does not know are left out: an older release reads newer rows."""
    loaded: T = _adapter(kind).validate_python(data)
    return loaded


def unknown(kind: type[Any], data: Any) -> list[str]:
    """What ``load`` would leave out, or cannot read: dotted names of fields that a newer release wrote."""
    try:
        known = dump(load(kind, data))
    except ValidationError as error:
        return sorted({".".join(map(str, each["loc"])) for each in error.errors()})
    return sorted(_beyond(data, known))


def _beyond(data: Any, known: Any, prefix: str = "") -> list[str]:
    if not isinstance(data, dict) or not isinstance(known, dict):
        return []
    missing = [prefix + name for name in data if name not in known]
    return missing + [
        each for name in data if name in known for each in _beyond(data[name], known[name], f"{prefix}{name}.")
    ]


def load_optional(kind: type[T], data: Any) -> T | None:
    return None if data is None else load(kind, data)


def to_json(value: Any) -> str:
    """Raises ValueError on NaN and infinity, which SQLite would take and PostgreSQL refuses."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


_adapters: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Made once a type: building one takes a thousand times as long as using it."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]
