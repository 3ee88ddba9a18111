"""Logging with the ids of request, job, worker and engine, as text or as one JSON object per line.

Ids are bound to the current context, and every line logged there includes them. A thread starts with an empty context;
use ``inherited`` for one that works for a job.
"""

from __future__ import annotations

import contextvars
import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ParamSpec, TextIO, TypeVar

FIELDS = ("request_id", "job_id", "attempt", "stage", "worker_id", "engine", "engine_pid")
"""Names of ids, in the order of output."""


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


FORMAT = "Log format: text, or json (one object per line, with the ids of the request, job and worker)."
LEVEL = "Minimum level of log lines: debug, info, warning or error."

Ids = Mapping[str, str | int]
_of_process: dict[str, str | int] = {}
_bound: contextvars.ContextVar[Ids] = contextvars.ContextVar("log_ids", default={})  # noqa: B039 - never changed
_OWN = ("api", "domain", "storage", "tuner", "worker")
_TALKATIVE = ("alembic",)
"""Libraries whose info messages are not useful."""
_SECRETS = re.compile(
    r"(?P<bearer>(?i:bearer|basic)\s+)[\w.~+/=-]{8,}"
    r"|(?P<token>\btsk_)[\w-]{8,}"
    r"|(?P<user>://[^\s:/@]*:)[^\s@/]+(?=@)"
    r"|(?P<named>(?i:[?&](?:code|token|secret|password|signature)=))[^\s&\"]+"
)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def set_up(form: LogFormat, level: LogLevel, *, stream: TextIO | None = None, **ids: str | int | None) -> None:
    """Make every logger of this process write to ``stream``, by default standard error.

    ``ids`` are those of the process; every line includes them.
    """
    _of_process.clear()
    _of_process.update(_checked(ids))
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else TextLines())
    handler.addFilter(_add_ids)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    chosen = logging.getLevelNamesMapping()[level.value.upper()]
    # At level debug, libraries write headers and signed content.
    root.setLevel(max(chosen, logging.INFO))
    for name in _OWN:
        logging.getLogger(name).setLevel(chosen)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(chosen, logging.WARNING))
    logging.captureWarnings(True)


def bind(**ids: str | int | None) -> None:
    """Bind ids until the end of the context, of a request or a thread."""
    _bound.set(_with(ids))


@contextmanager
def bound(**ids: str | int | None) -> Iterator[None]:
    """Bind ids during the block."""
    before = _bound.set(_with(ids))
    try:
        yield
    finally:
        _bound.reset(before)


def ids() -> Ids:
    """Return the bound ids."""
    return _bound.get()


def request_id() -> str | None:
    found = _bound.get().get("request_id")
    return None if found is None else str(found)


def inherited(action: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap a thread's target so that it has the ids bound here."""
    context = contextvars.copy_context()

    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return context.run(action, *args, **kwargs)

    return run


def without_secrets(text: str) -> str:
    """Remove secrets: messages of libraries may contain URLs or headers."""
    return _SECRETS.sub(lambda found: f"{found[found.lastgroup or 0]}[redacted]", text)


class JsonLines(logging.Formatter):
    """One JSON object per line; ``extra={"fields": {...}}`` of a log call adds keys; their values must not
    contain secrets."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            **getattr(record, "ids", {}),
            **getattr(record, "fields", {}),
        }
        trace = _trace(record)
        if trace:
            line["exception"] = trace
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        labels = " ".join(f"{name}={value}" for name, value in getattr(record, "ids", {}).items())
        message = without_secrets(record.getMessage())
        # One line per event, so that input of callers cannot forge log lines.
        message = message.replace("\r", "\\r").replace("\n", "\n  ")
        line = f"{_time(record)} {record.levelname} {record.name}: {message}" + (f" [{labels}]" if labels else "")
        trace = _trace(record)
        return f"{line}\n{trace}" if trace else line


def _add_ids(record: logging.LogRecord) -> bool:
    """A filter of handlers, as loggers of libraries have none."""
    found = {**_of_process, **_bound.get()}
    record.ids = {name: found[name] for name in FIELDS if name in found}
    return True


def _with(ids: Mapping[str, str | int | None]) -> Ids:
    return {**_bound.get(), **_checked(ids)}


def _checked(ids: Mapping[str, str | int | None]) -> Ids:
    known = {name: value for name, value in ids.items() if value is not None}
    if not known.keys() <= set(FIELDS):
        raise ValueError(f"only {', '.join(FIELDS)} can be bound, not {', '.join(sorted(known))}")
    return known


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return without_secrets("".join(traceback.format_exception(*record.exc_info)).rstrip())
