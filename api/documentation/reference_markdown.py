"""``./run docs``: the REST reference ``build/rest.md``, from the OpenAPI document."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.app import create_app
from api.documentation import reference
from api.documentation.reference import DocumentedField, DocumentedShape, Operation, Reference
from api.jobs.publishing import CeleryPublisher
from api.settings import ApiSettings
from storage.blobs.local import LocalBlobStore
from storage.database import Database


def main() -> int:
    sys.stdout.write(markdown(reference.read(schema_alone())))
    return 0


def markdown(found: Reference) -> str:
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Reference) -> Iterator[str]:
    yield "# REST reference"
    yield ""
    yield "Generated from the OpenAPI document (`/openapi.json` of a running service, `/docs` in a browser) by"
    yield "`./run docs`."
    yield ""
    yield found.text
    for section in found.sections:
        yield from ("", f"## {section.name.capitalize()}", "", section.text)
        for operation in section.operations:
            yield from _operation(operation)
    yield from ("", "## Schemas", "", "Objects and enumerations of requests and responses.")
    for shape in found.shapes:
        yield from _shape(shape)


def _operation(operation: Operation) -> Iterator[str]:
    yield from ("", f"### `{operation.method} {operation.path}`", "", operation.text)
    yield from ("", f"Scope: {_scope(operation)}. Operation: `{operation.id}`.")
    if operation.parameters:
        yield from ("", "| parameter | in | type | meaning |", "|---|---|---|---|")
        for field in operation.parameters:
            yield f"| {_name(field)} | {field.place} | {_cell(field.kind)} | {_meaning(field)} |"
    if operation.body:
        yield from ("", f"Body: {operation.body}")
    yield from ("", "| status | body | meaning |", "|---|---|---|")
    for answer in operation.answers:
        yield f"| {answer.status} | {_cell(answer.kind) or 'nothing'} | {_cell(answer.text)} |"
    if operation.failures:
        yield f"| {', '.join(operation.failures)} | Problem | See [errors.md](../docs/reference/errors.md). |"
    if operation.example:
        yield from ("", "```", operation.example, "```")


def _shape(shape: DocumentedShape) -> Iterator[str]:
    yield from ("", f"### {shape.name}")
    if shape.text:
        yield from ("", shape.text)
    if shape.values:
        yield from ("", "One of " + ", ".join(f"`{value}`" for value in shape.values) + ".")
    if shape.fields:
        yield from ("", "| field | type | meaning |", "|---|---|---|")
        for field in shape.fields:
            yield f"| {_name(field)} | {_cell(field.kind)} | {_meaning(field)} |"


def _scope(operation: Operation) -> str:
    if operation.is_open:
        return "none, and no token"
    return f"`{operation.scope}`" if operation.scope else "any token"


def _name(field: DocumentedField) -> str:
    return f"`{field.name}`" + (" (required)" if field.required and field.place else "")


def _meaning(field: DocumentedField) -> str:
    default = f"Default: `{field.default}`." if field.default is not None else ""
    return _cell(" ".join(part for part in (field.text, default) if part))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def schema_alone() -> dict[str, Any]:
    """Create an application only for its schema."""

    def unused(*_: object) -> Any:
        raise NotImplementedError

    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/none.sqlite3")
        app = create_app(
            ApiSettings(open=True),
            database=database,
            blobs=LocalBlobStore(Path(folder)),
            publisher=CeleryPublisher("memory://"),
            inspect=unused,
            inspect_rows=unused,
            read_records=unused,
            make_operator=unused,
            planner=unused,  # type: ignore[arg-type]
            logs=Path(folder),
        )
        schema = app.openapi()
        database.close()
    return schema


if __name__ == "__main__":
    sys.exit(main())
