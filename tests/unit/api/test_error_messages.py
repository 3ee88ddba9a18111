"""The list of messages by code finds what is raised in the service and in engines, directly and by helpers."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.documentation import error_messages

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    parts = error_messages.document(ROOT).split("\n## ")[1:]
    return {part.partition("\n")[0]: part for part in parts}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("job_not_found", "there is no job {job_id}"),
        ("invalid_webhook", "the webhook's URL contains credentials"),
        ("engine_silent", "no heartbeat for {silence_timeout} s"),
        ("shape_required", "these dimensions have no size: {places}"),
        ("invalid_model", "the module was rejected: an index has dtype {dtype}"),
        ("unknown_target", "a feature needs a sign, + or -: {feature}"),
    ],
)
def test_a_message_stands_under_its_code(sections: dict[str, str], code: str, message: str) -> None:
    assert f"\n* {message}\n" in sections[code]


def test_no_message_is_a_placeholder_alone(sections: dict[str, str]) -> None:
    lines = [line for part in sections.values() for line in part.splitlines() if line.startswith("* ")]
    assert [line for line in lines if line.startswith("* {") and line.endswith("}") and " " not in line[2:]] == []
