"""Domain dataclasses to JSON columns and back."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


def dump(value: Any) -> Any:
    """What ``json`` can write; keys are the fields' names, enums their values."""
    return _adapter(type(value)).dump_python(value, mode="json")


def load(kind: type[T], data: Any) -> T:
    """The inverse of ``dump``. Fields that ``kind`` does not know are left out: an older release reads newer rows."""
    loaded: T = _adapter(kind).validate_python(data)
    return loaded


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
