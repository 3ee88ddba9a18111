"""The client's kinds of errors: chosen by the HTTP status, with the server's code, and an exit status each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain import errors as served
from tunesmith import errors

CLIENT = Path(errors.__file__).parent


@pytest.mark.parametrize(
    ("status", "kind", "exit_status"),
    [
        (400, errors.InvalidRequest, 5),
        (401, errors.Unauthorized, 3),
        (403, errors.Forbidden, 3),
        (404, errors.NotFound, 5),
        (405, errors.InvalidRequest, 5),
        (408, errors.InvalidRequest, 5),
        (409, errors.Conflict, 5),
        (410, errors.NotFound, 5),
        (413, errors.InvalidRequest, 5),
        (416, errors.InvalidRequest, 5),
        (422, errors.InvalidRequest, 5),
        (429, errors.TooMuch, 5),
        (431, errors.InvalidRequest, 5),
        (500, errors.ServerError, 4),
        (502, errors.ServerError, 4),
        (503, errors.Unavailable, 4),
    ],
)
def test_an_answer_has_the_class_of_its_status_and_the_code_of_the_server(
    status: int, kind: type[errors.TunesmithError], exit_status: int
) -> None:
    problem = {"code": "brand_new", "detail": "what", "hint": "do", "details": {"a": 1}}
    error = errors.from_answer(status, problem, retry_after=3)
    assert (type(error), error.exit_status, error.status, error.retry_after) == (kind, exit_status, status, 3)
    assert (error.code, error.message, error.hint, error.details) == ("brand_new", "what", "do", {"a": 1})


def test_the_service_answers_with_no_other_status() -> None:
    tested = {400, 401, 403, 404, 405, 409, 410, 413, 416, 422, 429, 500, 503}
    assert {kind.status for kind in served.every()} == tested


def test_what_is_no_problem_document() -> None:
    error = errors.from_answer(404, None)
    assert (type(error), error.code) == (errors.ServerError, "server_error")


def test_a_failure_is_a_job_failed_whatever_its_code() -> None:
    error = errors.from_failure("j-1", {"code": "unsupported_operators", "message": "m", "hint": "h"})
    assert (type(error), error.code, error.hint) == (errors.JobFailed, "unsupported_operators", "h")
    assert error.exit_status == 1


def raised() -> Iterator[tuple[str, type[errors.TunesmithError]]]:
    """Every code that the client's own source gives an error, with the error's class."""
    for path in CLIENT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            kind = getattr(errors, name, None)
            if not isinstance(kind, type) or not issubclass(kind, errors.TunesmithError):
                continue
            codes = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            constants = [code.value for code in codes if isinstance(code, ast.Constant)]
            yield from ((str(code), kind) for code in constants or ([] if codes else [kind.code]))


def test_the_clients_own_codes_are_declared_with_the_exit_status_that_they_have() -> None:
    found = list(raised())
    assert len(found) > 15
    for code, kind in found:
        assert errors.OWN_CODES[code][0] == kind.exit_status, code
