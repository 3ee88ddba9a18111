from __future__ import annotations

import base64

import pytest

from domain import errors
from process import signatures


def test_a_message_is_signed_as_the_specification_shows() -> None:
    """The example of the Standard Webhooks reference libraries."""
    found = signatures.headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        seconds=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert found == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_secrets_are_long_and_never_twice_the_same() -> None:
    made = {signatures.make_secret() for _ in range(50)}
    assert len(made) == 50
    for secret in made:
        signatures.check_secret(secret)
        assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        base64.b64encode(bytes(32)).decode(),
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsec_" + base64.b64encode(bytes(32)).decode().rstrip("="),
        "whsec_" + "é" * 40,
        "whsec_" + "!" * 40,
    ],
)
def test_a_weak_or_garbled_secret_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(errors.InvalidWebhook) as refused:
        signatures.check_secret(secret)
    assert secret not in refused.value.message or not secret.removeprefix("whsec_")


@pytest.mark.parametrize("size", [24, 64])
def test_the_bounds_are_taken(size: int) -> None:
    signatures.check_secret("whsec_" + base64.b64encode(bytes(size)).decode())
