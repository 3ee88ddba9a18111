"""X-Forwarded-For and X-Forwarded-Proto, which only a trusted proxy may set, on real connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.settings import ApiSettings
from domain import errors
from tests.support.api.factories import AUTHORIZED, Service, open_service
from tests.support.api.live import serving


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Service]:
    """Three failed logins for each address, and then none for a quarter of an hour."""
    with open_service(tmp_path, failures_burst=3, failures_per_second=0.001) as service:
        yield service


def guesses(url: str) -> list[int]:
    """Statuses of wrong tokens, each sent as if from another address."""
    return [
        httpx.get(
            f"{url}/v1/models", headers={"Authorization": "Bearer wrong", "X-Forwarded-For": f"192.0.2.{number}"}
        ).status_code
        for number in range(5)
    ]


def cookie(url: str) -> str:
    link = httpx.post(f"{url}/v1/login-links", headers=AUTHORIZED).json()["url"]
    path = link.removeprefix(link.partition("/login")[0])
    return httpx.get(f"{url}{path}", headers={"X-Forwarded-Proto": "https"}).headers["set-cookie"]


@pytest.mark.parametrize("trusted", ["", "192.0.2.1,10.0.0.0/8"])
def test_a_caller_that_is_not_trusted_cannot_forge_its_address(
    strict: Service, trusted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own setting
    with serving(strict, trusted_proxies=trusted) as url:
        assert "secure" not in cookie(url).lower()
        assert guesses(url) == [401, 401, 401, 429, 429]


@pytest.mark.parametrize("trusted", ["127.0.0.1", "10.0.0.1, 127.0.0.0/8"])
def test_a_trusted_proxy_names_the_caller(strict: Service, trusted: str) -> None:
    with serving(strict, trusted_proxies=trusted) as url:
        assert "secure" in cookie(url).lower()
        assert guesses(url) == [401] * 5


@pytest.mark.parametrize("trusted", ["*", "proxy.example.com", "10.0.0.1/8", "127.0.0.1;::1"])
def test_a_proxy_is_named_by_its_address(trusted: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="TUNESMITH_TRUSTED_PROXIES"):
        ApiSettings(trusted_proxies=trusted)
