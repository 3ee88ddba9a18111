"""Specification of an operator as text: ``conv2d x=1,64,56,56 w=64,64,3,3 strides=1 padding=1``."""

from __future__ import annotations

from typing import Any

from tunesmith import errors

_ATTRIBUTES = ("strides", "padding", "dilation", "groups")
_EXAMPLE = "Example: 'conv2d x=1,64,56,56 w=64,64,3,3 strides=1 padding=1'."


def parse(text: str) -> dict[str, Any]:
    """Return the body of ``POST /v1/models:operator``; the server validates the values. Raises InvalidInput."""
    operator, *words = text.split() or [""]
    if not operator or "=" in operator:
        raise _wrong(f"no operator in {text[:80]!r}")
    shapes: dict[str, list[int]] = {}
    attributes: dict[str, int | list[int]] = {}
    dtype: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise _wrong(f"{word[:80]!r} is not of the form NAME=VALUE")
        if name in {*shapes, *attributes, *dtype}:
            raise _wrong(f"{name!r} is given twice")
        if name == "dtype":
            dtype[name] = value
        elif name in _ATTRIBUTES:
            numbers = _numbers(word, value)
            attributes[name] = numbers[0] if len(numbers) == 1 else numbers
        else:
            shapes[name] = _numbers(word, value)
    return {"operator": operator, "shapes": shapes, "attributes": attributes, **dtype}


def _numbers(word: str, text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise _wrong(f"{word[:80]!r} must be a list of integers") from None


def _wrong(message: str) -> errors.InvalidInput:
    return errors.InvalidInput(message, code="invalid_operator", hint=_EXAMPLE)
