"""The OpenAPI document in a form for readers: the page ``/docs`` and ``build/rest.md``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from api.documentation import openapi

_PLACES = {"path": "path", "query": "query", "header": "header"}
_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "maxLength": "at most {} characters",
    "maxItems": "at most {} entries",
    "maxProperties": "at most {} entries",
}
_PREFIX = "#/components/schemas/"


@dataclass(frozen=True, kw_only=True)
class DocumentedField:
    name: str
    place: str
    """Location of the parameter: path, query or header."""
    kind: str
    required: bool
    default: str | None
    """Default value as JSON."""
    text: str


@dataclass(frozen=True, kw_only=True)
class DocumentedResponse:
    status: str
    text: str
    kind: str
    """Media type, or the name of the schema; empty without a body."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    id: str
    method: str
    path: str
    text: str
    scope: str | None
    """Scope that the token needs; None if any token, or none, is enough."""
    is_open: bool
    parameters: list[DocumentedField]
    body: str | None
    """Type of the body; None without one."""
    example: str | None
    """An example command."""
    answers: list[DocumentedResponse]
    failures: list[str]
    """HTTP statuses of problem documents."""


@dataclass(frozen=True, kw_only=True)
class DocumentedSection:
    name: str
    text: str
    operations: list[Operation]


@dataclass(frozen=True, kw_only=True)
class DocumentedShape:
    """A schema that others refer to."""

    name: str
    text: str
    fields: list[DocumentedField]
    values: list[str]
    """Values of an enumeration."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    title: str
    version: str
    text: str
    sections: list[DocumentedSection]
    shapes: list[DocumentedShape]


def read(schema: dict[str, Any]) -> Reference:
    found = [_operation(schema, method, path, each) for method, path, each in openapi.operations(schema)]
    tags = {each["operationId"]: each["tags"][0] for _, _, each in openapi.operations(schema)}
    sections = [
        DocumentedSection(
            name=tag["name"],
            text=tag["description"],
            operations=[operation for operation in found if tags[operation.id] == tag["name"]],
        )
        for tag in schema["tags"]
    ]
    shapes = [_shape(name, each) for name, each in sorted(schema["components"]["schemas"].items())]
    info = schema["info"]
    return Reference(
        title=info["title"], version=info["version"], text=info["description"], sections=sections, shapes=shapes
    )


def _operation(schema: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> Operation:
    ways = operation.get("security", [])
    scopes = [scope for way in ways for scopes in way.values() for scope in scopes]
    answers = {status: each for status, each in operation["responses"].items() if status < "400"}
    return Operation(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        text=operation["description"],
        scope=scopes[0] if scopes else None,
        is_open=not ways,
        parameters=[_parameter(each) for each in operation.get("parameters", [])],
        body=_body(operation.get("requestBody")),
        example=_example(schema, method, path, operation, is_open=not ways),
        answers=[
            DocumentedResponse(status=status, text=each["description"], kind=_content(each))
            for status, each in answers.items()
        ],
        failures=[status for status in operation["responses"] if status >= "400"],
    )


def _parameter(parameter: dict[str, Any]) -> DocumentedField:
    return _field(
        parameter["name"],
        parameter["schema"] | {"description": parameter["description"]},
        place=_PLACES[parameter["in"]],
        required=parameter["required"],
    )


def _shape(name: str, schema: dict[str, Any]) -> DocumentedShape:
    required = schema.get("required", [])
    fields = [
        _field(field, each, place="", required=field in required)
        for field, each in schema.get("properties", {}).items()
    ]
    values = [str(value) for value in schema.get("enum", [])]
    return DocumentedShape(name=name, text=schema.get("description", ""), fields=fields, values=values)


def _field(name: str, schema: dict[str, Any], *, place: str, required: bool) -> DocumentedField:
    default = schema.get("default")
    return DocumentedField(
        name=name,
        place=place,
        kind=", ".join(_kind(schema)),
        required=required,
        default=None if default is None else json.dumps(default, ensure_ascii=False),
        text=schema.get("description", ""),
    )


def _kind(schema: dict[str, Any]) -> Iterator[str]:
    """Return the type of a schema, followed by its bounds."""
    if "$ref" in schema:
        yield schema["$ref"].removeprefix(_PREFIX)
    elif "anyOf" in schema:
        yield from _any_of(schema["anyOf"])
    elif "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        yield " | ".join("null" if value is None else str(value) for value in values)
    elif "prefixItems" in schema:
        yield f"[{'; '.join(', '.join(_kind(each)) for each in schema['prefixItems'])}]"
    elif schema.get("type") == "array":
        yield f"array of {', '.join(_kind(schema['items']))}" if schema.get("items") else "array"
    elif schema.get("type") == "object":
        values = schema.get("additionalProperties")
        yield f"object of {', '.join(_kind(values))}" if isinstance(values, dict) and values else "object"
    else:
        yield schema.get("format") or schema.get("type", "any")
    for name, words in _BOUNDS.items():
        if name in schema:
            yield words.format(schema[name])


def _any_of(schemas: list[dict[str, Any]]) -> Iterator[str]:
    *others, last = schemas
    if last.get("type") == "null" and len(others) == 1:
        kind, *bounds = _kind(others[0])
        yield from (f"{kind} or null", *bounds)
    else:
        yield " or ".join(", ".join(_kind(each)) for each in schemas)


def _body(body: dict[str, Any] | None) -> str | None:
    if body is None:
        return None
    text = body.get("description", "")
    return f"{text} ({_content(body)})" if text else _content(body)


def _content(described: dict[str, Any]) -> str:
    found = []
    for media_type, content in described.get("content", {}).items():
        schema = content.get("schema", {})
        names = ", ".join(_kind(schema)) if media_type == "application/json" else media_type
        found.append(names)
    return ", ".join(found)


def _example(schema: dict[str, Any], method: str, path: str, operation: dict[str, Any], *, is_open: bool) -> str | None:
    """Return an example for operations that are called from a shell."""
    parts = ["curl"]
    if not is_open:
        parts.append('-H "Authorization: Bearer $TUNESMITH_TOKEN"')
    content = operation.get("requestBody", {}).get("content", {})
    named = content.get("application/json", {}).get("schema", {}).get("$ref", "").removeprefix(_PREFIX)
    if not content and method != "get":
        parts.append(f"-X {method.upper()}")
    if named:
        examples = schema["components"]["schemas"][named].get("examples", [{}])
        parts.append(f"--json '{json.dumps(examples[0], ensure_ascii=False)}'")
    elif content:
        parts.append("--upload-file FILE" if method == "put" else "--data-binary @FILE")
    return f'{" ".join(parts)} "$TUNESMITH_URL{path}"'
