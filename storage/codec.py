"""Conversion between domain dataclasses and JSON columns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


def dump(value: Any) -> Any:
    """Convert a dataclass to JSON values: field names as keys, enums as their values."""
    return _adapter(type(value)).dump_python(value, mode="json")


def load(kind: type[T], data: Any) -> T:
    """Convert JSON values to ``kind``, the inverse of ``dump``; unknown fields, of a newer release, are ignored."""
    loaded: T = _adapter(kind).validate_python(data)
    return loaded


def try_load(kind: type[T], data: Any) -> T | None:
    """Like ``load``, but return None for data in another release's form that ``kind`` cannot read."""
    try:
        return load(kind, data)
    except ValidationError:
        return None


def from_row(kind: type[T], row: Any, **given: Any) -> T:
    """Create a dataclass from the columns of a row with the names of its fields, and ``given`` fields."""
    names = [each.name for each in fields(cast("Any", kind)) if each.name not in given]
    return load(kind, {name: getattr(row, name) for name in names} | given)


def to_row(value: Any, *, without: Iterable[str] = ()) -> dict[str, Any]:
    """Convert a dataclass to values of columns, including JSON columns."""
    found: dict[str, Any] = _adapter(type(value)).dump_python(value, exclude=set(without))
    return found


def unknown(kind: type[Any], data: Any) -> list[str]:
    """Return dotted names of fields, of a newer release, that ``load`` would ignore or cannot read."""
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


def to_json(value: Any) -> str:
    """Serialize JSON. Raises ValueError for NaN and infinity, which SQLite would accept and PostgreSQL rejects."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


_adapters: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the adapter of a type, cached because building one takes a thousand times as long as using it."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]
