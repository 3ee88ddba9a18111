"""Domain dataclasses to JSON columns and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


def dump(value: Any) -> Any:
    """What ``json`` can write; keys are the fields' names, enums their values."""
    return _adapter(type(value)).dump_python(value, mode="json")


def load(kind: type[T], data: Any) -> T:
    """The inverse of ``dump``. Fields that ``kind`` does not know are left out: an older release reads newer rows."""
    loaded: T = _adapter(kind).validate_python(data)
    return loaded


def try_load(kind: type[T], data: Any) -> T | None:
    """``load``, or None for data that another release wrote in a form that ``kind`` cannot read."""
    try:
        return load(kind, data)
    except ValidationError:
        return None


def from_row(kind: type[T], row: Any, **given: Any) -> T:
    """The dataclass whose fields are the row's columns of the same names, but for those that are ``given``."""
    names = [each.name for each in fields(cast("Any", kind)) if each.name not in given]
    return load(kind, {name: getattr(row, name) for name in names} | given)


def to_row(value: Any, *, without: Iterable[str] = ()) -> dict[str, Any]:
    """The dataclass's fields as values of columns, JSON columns too."""
    found: dict[str, Any] = _adapter(type(value)).dump_python(value, exclude=set(without))
    return found


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


def to_json(value: Any) -> str:
    """Raises ValueError on NaN and infinity, which SQLite would take and PostgreSQL refuses."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


_adapters: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Made once a type: building one takes a thousand times as long as using it."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]
