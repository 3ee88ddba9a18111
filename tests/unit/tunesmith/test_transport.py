"""A wrong address, token or server is an error that says so."""

from __future__ import annotations

import pytest

from tests.unit.tunesmith.flaky import Answer, flaky
from tunesmith import errors
from tunesmith.connection import Connection
from tunesmith.transport import Transport


@pytest.mark.parametrize("url", ["http://localhost:abc", "http://[::1]x", "http://1.2.3.999"])
def test_an_invalid_url_is_named(url: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="invalid server URL") as caught:
        Transport(Connection(url=url, token=None))
    assert url in caught.value.message


def test_an_invalid_token_is_not_repeated() -> None:
    with pytest.raises(errors.ConfigurationError, match="the token contains") as caught:
        Transport(Connection(url="http://localhost", token="tsk_\u00e9"))
    assert "tsk_" not in caught.value.message


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            Answer(status=301, headers={"Location": "https://a.example/v1/jobs"}),
            "redirects to https://a.example/v1/jobs",
        ),
        (Answer(body=b"<html>", headers={"Content-Type": "text/html; charset=utf-8"}), "answered with a web page"),
        (Answer(status=404, body=b"<html>", headers={"Content-Type": "text/html"}), "answered 404 without a reason"),
    ],
)
def test_another_server_is_an_error(answer: Answer, said: str) -> None:
    with flaky(answer) as server:
        transport = Transport(Connection(url=server.url, token=None))
        with pytest.raises(errors.ServerError, match=said):
            transport.get("/v1/jobs")
        with pytest.raises(errors.ServerError, match=said), transport.stream("/v1/jobs"):
            pass
        transport.close()
