"""HTTP to one server: authentication, problem documents as errors, and retries where they are harmless."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from tunesmith import errors, problems, retrying
from tunesmith.connection import Connection

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANSWER_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_UPLOAD_TIMEOUT = httpx.Timeout(300.0, connect=_CONNECT_SECONDS)
_PATIENT_TIMEOUT = httpx.Timeout(1800.0, connect=_CONNECT_SECONDS)
_STREAM_TIMEOUT = httpx.Timeout(45.0, connect=_CONNECT_SECONDS)
"""The server sends a comment every 15 seconds when there is nothing to tell."""

Content = Callable[[], Iterable[bytes]]
"""Makes the request's body anew for every attempt."""


class Transport:
    def __init__(
        self, connection: Connection, *, retries: int = retrying.RETRIES, seconds: float = ANSWER_SECONDS
    ) -> None:
        self.url = connection.url
        self.retries = retries
        headers = {"Authorization": f"Bearer {connection.token}"} if connection.token else {}
        # A proxy of the environment has no business between a client and the server beside it.
        loopback = httpx.URL(connection.url).host in _LOOPBACK
        self._timeout = httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))
        self._http = httpx.Client(
            base_url=connection.url, headers=headers, timeout=self._timeout, trust_env=not loopback
        )

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> httpx.Response:
        return self._attempts(lambda: self._send("GET", path, params=_given(params)), idempotent=True)

    def post(
        self, path: str, json: Any = None, *, idempotency_key: str | None = None, patient: bool = False
    ) -> httpx.Response:
        """Repeated after a lost answer only when it carries a key; ``patient`` waits minutes for the answer.

        Raises InvalidInput for nan and infinity, which JSON does not have.
        """
        _check_finite("", json)
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        timeout = _PATIENT_TIMEOUT if patient else self._timeout
        send = lambda: self._send("POST", path, json=json, headers=headers, timeout=timeout)  # noqa: E731
        return self._attempts(send, idempotent=idempotency_key is not None)

    def put(self, path: str, content: Content, *, size: int, params: Mapping[str, Any]) -> httpx.Response:
        return self.upload("PUT", path, content, size=size, params=params)

    def upload(
        self, method: str, path: str, content: Content, *, size: int, params: Mapping[str, Any]
    ) -> httpx.Response:
        """Repeated after a lost answer: only for what changes nothing the second time."""
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
        """One attempt; what ends the stream too early is a NetworkError."""
        with (
            _network_errors(self.url),
            self._http.stream("GET", path, headers=dict(headers or {}), timeout=_STREAM_TIMEOUT) as response,
        ):
            if response.is_error:
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
                pause = retrying.pause(attempt)  # nothing was sent, so nothing can happen twice
            except httpx.TransportError as error:
                if not idempotent:
                    raise _network_error(self.url, error) from error
                pause = retrying.pause(attempt)
            else:
                asked = retrying.asked_to_wait(response.headers)
                if not (idempotent and retrying.is_transient(response.status_code, asked)):
                    return _checked(response)
                pause = retrying.pause(attempt, asked=asked)
            time.sleep(pause)
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
    if response.is_error:
        raise _error(response)
    return response


def _error(response: httpx.Response) -> errors.TunesmithError:
    try:
        problem = response.json()
    except ValueError:
        problem = None
    asked = retrying.asked_to_wait(response.headers)
    known = problem if isinstance(problem, dict) else None
    return problems.from_answer(response.status_code, known, retry_after=asked)


def _check_finite(name: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise errors.InvalidInput(f"{name} is {value}", hint="Give a finite number.")
    if isinstance(value, Mapping):
        for key, each in value.items():
            _check_finite(f"{name}.{key}" if name else str(key), each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _check_finite(name, each)


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}
