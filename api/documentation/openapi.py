"""The OpenAPI document: FastAPI's, completed with what holds for every route and is therefore written at none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api import problems
from api.documentation import openapi_texts as texts
from api.transport.credentials import COOKIE

_JSON = "application/json"
_TAGGED = {"type": "string", "description": "Changes when the answer does; send it as If-None-Match."}
_NOT_MODIFIED = {
    "description": "If-None-Match names the answer as it is now.",
    "headers": {"ETag": {"schema": _TAGGED}},
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "ETag of an earlier answer; 304 without a body says that it still holds.",
}
_UNTOLD = "Successful Response"
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}


def install(app: FastAPI) -> None:
    app.openapi = _once(app)  # type: ignore[method-assign]


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and operation, in the document's order."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def _once(app: FastAPI) -> Callable[[], dict[str, Any]]:
    def build() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(
                get_openapi(
                    title=app.title,
                    version=app.version,
                    summary=app.summary,
                    description=texts.DESCRIPTION,
                    tags=texts.TAGS,
                    license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
                    routes=app.routes,
                )
            )
        return app.openapi_schema

    return build


def _completed(schema: dict[str, Any]) -> dict[str, Any]:
    components = schema["components"]
    components["schemas"]["Problem"] = problems.Problem.model_json_schema()
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    for name, examples in texts.EXAMPLES.items():
        components["schemas"][name]["examples"] = examples
    components["securitySchemes"]["Session"] = {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "A browser's, from a login link; unsafe requests must come from the service's own pages.",
    }
    for method, _, operation in operations(schema):
        _complete(method, operation)
    return schema


def _complete(method: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    _drop_validation(responses)
    for parameter in operation.get("parameters", []):
        if "description" not in parameter:
            own = parameter["schema"].pop("description", None)
            parameter["description"] = own or texts.PARAMETERS[parameter["name"]]
        parameter["schema"] = _without_null(parameter["schema"])
    stream = responses.get("200", {}).get("content", {}).get("text/event-stream")
    if stream is not None:
        # FastAPI calls the whole stream one string; itemSchema says what its events are.
        stream.pop("schema", None)
    if "security" in operation:
        operation["security"].append({"Session": []})
    if "requestBody" in operation:
        responses |= _of(408, 413)
    if method == "get" and _JSON in responses["200"].get("content", {}):
        responses["200"]["headers"] = {"ETag": {"schema": _TAGGED}, **responses["200"].get("headers", {})}
        responses["304"] = _NOT_MODIFIED
        operation.setdefault("parameters", []).append(_IF_NONE_MATCH)
    for status, response in responses.items():
        if status == "429":
            response["headers"] = _RETRY_AFTER
        if response["description"] == _UNTOLD:
            response["description"] = texts.SUCCESSES[status]
    operation["responses"] = dict(sorted(responses.items()))


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What may be None in Python is left out of a request: there is no way to write null into an address."""
    others = [each for each in schema.get("anyOf", []) if each != {"type": "null"}]
    if len(others) != 1:
        return schema
    return {**{name: value for name, value in schema.items() if name != "anyOf"}, **others[0]}


def _of(*statuses: int) -> dict[str, Any]:
    return {str(status): response for status, response in problems.responses(*statuses).items()}


def _drop_validation(responses: dict[str, Any]) -> None:
    found = responses.get("422", {}).get("content", {}).get(_JSON, {}).get("schema", {})
    if found.get("$ref", "").endswith("/HTTPValidationError"):
        del responses["422"]
