"""One worker process, until a signal ends it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

import celery.signals

from domain import errors
from process import homes, logs, tracing
from process.refusing import refuse
from storage.blobs import stores
from storage.database import Database, migrate, translated_errors
from storage.settings import StorageSettings
from tuner.host.settings import TunerSettings
from tuner.sandbox import probing
from worker import app as worker_app
from worker import broker, metrics, periodic
from worker.engines import InstalledEngines
from worker.runtime import Runtime
from worker.settings import WorkerSettings

_STOP_SECONDS = 8.0
_log = logging.getLogger("worker")


def main() -> int:
    probing.keep_private()
    homes.keep_new_files_private()
    try:
        runtime = _runtime()
        open_to_others = homes.prepare(runtime.settings.home)
        tracing.set_up("tunesmith-worker", wanted=runtime.settings.otel)
        url = runtime.settings.broker_url or broker.url(runtime.settings.home)
    except errors.TunesmithError as error:
        return refuse(error)
    logs.set_up(runtime.settings.log_format, runtime.settings.log_level, worker_id=runtime.id)
    if open_to_others:
        _log.warning("%s: %s", open_to_others, homes.HINT)
    # A receiver of this signal keeps Celery from configuring logging.
    celery.signals.setup_logging.connect(lambda **_: None, weak=False)
    metrics.serve(runtime.settings)
    try:
        with translated_errors():
            runtime.clean_up()
            runtime.announce()
    except errors.TunesmithError as error:
        return refuse(error)
    app = worker_app.create(url, runtime)
    threads = periodic.start(runtime)
    threading.Thread(target=_leave_in_time, args=[runtime.shutdown], name="leave in time", daemon=True).start()
    _log.info("worker %s", runtime.id)
    _log.info("%s", probing.probe().summary())
    try:
        worker_app.run(app, runtime)
    finally:
        for thread in threads:
            thread.join(timeout=2)
        runtime.database.close()
        tracing.close()
    return 0


def _runtime() -> Runtime:
    settings, storage = WorkerSettings(), StorageSettings()
    database = Database(storage.database_url, timeout=storage.database_timeout)
    migrate(database)
    return Runtime(
        database=database,
        blobs=stores.open_store(storage),
        engines=InstalledEngines(home=settings.home, settings=TunerSettings()),
        settings=settings,
    )


def _leave_in_time(shutdown: threading.Event) -> None:
    """Stop quickly when asked: another worker continues what is left."""
    shutdown.wait()
    time.sleep(_STOP_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
