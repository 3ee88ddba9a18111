"""Errors as RFC 9457 problem documents."""

from __future__ import annotations

import http
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from domain import errors
from domain.errors import TunesmithError
from process import logs
from storage import integrity

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

_BY_STATUS: dict[int, type[TunesmithError]] = {
    kind.status: kind
    for kind in (
        errors.Unauthorized,
        errors.RouteNotFound,
        errors.MethodNotAllowed,
        errors.BodyTooLarge,
        errors.RangeNotSatisfiable,
    )
}
"""Errors of responses that the framework creates with a status only."""

DATABASE_ERRORS = (DatabaseError, PoolTimeout)
"""Errors of SQLAlchemy for an unavailable server, a lock timeout or a corrupt table, and for programming errors."""

_CLIENT_CLOSED_REQUEST = 499
"""nginx's status for clients that disconnect, to identify them in metrics."""


class Problem(BaseModel):
    """RFC 9457 problem document. ``code`` is stable, for programs; ``detail`` is for people."""

    model_config = ConfigDict(json_schema_extra={"required": ["type", "title", "status", "detail", "code"]})

    type: str = Field(description="URI of the problem type: urn:tunesmith:problem:CODE.")
    title: str = Field(description="Name of the problem type.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What went wrong.")
    code: str = Field(description="Stable code for programs.")
    hint: str | None = Field(default=None, description="What to do.")
    details: dict[str, Any] = Field(default_factory=dict, description="Data for programs, such as near matches.")
    request_id: str | None = Field(default=None, description="The response's X-Request-ID, also in the server's log.")


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a route's problem documents."""
    return {
        status: {"description": http.HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": _REFERENCE}}}
        for status in statuses
    }


_REFERENCE = {"$ref": "#/components/schemas/Problem"}


def install(app: FastAPI) -> None:
    app.add_exception_handler(TunesmithError, tunesmith_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(ClientDisconnect, _hung_up)
    for kind in DATABASE_ERRORS:
        app.add_exception_handler(kind, _database_trouble)
    app.add_exception_handler(Exception, _unexpected)


def tunesmith_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TunesmithError)  # noqa: S101 - registered for this class
    if error.status >= 500:
        logger.error("%s %s: %s", request.method, request.url.path, error.message, exc_info=error)
    seconds = error.details.get("retry_after_seconds", error.retry_after)
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _response(
        error.status, code=error.code, detail=error.message, hint=error.hint, details=error.details, headers=headers
    )


def _validation_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
    found = [{"field": _place(entry["loc"]), "message": entry["msg"]} for entry in error.errors()]
    detail = "; ".join(map(_in_words, error.errors()[:5]))
    return _response(
        400,
        code=errors.InvalidRequest.code,
        detail=detail or "the request is invalid",
        hint="See /docs for the parameters of this path.",
        details={"errors": jsonable_encoder(found)},
    )


def _in_words(entry: Mapping[str, Any]) -> str:
    """Reword validation errors without pydantic's terms."""
    place, message, context = _place(entry["loc"]), str(entry["msg"]), entry.get("ctx") or {}
    match entry["type"]:
        case "value_error":
            # A validator of ours, for a field or the whole model.
            reason = message.removeprefix("Value error, ")
            return reason if place == "body" else f"{place}: {reason}"
        case "json_invalid":
            return f"the body is not valid JSON: {context.get('error', message)} at character {place}"
        case "extra_forbidden":
            return f"unknown field {place!r}"
        case "missing":
            return "the body is missing" if place == "body" else f"{place} is missing"
        case "string_too_short":
            least = context.get("min_length")
            return f"{place} is empty" if least == 1 else f"{place} is shorter than {least} characters"
        case "string_too_long":
            return f"{place} is longer than {context.get('max_length')} characters"
        case "string_pattern_mismatch":
            return f"{place} contains invalid characters; it must match {context.get('pattern')}"
    return f"{place}: {message.replace('Input should', 'this should', 1)}"


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location[1:]) or str(location[0])


def http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    kind = _of_status(error.status_code)
    standard = error.detail == http.HTTPStatus(error.status_code).phrase
    detail = f"{error.detail}: {request.method} {request.url.path[:200]}" if standard else str(error.detail)
    headers = {"Allow": ", ".join(_methods(request))} if error.status_code == 405 else error.headers
    return _response(error.status_code, code=kind.code, detail=detail, hint=kind.default_hint, headers=headers)


def _of_status(status: int) -> type[TunesmithError]:
    return _BY_STATUS.get(status, TunesmithError if status >= 500 else errors.InvalidRequest)


def _methods(request: Request) -> Iterator[str]:
    """Return the methods of the path; the router itself returns those of its first route only."""
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
        # HEAD requests are converted to GET before routing.
        scope = {**request.scope, "method": "GET" if method == "HEAD" else method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            yield method


def of_database(error: Exception) -> errors.DatabaseUnavailable | errors.DatabaseDamaged | None:
    """Convert a database error without the driver's message, which contains host names; None for programming errors."""
    if integrity.is_damaged(error):
        return errors.DatabaseDamaged("the database is corrupt, or was made by another release")
    away = isinstance(error, OperationalError | PoolTimeout)
    return errors.DatabaseUnavailable("the database does not respond") if away else None


def _database_trouble(request: Request, error: Exception) -> JSONResponse:
    converted = of_database(error)
    if converted is None:
        raise error
    logger.error("%s %s: %s", request.method, request.url.path, converted.message, exc_info=error)
    return tunesmith_error(request, converted)


def _hung_up(_request: Request, _error: Exception) -> Response:
    """Respond to a client that disconnected before its request was complete; this is no error of the server."""
    return Response(status_code=_CLIENT_CLOSED_REQUEST)


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _response(
        500,
        code=TunesmithError.code,
        detail="internal server error",
        hint="See the server's log for this request_id.",
        # Handled outside of the middleware that adds the header to other responses.
        headers={"X-Request-ID": logs.request_id()} if logs.request_id() else None,
    )


def _response(
    status: int,
    *,
    code: str,
    detail: str,
    hint: str | None,
    details: dict[str, Any] | None = None,
    headers: Any = None,
) -> JSONResponse:
    problem = Problem(
        type=f"urn:tunesmith:problem:{code}",
        title=code.replace("_", " ").capitalize(),
        status=status,
        detail=detail,
        code=code,
        hint=hint,
        details=details or {},
        request_id=logs.request_id(),
    )
    return JSONResponse(
        problem.model_dump(),
        status_code=status,
        media_type=MEDIA_TYPE,
        # Set here, too, as unexpected errors are handled outside of ConditionalResponses.
        headers={"Cache-Control": "no-store", **(headers or {})},
    )
