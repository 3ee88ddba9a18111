"""Tokens and login links, from the command line and from programs."""

from __future__ import annotations

from datetime import datetime

import httpx
import pytest

from tests.support.tunesmith.commands import parsed, run
from tunesmith import errors
from tunesmith.client import Client


def test_a_token_from_the_command_line_to_its_end(
    capsys: pytest.CaptureFixture[str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    status, text, told = run(
        capsys, "token", "create", "CI", "--owner", "vision", "--expires", "90d", "--running-jobs", 2, "--stored", "2G"
    )
    assert status == 0
    assert text.startswith("tsk_")
    assert "read, submit for vision, until 20" in told
    assert "stores only its digest" in told
    (listed,) = parsed(capsys, "token", "list", "--owner", "vision")
    assert listed["quota"] == {"running_jobs": 2, "queued_jobs": None, "stored_bytes": 2 * 1000**3}
    days = datetime.fromisoformat(listed["expires_at"]) - datetime.fromisoformat(listed["created_at"])
    assert days.days == 90
    with Client(url, text.strip()) as client:
        assert client.tokens.own()["owner"] == "vision"
        with pytest.raises(errors.Forbidden) as caught:
            client.tokens.create("another")
        assert caught.value.code == "missing_scope"
    status, out, _ = run(capsys, "token", "list")
    assert status == 0
    for word in (listed["id"], "vision", "read,submit", "2 running, 2.0 GB stored", "CI"):
        assert word in out
    assert text.strip() not in out
    assert run(capsys, "token", "revoke", listed["id"])[:2] == (0, f"{listed['id']} (CI) is revoked\n")
    assert parsed(capsys, "token", "list") == []
    (gone,) = parsed(capsys, "token", "list", "--all")
    assert gone["revoked_at"]
    assert "revoked" in run(capsys, "token", "list", "--all")[1]
    with Client(url, text.strip()) as client, pytest.raises(errors.Unauthorized, match="revoked"):
        client.workers()


@pytest.mark.usefixtures("url")
def test_json_holds_the_text_once(capsys: pytest.CaptureFixture[str]) -> None:
    made = parsed(capsys, "token", "create", "bot", "--scope", "read")
    assert (made["scopes"], made["owner"], made["expires_at"]) == (["read"], "local", None)
    assert made["token"].startswith("tsk_")
    revoked = parsed(capsys, "token", "revoke", made["id"])
    assert "token" not in revoked
    assert revoked["active"] is False


@pytest.mark.usefixtures("lasting_url")
@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["create", "x", "--expires", "soon"], 2, "usage"),
        (["create", "x", "--stored", "lots"], 2, "usage"),
        (["create", "x", "--scope", "root"], 5, "invalid_request"),
        (["create", "x", "--owner", "a b"], 5, "invalid_request"),
        (["create", "x", "--running-jobs", "0"], 5, "invalid_request"),
        (["revoke", "t-none"], 5, "token_not_found"),
        (["revoke", ""], 5, "invalid_input"),
        (["list", "--limit", "0"], 2, "usage"),
    ],
)
def test_what_is_wrong_is_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, code: str
) -> None:
    found, _, told = run(capsys, "token", *arguments)
    assert (found, told.startswith(f"error[{code}]")) == (status, True), told


@pytest.mark.usefixtures("lasting_url")
def test_a_name_of_the_wrong_length_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert "error[invalid_request]: name is empty\n" in run(capsys, "token", "create", "")[2]
    long = run(capsys, "token", "create", "x" * 201)[2]
    assert "error[invalid_request]: name is longer than 200 characters\n" in long


@pytest.mark.usefixtures("lasting_url")
def test_nothing_to_list_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert "tunesmith token create" in run(capsys, "token", "list")[2]


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("columns", [50, 80])
def test_a_narrow_list_keeps_the_limits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    run(capsys, "token", "create", "free")
    limits = ("--running-jobs", 2, "--queued-jobs", 15, "--stored", "2G")
    run(capsys, "token", "create", "bound", "--owner", "vision", "--expires", "90d", *limits)
    _, out, _ = run(capsys, "token", "list")
    assert "limits: 2 running, 15 queued, 2.0 GB stored" in " ".join(out.split())
    assert out.count("limits:") == 1
    assert "bound" in out
    assert [line for line in out.splitlines() if len(line) > columns] == []


def test_a_link_opens_the_dashboard_once(capsys: pytest.CaptureFixture[str], url: str) -> None:
    status, link, _ = run(capsys, "login")
    assert (status, link.startswith(f"{url}/login?code=")) == (0, True)
    with httpx.Client() as browser:
        assert browser.get(link.strip()).status_code == 303
        assert browser.get(f"{url}/v1/tokens/self").json()["owner"] == "local"
        assert browser.get(link.strip()).status_code == 401
    assert set(parsed(capsys, "login")) == {"url", "expires_at"}


def test_tokens_come_by_pages(client: Client) -> None:
    made = {client.tokens.create(f"token {number}", scopes=["read"]).id for number in range(51)}
    assert {token.id for token in client.tokens.list()} == made
    assert "text=" not in repr(next(client.tokens.list()))


def test_bytes_are_written_in_several_ways(capsys: pytest.CaptureFixture[str], url: str) -> None:
    for text, count in (("3KB", 3000), ("3kB", 3000), ("5K", 5000), ("2G", 2_000_000_000), ("7", 7)):
        made = parsed(capsys, "token", "create", "x", "--stored", text)
        assert made["quota"]["stored_bytes"] == count
