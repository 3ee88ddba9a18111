"""``python -m api``: run the API until it gets a signal."""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.jobs.publishing import CeleryPublisher
from api.settings import ApiSettings
from domain import errors
from domain.models import ModelFormat
from process import homes, logs, tracing
from process.refusing import refuse
from storage.blobs import stores
from storage.database import Database, migrate
from storage.settings import StorageSettings
from tuner.host.extraction import InstalledPlanner
from tuner.host.inspection import Inspector
from tuner.host.record_reading import RecordReader
from tuner.host.settings import TunerSettings
from tuner.sandbox import limits, probing
from tuner.search import operators

_log = logging.getLogger("api")


def main() -> int:
    probing.keep_private()
    homes.keep_new_files_private()
    parser = argparse.ArgumentParser(description="The API of Tunesmith.")
    parser.add_argument("--fd", type=int, help="file descriptor of a listening socket")
    fd = parser.parse_args().fd
    try:
        settings, storage, tuning = ApiSettings(), StorageSettings(), TunerSettings()
    except errors.ConfigurationError as error:
        return refuse(error)
    if settings.broker_url is None:
        sys.stderr.write(
            "TUNESMITH_BROKER_URL is not set\nhint: set it to the URL of a Redis or Valkey server, or use ./run serve\n"
        )
        return 3
    if not settings.open and not (settings.token and settings.token.get_secret_value()):
        sys.stderr.write(
            "TUNESMITH_TOKEN is not set\n"
            "hint: set it to a long random string, or set TUNESMITH_OPEN=1 to allow every request without a token\n"
        )
        return 3
    logs.set_up(settings.log_format, settings.log_level)
    try:
        open_to_others = homes.prepare(storage.home)
        if open_to_others:
            _log.warning("%s: %s", open_to_others, homes.HINT)
        tracing.set_up("tunesmith-api", wanted=settings.otel)
        blobs = stores.open_store(storage)
        database = Database(storage.database_url, timeout=storage.database_timeout)
        migrate(database)
    except errors.TunesmithError as error:
        return refuse(error)
    # A process that reads an upload of one user must not see those of others.
    hidden = limits.hideable(stores.folder(storage), storage.home)
    inspector = _inspector(storage.home, tuning, hidden)
    app = create_app(
        settings,
        database=database,
        blobs=blobs,
        publisher=CeleryPublisher(settings.broker_url),
        inspect=lambda path, kind, canceled: replace(inspector(kind), canceled=canceled).inspect(path),
        inspect_rows=lambda path, canceled: replace(inspector(ModelFormat.ONNX), canceled=canceled).inspect_rows(path),
        read_records=RecordReader(home=storage.home, settings=tuning, hidden=hidden).read,
        planner=InstalledPlanner(home=storage.home, settings=tuning, hidden=hidden),
        make_operator=lambda operator, path: operators.make_model(inspector(ModelFormat.ONNX), operator, path),
        logs=storage.home / "logs" / "jobs",
    )
    ApiServer(app, settings).run(None if fd is None else [socket.socket(fileno=fd)])
    database.close()
    tracing.close()
    return 0


def _inspector(home: Path, settings: TunerSettings, hidden: tuple[str, ...]) -> Callable[[ModelFormat], Inspector]:
    # Looked up for each request, as an engine may be installed while the API runs.
    return lambda model_format: Inspector.installed(model_format, home, settings, hidden=hidden)


class ApiServer(uvicorn.Server):
    """Server that ends event streams before it shuts down; uvicorn would wait for these open responses."""

    def __init__(self, app: FastAPI, settings: ApiSettings) -> None:
        self._services = app.state.services
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            # The root logger writes uvicorn's messages, as configured.
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            http="h11",
            # By default uvicorn trusts 127.0.0.1, where any local program can forge addresses and so evade limits.
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=settings.trusted_proxies,
            ws="none",
            h11_max_incomplete_event_size=settings.header_bytes,
            timeout_graceful_shutdown=settings.shutdown_seconds,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._services.stopping.set()
        self._services.events.wake()
        await super().shutdown(sockets)


if __name__ == "__main__":
    sys.exit(main())
