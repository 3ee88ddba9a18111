"""All checks, with the settings of the API and the workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from domain import errors
from serve.doctor import bytes_kept, findings, fleet, host, messages, sql, variables
from serve.doctor.findings import Finding, State
from serve.doctor.variables import AllSettings
from storage.blobs import stores
from storage.database import Database
from worker import broker

CHECKS = (
    variables.CHECK,
    host.HOME,
    sql.CHECK,
    messages.CHECK,
    bytes_kept.CHECK,
    host.ENGINES,
    host.SANDBOX,
    host.COMPILER,
    fleet.CHECK,
)


def examine(names: Sequence[str], *, api_fields: list[str]) -> Iterator[Finding]:
    """Yield findings as they arise; problems of the service are findings, not exceptions."""
    try:
        settings = variables.read()
    except errors.ConfigurationError as error:
        yield findings.failed(variables.CHECK, error)
        return
    chosen = [name for name in CHECKS if name in names] if names else CHECKS
    for name in chosen:
        try:
            yield from _check(name, settings, api_fields)
        except errors.TunesmithError as error:
            yield findings.failed(name, error)


def own_worker() -> Finding:
    """Check only this host's worker, as a container's health check does."""
    try:
        settings = variables.read()
        database = _database(settings)
    except errors.TunesmithError as error:
        return findings.failed(fleet.CHECK, error)
    with closing(database):
        return fleet.own(database, alive_seconds=settings.worker.worker_alive_seconds)


def _check(name: str, settings: AllSettings, api_fields: list[str]) -> list[Finding]:
    home = settings.storage.home
    if name == variables.CHECK:
        return variables.check(api_fields)
    if name == host.HOME:
        return host.home(home)
    if name == host.COMPILER:
        return host.compiler()
    if name == host.SANDBOX:
        return host.sandbox()
    if name == host.ENGINES:
        return host.engines(home, hello_seconds=settings.tuner.engine_hello_seconds)
    if name == messages.CHECK:
        return _broker(settings)
    if name == bytes_kept.CHECK:
        return _bytes_kept(settings)
    return _of_database(name, settings)


def _broker(settings: AllSettings) -> list[Finding]:
    url = settings.worker.broker_url
    if url is None and not broker.socket_path(settings.storage.home).exists():
        hint = "Start it with ./run serve, or set TUNESMITH_BROKER_URL to a Redis or Valkey server."
        return [findings.warn(messages.CHECK, "broker_not_started", "the broker of `serve` is not running", hint)]
    return messages.check(url or broker.url(settings.storage.home))


def _bytes_kept(settings: AllSettings) -> list[Finding]:
    where = settings.storage.blob_url or str(settings.storage.blobs)
    store = stores.open_store(settings.storage)
    found = bytes_kept.check(store, where=where)
    if any(finding.state is State.FAIL for finding in found):
        return found
    with closing(_database(settings)) as database:
        return found + bytes_kept.owner(database, store, where=where)


def _of_database(name: str, settings: AllSettings) -> list[Finding]:
    with closing(_database(settings)) as database:
        if name == sql.CHECK:
            return sql.check(database)
        return fleet.check(database, alive_seconds=settings.worker.worker_alive_seconds)


def _database(settings: AllSettings) -> Database:
    return Database(settings.storage.database_url, timeout=settings.storage.database_timeout)
