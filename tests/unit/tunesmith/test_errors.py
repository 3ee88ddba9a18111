"""One tree, in which every code of the service has its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import domain.errors
from api import problems as served
from tunesmith import errors, problems
from tunesmith.cli.main import exit_status


def kinds(of: type[domain.errors.TunesmithError]) -> Iterator[type[domain.errors.TunesmithError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


CODES = {kind.code: served.status_of(kind) for kind in kinds(domain.errors.TunesmithError)}
CODES |= {code: status for status, (code, _) in served.HTTP_CODES.items()}


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_of_the_service_has_a_class_of_its_own(code: str) -> None:
    """A new error of the service belongs into tunesmith/errors as well."""
    error = problems.from_answer(CODES[code], {"code": code, "detail": "what", "hint": "do", "details": {"a": 1}})
    assert type(error).code == code
    assert (error.message, error.hint, error.details, error.status) == ("what", "do", {"a": 1}, CODES[code])


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_code_exits_as_its_status_says(code: str) -> None:
    status = CODES[code]
    if code in ("configuration_error", "blob_store_foreign", "database_damaged") or status in (401, 403):
        expected = 3
    elif issubclass(type(problems.from_answer(status, {"code": code})), errors.JobNotSucceeded):
        expected = 1
    else:
        expected = 4 if status >= 500 else 5
    assert exit_status(problems.from_answer(status, {"code": code})) == expected


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidRequest),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (429, errors.TooMuch),
        (500, errors.ServerError),
    ],
)
def test_a_code_that_is_not_known_yet_has_the_class_of_its_status(
    status: int, kind: type[errors.TunesmithError]
) -> None:
    error = problems.from_answer(status, {"code": "brand_new", "detail": "what"}, retry_after=3)
    assert (type(error), error.code, error.retry_after) == (kind, "brand_new", 3)


def test_what_is_no_problem_document() -> None:
    error = problems.from_answer(404, None)
    assert (type(error), error.code) == (errors.ServerError, "server_error")


def test_a_failure_is_a_job_failed_whatever_its_code() -> None:
    assert type(problems.from_failure("j-1", {"code": "accuracy_not_met", "message": "m"})) is errors.AccuracyNotMet
    error = problems.from_failure("j-1", {"code": "unsupported_operators", "message": "m", "hint": "h"})
    assert (type(error), error.code, error.hint) == (errors.JobFailed, "unsupported_operators", "h")


def test_the_drawing_names_every_class() -> None:
    drawn = errors.__doc__ or ""
    assert [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)
            and kind.__name__ not in drawn] == []  # fmt: skip
