"""HTTP requests to one server: authentication, problem documents as errors, retries of idempotent requests."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import httpx

from tunesmith import errors
from tunesmith.connection import Connection

Json = dict[str, Any]
RETRIES = 3
"""Retries of idempotent requests."""
LONGEST_SECONDS = 60.0
"""Longest Retry-After that is respected; with a longer one, the error is raised at once."""
_FIRST_SECONDS = 0.1
_GROWTH = 3.0
_JITTER = 0.25
_UNAVAILABLE = frozenset({502, 503, 504})
_TOO_MANY = 429
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANSWER_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_UPLOAD_TIMEOUT = httpx.Timeout(300.0, connect=_CONNECT_SECONDS)
_PATIENT_TIMEOUT = httpx.Timeout(1800.0, connect=_CONNECT_SECONDS)
_STREAM_TIMEOUT = httpx.Timeout(45.0, connect=_CONNECT_SECONDS)
"""The server sends a comment every 15 seconds on an idle stream."""

Content = Callable[[], Iterable[bytes]]
"""Creates the body of the request anew for each attempt."""


class Transport:
    def __init__(self, connection: Connection, *, retries: int = RETRIES, seconds: float = ANSWER_SECONDS) -> None:
        """Raises ConfigurationError for an invalid URL or token."""
        self.url = connection.url
        self.retries = retries
        headers = {"Authorization": f"Bearer {connection.token}"} if connection.token else {}
        self._timeout = httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))
        try:
            # Requests to a server on this machine bypass the environment's proxy.
            loopback = httpx.URL(connection.url).host in _LOOPBACK
            self._http = httpx.Client(
                base_url=connection.url, headers=headers, timeout=self._timeout, trust_env=not loopback
            )
        except httpx.InvalidURL as error:
            raise errors.ConfigurationError(
                f"invalid server URL: {connection.url!r} ({error})", hint="Use a URL such as http://host:8000."
            ) from error
        except UnicodeEncodeError as error:
            raise errors.ConfigurationError(
                "the token contains a character that no token has", hint="Copy it again from where it was created."
            ) from error

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> httpx.Response:
        return self._attempts(lambda: self._send("GET", path, params=_given(params)), idempotent=True)

    def pages(self, path: str, name: str, params: Mapping[str, Any]) -> Iterator[Json]:
        """Iterate over the items under ``name`` of all pages, which are fetched lazily."""
        token = None
        while True:
            page = self.get(path, {**params, "page_token": token}).json()
            yield from page[name]
            token = page["next_page_token"]
            if token is None:
                return

    def post(
        self, path: str, json: Any = None, *, idempotency_key: str | None = None, patient: bool = False
    ) -> httpx.Response:
        """Send a POST request; it is retried after a lost response only with a key.

        ``patient`` sets a timeout of 30 minutes. Raises InvalidInput for nan and infinity, which JSON lacks.
        """
        _check_finite("", json)
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        timeout = _PATIENT_TIMEOUT if patient else self._timeout
        send = lambda: self._send("POST", path, json=json, headers=headers, timeout=timeout)  # noqa: E731
        return self._attempts(send, idempotent=idempotency_key is not None)

    def upload(
        self, method: str, path: str, content: Content, *, size: int, params: Mapping[str, Any]
    ) -> httpx.Response:
        """Send ``content``; retried after a lost response, so the request must be idempotent."""
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}

        def send() -> httpx.Response:
            return self._send(
                method, path, params=_given(params), content=content(), headers=headers, timeout=_UPLOAD_TIMEOUT
            )

        return self._attempts(send, idempotent=True)

    def delete(self, path: str) -> httpx.Response:
        return self._attempts(lambda: self._send("DELETE", path), idempotent=True)

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str] | None = None) -> Iterator[httpx.Response]:
        """Open a response as a stream, without retries. Raises NetworkError if it breaks off."""
        with (
            _network_errors(self.url),
            self._http.stream("GET", path, headers=dict(headers or {}), timeout=_STREAM_TIMEOUT) as response,
        ):
            if not _is_answer(response):
                response.read()
                raise _error(response)
            yield response

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._http.request(method, path, **options)

    def _attempts(self, send: Callable[[], httpx.Response], *, idempotent: bool) -> httpx.Response:
        for attempt in range(self.retries):
            try:
                response = send()
            except (httpx.ConnectError, httpx.ConnectTimeout):
                seconds = pause(attempt)  # nothing was sent, so a retry is always safe
            except httpx.TransportError as error:
                if not idempotent:
                    raise _network_error(self.url, error) from error
                seconds = pause(attempt)
            else:
                asked = asked_to_wait(response.headers)
                if not (idempotent and is_transient(response.status_code, asked)):
                    return _checked(response)
                seconds = pause(attempt, asked=asked)
            time.sleep(seconds)
        with _network_errors(self.url):
            return _checked(send())


@contextmanager
def _network_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise _network_error(url, error) from error


def _network_error(url: str, error: Exception) -> errors.NetworkError:
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        return errors.ServerUnreachable(f"no server answers at {url}")
    reason = str(error) or type(error).__name__
    return errors.NetworkError(f"the connection to {url} broke: {reason}", hint="Try again.")


def _checked(response: httpx.Response) -> httpx.Response:
    if not _is_answer(response):
        raise _error(response)
    return response


def _is_answer(response: httpx.Response) -> bool:
    """Return whether a server of Tunesmith has done what was asked; it neither redirects clients nor sends pages."""
    return response.is_success and not response.headers.get("Content-Type", "").startswith("text/html")


def _error(response: httpx.Response) -> errors.TunesmithError:
    if response.has_redirect_location:
        return errors.ServerError(
            f"the server redirects to {response.headers['Location']}",
            hint="Set TUNESMITH_URL to the URL of the server itself.",
            status=response.status_code,
        )
    if response.is_success:
        hint = "Is this a Tunesmith server?"
        return errors.ServerError("the server answered with a web page", hint=hint, status=response.status_code)
    try:
        problem = response.json()
    except ValueError:
        problem = None
    asked = asked_to_wait(response.headers)
    known = problem if isinstance(problem, dict) else None
    return errors.from_answer(response.status_code, known, retry_after=asked)


def _check_finite(name: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise errors.InvalidInput(f"{name} is {value}", hint="Use a finite number.")
    if isinstance(value, Mapping):
        for key, each in value.items():
            _check_finite(f"{name}.{key}" if name else str(key), each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _check_finite(name, each)


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def segment(text: str) -> str:
    """Quote ``text`` as one segment of a path. Raises InvalidInput if it is empty."""
    if not text:
        raise errors.InvalidInput("the id is empty", hint="Give an id as the listings show it.")
    return quote(text, safe="")


def pause(attempt: int, *, asked: float | None = None) -> float:
    """Return the seconds before the next attempt: exponential backoff with jitter, at least ``asked``."""
    own = _FIRST_SECONDS * _GROWTH**attempt * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret
    return max(own, asked or 0.0)


def is_transient(status: int, asked: float | None) -> bool:
    """Return whether a retry may succeed soon; ``asked`` is the Retry-After of the response in seconds."""
    if asked is not None and asked > LONGEST_SECONDS:
        return False
    return status in _UNAVAILABLE or (status == _TOO_MANY and asked is not None)


def asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """Return Retry-After, a number or a date (RFC 9110, section 10.2.3), in seconds; None without one."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    # The time zone "-0000" yields a naive datetime.
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
