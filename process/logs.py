"""Log lines that say which request, job, worker and engine they are about: as text, or as one JSON object a line.

Who works on something binds its ids to the running context; every line that is logged there carries them. A thread
starts with an empty context: one that works for a job is given its starter's with ``inherited``.
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
"""What may be bound, in the order in which it is told."""


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
"""Libraries whose lines of level info tell nobody anything."""
_SECRETS = re.compile(
    r"(?P<bearer>(?i:bearer|basic)\s+)[\w.~+/=-]{8,}"
    r"|(?P<token>\btsk_)[\w-]{8,}"
    r"|(?P<user>://[^\s:/@]*:)[^\s@/]+(?=@)"
    r"|(?P<named>(?i:[?&](?:code|token|secret|password|signature)=))[^\s&\"]+"
)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def set_up(form: LogFormat, level: LogLevel, *, stream: TextIO | None = None, **ids: str | int | None) -> None:
    """Make every logger of this process write to ``stream``, by default standard error, and nowhere else.

    ``ids`` are the process's own: every line carries them.
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
    # Libraries that are debugged write headers and what they sign.
    root.setLevel(max(chosen, logging.INFO))
    for name in _OWN:
        logging.getLogger(name).setLevel(chosen)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(chosen, logging.WARNING))
    logging.captureWarnings(True)


def bind(**ids: str | int | None) -> None:
    """From here on, to the end of the context: of a request, or a thread."""
    _bound.set(_with(ids))


@contextmanager
def bound(**ids: str | int | None) -> Iterator[None]:
    """While the block runs."""
    before = _bound.set(_with(ids))
    try:
        yield
    finally:
        _bound.reset(before)


def ids() -> Ids:
    """What is bound here."""
    return _bound.get()


def request_id() -> str | None:
    found = _bound.get().get("request_id")
    return None if found is None else str(found)


def inherited(action: Callable[_P, _R]) -> Callable[_P, _R]:
    """For a thread's target: what is bound here is bound there."""
    context = contextvars.copy_context()

    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return context.run(action, *args, **kwargs)

    return run


def without_secrets(text: str) -> str:
    """Nothing of ours logs a secret; a library's message may hold the URL or header that it was given."""
    return _SECRETS.sub(lambda found: f"{found[found.lastgroup or 0]}[redacted]", text)


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            **getattr(record, "ids", {}),
        }
        trace = _trace(record)
        if trace:
            line["exception"] = trace
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = " ".join(f"{name}={value}" for name, value in getattr(record, "ids", {}).items())
        message = without_secrets(record.getMessage())
        # One line for one event: what a caller sent cannot look like another line.
        message = message.replace("\r", "\\r").replace("\n", "\n  ")
        line = f"{_time(record)} {record.levelname} {record.name}: {message}" + (f" [{told}]" if told else "")
        trace = _trace(record)
        return f"{line}\n{trace}" if trace else line


def _add_ids(record: logging.LogRecord) -> bool:
    """A handler's filter rather than a logger's: those of libraries have none."""
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
