"""Each check of ``tunesmith doctor`` finds what is wrong, on the real thing where there is one."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as RedisClient
from sqlalchemy import text

from domain.blobs import Blob
from domain.workers import Worker
from process import homes
from serve.doctor import bytes_kept, fleet, host, messages, sql, variables
from serve.doctor.findings import Finding, State
from storage import workers
from storage.blobs import ownership
from storage.blobs.local import LocalBlobStore
from storage.database import Database, migrate
from tests.support.servers import processes
from tests.support.servers.redis import Redis
from tests.support.storage import revisions
from tests.support.storage.factories import worker
from tuner.host.environments import EngineHealth
from worker import identity

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def codes(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(str(each.state), each.code) for each in found if each.state is not State.OK]


def test_a_misspelt_variable_is_told_with_what_was_meant() -> None:
    environment = {"TUNESMITH_DATBASE_URL": "x", "TUNESMITH_TOKEN_FILE": "/x", "TUNESMITH_PORT": "1", "PATH": ""}
    (found,) = variables.check(["port", "token"], environment)
    assert (found.state, found.code) == (State.WARN, "setting_unknown")
    assert "TUNESMITH_DATABASE_URL" in str(found.hint)
    assert codes(variables.check(["port"], {"TUNESMITH_PORT": "1"})) == []


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([], "no variables are set"),
        (["PORT"], "one variable is set and known"),
        (["PORT", "TOKEN"], "2 variables are set, all known"),
    ],
)
def test_known_variables_are_counted_in_words(names: list[str], told: str) -> None:
    (found,) = variables.check(["port", "token"], {f"TUNESMITH_{name}": "1" for name in names})
    assert (found.state, found.message) == (State.OK, told)


def test_a_home_folder_that_is_none_or_full_is_told(tmp_path: Path) -> None:
    assert codes(host.home(tmp_path / "new")) == []
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "new").chmod(0o755)
    assert codes(host.home(tmp_path / "new")) == [("warn", "home_open")]
    (tmp_path / "file").touch()
    assert codes(host.home(tmp_path / "file")) == [("fail", "home_not_writable")]
    assert host.space(tmp_path, 3 * 1024**3).code == "disk_low"
    assert host.space(tmp_path, 1024).code == "disk_full"
    assert host.space(tmp_path, 50 * 1024**3).state is State.OK


def compiler_of(folder: Path, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "cc").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "cc").chmod(stat.S_IRWXU)


def test_a_compiler_must_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    assert codes(host.compiler()) == []
    monkeypatch.setenv("PATH", f"{tmp_path}")
    assert codes(host.compiler()) == [("warn", "compiler_not_found")]
    compiler_of(tmp_path, "echo 'no linker' >&2; exit 1")
    (found,) = host.compiler()
    assert (found.state, found.code) == (State.FAIL, "compiler_broken")
    assert "no linker" in found.message


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        found: str = request.getfixturevalue("postgresql_url")
        return found
    return f"sqlite:///{tmp_path / 'db.sqlite3'}"


def test_a_database_is_told_by_its_schema(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(url)
    assert codes(sql.check(database)) == [("warn", "database_empty")]
    assert codes(fleet.check(database, alive_seconds=60)) == [("warn", "not_checked")]
    migrate(database)
    with monkeypatch.context() as patched:
        revisions.release_next(patched, tmp_path)
        assert codes(sql.check(database)) == [("warn", "database_behind")]
    assert codes(sql.check(database)) == []
    assert codes(fleet.check(database, alive_seconds=60)) == [("warn", "no_worker")]
    for revision, told in (("9999", "newer release"), ("0011", "older than the first release")):
        with database.transaction() as session:
            session.execute(text("UPDATE alembic_version SET version_num = :found"), {"found": revision})
        (finding,) = (finding for finding in sql.check(database) if finding.state is not State.OK)
        assert (finding.state, finding.code) == (State.FAIL, "configuration_error")
        assert told in finding.message
    database.close()


def test_a_user_that_may_only_read_is_told(postgresql_url: str) -> None:
    database = Database(postgresql_url)
    migrate(database)
    name = f"reader_{secrets.token_hex(4)}"
    with database.transaction() as session:
        session.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD 'for-tests-only'"))
        session.execute(text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}"))
    reader = Database(database.url.set(username=name).render_as_string(hide_password=False))
    try:
        assert codes(sql.check(reader)) == [("fail", "database_read_only")]
    finally:
        reader.close()
        with database.transaction() as session:
            session.execute(text(f"DROP OWNED BY {name}"))
            session.execute(text(f"DROP ROLE {name}"))
        database.close()


def test_a_database_without_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    database = Database(f"sqlite:///{tmp_path / 'db.sqlite3'}")
    migrate(database)
    monkeypatch.setattr(homes, "check_space", refuse)
    (found,) = (each for each in sql.check(database) if each.state is not State.OK)
    assert (found.code, found.message) == ("database_read_only", "cannot write beside it: No space left on device")
    database.close()


def test_a_database_that_is_away_is_told_without_its_password() -> None:
    database = Database(f"postgresql+psycopg://me:hunter2@127.0.0.1:{processes.free_port()}/tunesmith")
    (found,) = sql.check(database)
    assert (found.state, found.code) == (State.FAIL, "database_unavailable")
    assert "hunter2" not in found.message
    database.close()


def test_a_table_that_is_gone_is_told(postgresql_url: str) -> None:
    database = Database(postgresql_url)
    migrate(database)
    assert codes(sql.check(database)) == []
    with database.transaction() as session:
        session.execute(text("ALTER TABLE records RENAME TO kept"))
    assert codes(sql.check(database)) == [("fail", "database_damaged")]
    database.close()


def test_clocks_are_compared(postgresql_url: str) -> None:
    database = Database(postgresql_url)
    (found,) = (each for each in sql.check(database) if each.check == sql.CLOCK)
    assert found.state is State.OK
    database.close()
    assert (sql.clock(0.5).state, sql.clock(-3.0).code, sql.clock(600.0).code) == (
        State.OK,
        "clock_differs",
        "clock_wrong",
    )


def test_a_broker_is_asked(redis_server: Redis) -> None:
    found = messages.check(redis_server.url())
    assert codes(found) == []
    assert "responds in" in found[0].message
    client = RedisClient(port=redis_server.port)
    assert client.keys("tunesmith.doctor*") == []
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("appendonly", "no")
    try:
        assert codes(messages.check(redis_server.url())) == [("fail", "broker_evicts"), ("warn", "broker_not_durable")]
    finally:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("appendonly", "yes")
        client.close()


@pytest.mark.parametrize(
    ("info", "told"),
    [
        ({"aof_enabled": 1}, []),
        ({"aof_enabled": 1, "aof_last_write_status": "err"}, [("fail", "broker_cannot_save")]),
        ({"aof_enabled": 1, "role": "slave"}, [("fail", "broker_is_replica")]),
        ({"aof_enabled": 1, "maxmemory": 100, "used_memory": 95}, [("warn", "broker_memory_low")]),
    ],
)
def test_what_a_broker_tells_of_itself(info: dict[str, Any], told: list[tuple[str, str]]) -> None:
    assert codes(list(messages.of_info(info))) == told


def test_a_broker_that_is_away_or_misspelt_is_told() -> None:
    assert codes(messages.check(f"redis://127.0.0.1:{processes.free_port()}/0")) == [("fail", "broker_unavailable")]
    assert codes(messages.check("valkie://here")) == [("fail", "broker_url_invalid")]
    socket = messages.connect("redis+socket:///run/my%20broker.sock?virtual_host=3")
    assert socket.connection_pool.connection_kwargs["path"] == "/run/my broker.sock"
    assert socket.connection_pool.connection_kwargs["db"] == 3


def test_blobs_are_put_read_and_deleted(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path / "blobs")
    assert codes(bytes_kept.check(store, where="here")) == []
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


def test_a_store_of_another_service_is_told(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path / "blobs")
    database = Database(f"sqlite:///{tmp_path / 'db.sqlite3'}")

    def told() -> list[tuple[str, str]]:
        return codes(bytes_kept.owner(database, store, where="here"))

    assert bytes_kept.owner(database, store, where="here") == []  # it has no tables yet
    migrate(database)
    assert told() == []
    assert store.owner() is None
    store.hand_over("d-another")
    assert told() == [("fail", "blob_store_foreign")]
    ownership.take_over(database, store, now=datetime.now(UTC))
    assert told() == []
    database.close()


def test_a_store_that_forgets_is_told(tmp_path: Path) -> None:
    class Forgetful(LocalBlobStore):
        def put(self, chunks: Any, *, limit: int | None = None) -> Blob:
            b"".join(chunks)
            return super().put([b"something else"], limit=limit)

    assert codes(bytes_kept.check(Forgetful(tmp_path / "blobs"), where="here")) == [("fail", "blobs_lost")]


def health(name: str, *problems: str, installed: bool = True) -> EngineHealth:
    return EngineHealth(name=name, installed=installed, start_seconds=1.0, problems=problems)


def test_one_of_the_engines_that_compile_may_be_missing() -> None:
    missing = [health(name, "not installed", installed=False) for name in ("relay", "relax")]
    assert codes(host.judged([health("onnx"), *missing])) == [("fail", "engine_not_installed")] * 2
    assert codes(host.judged([health("relay"), missing[1]])) == [("warn", "engine_not_installed")]
    assert codes(host.judged([health("relay", "it crashed"), health("relax")])) == [("fail", "engine_broken")]
    away = [health("onnx", "not installed", installed=False), health("relay")]
    assert codes(host.judged(away)) == [("fail", "engine_not_installed")]


def test_workers_are_counted_by_their_signs_of_life() -> None:
    seen = replace(worker(), last_seen_at=NOW)
    assert codes(fleet.judged([seen], now=NOW + timedelta(seconds=90), alive_seconds=60)) == [("warn", "no_worker")]
    told = codes(fleet.judged([replace(seen, release="0.0.9")], now=NOW, alive_seconds=60))
    assert told == [("warn", "workers_differ")]


def own(**changes: Any) -> Worker:
    own_id = identity.own_id()
    return replace(worker(), **{"id": own_id, "hostname": identity.hostname(), "pid": os.getpid(), **changes})


def test_this_hosts_worker_is_told_from_others(url: str) -> None:
    database = Database(url)
    migrate(database)
    now = datetime.now(UTC)
    for beat, state in ((worker(), State.FAIL), (own(last_seen_at=now - timedelta(minutes=5)), State.FAIL)):
        with database.transaction() as session:
            workers.beat(session, replace(beat, last_seen_at=min(beat.last_seen_at, now)))
        assert fleet.own(database, alive_seconds=60).state is state
    with database.transaction() as session:
        workers.beat(session, own(last_seen_at=now))
    assert fleet.own(database, alive_seconds=60).state is State.OK
    database.close()
