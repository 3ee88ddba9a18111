"""The OpenAPI document: FastAPI's, with additions that apply to all routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api import problems
from api.middleware.credentials import COOKIE

_JSON = "application/json"
_TAGGED = {"type": "string", "description": "Changes with the content; send it as If-None-Match."}
_NOT_MODIFIED = {
    "description": "The content still matches If-None-Match.",
    "headers": {"ETag": {"schema": _TAGGED}},
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "ETag of an earlier response; the answer is 304 without a body while the content is the same.",
}
_DEFAULT_DESCRIPTION = "Successful Response"
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}


def install(app: FastAPI) -> None:
    app.openapi = _once(app)  # type: ignore[method-assign]


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Iterate over method, path and operation, in the order of the document."""
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
                    description=DESCRIPTION,
                    tags=TAGS,
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
    for name, examples in EXAMPLES.items():
        components["schemas"][name]["examples"] = examples
    components["securitySchemes"]["Session"] = {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "Session cookie, set by a login link; unsafe requests must come from the service's own pages.",
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
            parameter["description"] = own or PARAMETERS[parameter["name"]]
        parameter["schema"] = _without_null(parameter["schema"])
    stream = responses.get("200", {}).get("content", {}).get("text/event-stream")
    if stream is not None:
        # FastAPI describes the stream as one string; itemSchema describes its events.
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
        if response["description"] == _DEFAULT_DESCRIPTION:
            response["description"] = SUCCESSES[status]
    operation["responses"] = dict(sorted(responses.items()))


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from the types of parameters: a URL cannot contain it."""
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


DESCRIPTION = """\
Upload a model, create a tuning job, watch it, download the bundle.

Every request except `/healthz` and `/readyz` needs `Authorization: Bearer TOKEN`. Times are UTC in ISO 8601,
durations and latencies seconds, sizes bytes.

**Errors** are problem documents (RFC 9457) with a stable `code`, a `detail` for people and usually a `hint`;
`docs/reference/errors.md` lists the codes. Objects of other owners are reported as not found (404).

**Lists** are paginated: pass `next_page_token` of one page as `page_token` of the next, with the same filters.
Objects created meanwhile do not shift entries between pages.

**Retries** are safe: `GET`, `PUT` and `DELETE` by nature, `POST` with an `Idempotency-Key`. The same key with the
same request returns the same response for seven days; with a different request it fails (`idempotency_mismatch`). A
failed request leaves its key unused. `POST /v1/models:operator` and `POST /v1/jobs/{job_id}:cancel` need no key:
they are idempotent. Requests for tokens and login links accept no key, because their secrets are shown only once.

**Conditional requests**: JSON responses to `GET` have an `ETag`; send it as `If-None-Match` to get 304 while nothing
has changed. Bundles never change: their ETag is their sha256, and `Range` and `If-Range` work. `HEAD` works
wherever `GET` does.

**Limits**: JSON bodies may have up to 1 MiB, models up to `TUNESMITH_MAX_MODEL_BYTES` (default 2 GiB),
record files up to 1 GiB. Too many requests get 429 with `Retry-After`."""

TAGS = [
    {"name": "models", "description": "Networks, uploaded as ONNX or as IRModules, and single operators."},
    {"name": "data sets", "description": "Rows of your own inputs, which judge and calibrate builds."},
    {"name": "jobs", "description": "Tuning jobs: create, follow, cancel, retry."},
    {"name": "webhooks", "description": "Messages sent to your server when a job ends."},
    {"name": "artifacts", "description": "Published bundles, and the best one for a model."},
    {"name": "records", "description": "Results of trials: query, export, import."},
    {"name": "fleet", "description": "Workers, devices, targets and engines."},
    {"name": "access", "description": "Tokens and browser logins."},
    {"name": "health", "description": "Liveness, readiness and metrics."},
]

PARAMETERS = {
    "artifact": "The artifact's id, or the sha256 digest of its bytes.",
    "data_set": "The data set's id, or the name of one of yours.",
    "job_id": "The job's id.",
    "model": "The model's id, or the sha256 digest of its bytes.",
    "owner": "Admins: only objects of this owner; default all.",
    "state": "Only jobs in this state.",
    "token_id": "The token's id.",
    "name": "The group's name.",
    "tuner": "The tuner that made the records.",
    "device": "Device key, as in /v1/devices.",
    "toolchain": "Engine, TVM and LLVM version, as in /v1/engines.",
    "precision": "Numeric precision of the build.",
    "job": "Id of the job that measured the records.",
    "format": "json: one page; native: all records, in the format of TVM's own tools.",
}
"""Descriptions of parameters that mean the same in all routes."""

SUCCESSES = {
    "200": "Success.",
    "201": "Created.",
    "202": "Accepted; the work continues in the background.",
}

EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "JobDraft": [
        {
            "model": "m-0123456789ab",
            "target": "native",
            "tuner": "auto",
            "budget": {"trials": 2000, "seconds": 900},
            "input_shapes": {"x": [1, 3, 224, 224]},
            "labels": {"team": "vision"},
        }
    ],
    "OperatorDraft": [
        {
            "operator": "conv2d",
            "shapes": {"x": [1, 64, 56, 56], "w": [64, 64, 3, 3]},
            "attributes": {"padding": 1},
        }
    ],
    "TokenDraft": [
        {
            "name": "CI",
            "owner": "vision",
            "scopes": ["read", "submit"],
            "expires_in_seconds": 7_776_000,
            "quota": {"running_jobs": 2, "queued_jobs": 20},
        }
    ],
    "Problem": [
        {
            "type": "urn:tunesmith:problem:unknown_tuner",
            "title": "Unknown tuner",
            "status": 400,
            "detail": "unknown tuner 'autotvn'",
            "code": "unknown_tuner",
            "hint": "Did you mean 'autotvm'?",
            "details": {"known": ["auto", "autotvm", "ansor", "metaschedule"], "near_matches": ["autotvm"]},
        }
    ],
}
"""Examples by name of the schema."""
