"""What is decided before a program enters the sandbox: what it gets, what is hidden from it, how much memory it has."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tuner.sandbox import limits as sandbox

SECRETS: Sequence[str] = (
    "TUNESMITH_TOKEN",
    "TUNESMITH_DATABASE_URL",
    "TUNESMITH_BROKER_URL",
    "TUNESMITH_BLOB_URL",
    "TUNESMITH_WEBHOOK_SECRET",
    "DATABASE_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "PGPASSWORD",
    "GITHUB_TOKEN",
    "HTTPS_PROXY",
    "SSH_AUTH_SOCK",
    "ANYTHING_ELSE",
)


def test_engines_get_what_they_need_and_no_credential() -> None:
    needed = {"PATH": "/bin", "HOME": "/h", "TVM_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "0", "LC_ALL": "C"}
    outer = {**needed, **dict.fromkeys(SECRETS, "secret")}
    assert sandbox.environment(outer) == needed
    more = {**outer, sandbox.MORE: "ANYTHING_*, PGPASSWORD"}
    assert sandbox.environment(more) == {**needed, "ANYTHING_ELSE": "secret", "PGPASSWORD": "secret"}


def test_what_holds_credentials_is_hidden(tmp_path: Path) -> None:
    secret, person, home = tmp_path / "password", tmp_path / "person", tmp_path / "home"
    for path in (
        secret,
        person / ".ssh" / "id",
        home / "server.json",
        home / "run" / "sock",
        home / "work" / "x",
        home / "logs" / "api.log",
        home / "engines" / "x",
        home / "token",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    hidden = set(sandbox.hidden(home, {"HOME": str(person), "TUNESMITH_TOKEN_FILE": str(secret)}))
    names = ("server.json", "run", "work", "logs", "token")
    ours = {str(person / ".ssh"), *(str(home / name) for name in names), str(secret)}
    assert {path for path in hidden if path.startswith(str(tmp_path))} == ours


def test_a_folder_of_jobs_around_the_program_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work" / "temporary").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "work" / "temporary"))
    assert str(tmp_path / "work") not in sandbox.hidden(tmp_path, {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert str(tmp_path / "work") in sandbox.hidden(tmp_path, {})


def test_a_link_is_hidden_for_what_it_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "temporary").mkdir(parents=True)
    (tmp_path / "work").symlink_to(scratch, target_is_directory=True)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch / "temporary"))
    assert sandbox.hideable(tmp_path / "work") == ()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert sandbox.hideable(tmp_path / "work") == (str(tmp_path / "work"),)


@pytest.mark.parametrize("url", ["sqlite:///{}", "sqlite+pysqlite:///{}?timeout=5", "sqlite:///file:{}?uri=true"])
def test_a_database_elsewhere_is_hidden(url: str, tmp_path: Path) -> None:
    files = [tmp_path / f"jobs.db{suffix}" for suffix in ("", "-wal", "-shm")]
    for path in files:
        path.write_text("secret")
    text = url.format(files[0])
    assert set(map(str, files)) <= set(sandbox.hidden(None, {"TUNESMITH_DATABASE_URL": text}))
    named = tmp_path / "url"
    named.write_text(text)
    assert set(map(str, [*files, named])) <= set(sandbox.hidden(None, {"TUNESMITH_DATABASE_URL_FILE": str(named)}))
    for other in ("postgresql://u@h/jobs.db", "sqlite://", "nonsense"):
        assert not [path for path in sandbox.hidden(None, {"TUNESMITH_DATABASE_URL": other}) if "jobs" in path]


def test_a_home_that_may_not_be_searched_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_path: object, **_more: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "stat", refuse)
    assert sandbox.hidden(Path("/root/tunesmith"), {"HOME": "/root"}) == ()


def test_the_share_of_memory_is_that_of_the_machine_or_container() -> None:
    assert 2**28 < sandbox.memory_of_host() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
