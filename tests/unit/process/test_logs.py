from __future__ import annotations

import io
import json
import logging
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from process import logs
from process.logs import LogFormat, LogLevel

_log = logging.getLogger("tunesmith.example")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logs._of_process.clear()
    for name in (*logs._OWN, *logs._TALKATIVE):
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.captureWarnings(False)


def written(form: LogFormat = LogFormat.JSON, level: LogLevel = LogLevel.INFO, **ids: Any) -> io.StringIO:
    stream = io.StringIO()
    logs.set_up(form, level, stream=stream, **ids)
    return stream


def test_a_json_line_has_when_how_bad_who_what_and_the_ids_that_are_bound() -> None:
    stream = written(worker_id="host:1:2")
    with logs.bound(job_id="j-1", attempt=2):
        _log.warning("it took %d s", 3)
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "tunesmith.example",
        "message": "it took 3 s",
        "job_id": "j-1",
        "attempt": 2,
        "worker_id": "host:1:2",
    }


def test_one_event_is_one_json_line_with_its_trace() -> None:
    stream = written()
    try:
        raise ValueError("two\nlines")
    except ValueError:
        _log.exception("it\nfailed")
    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["message"] == "it\nfailed"
    assert "ValueError: two\nlines" in json.loads(line)["exception"]


def test_text_tells_the_same_and_no_message_can_look_like_another_line() -> None:
    stream = written(LogFormat.TEXT)
    with logs.bound(job_id="j-1"):
        _log.info("named x\n2026-01-01T00:00:00Z ERROR root: broken")
    first, second = stream.getvalue().splitlines()
    assert first.endswith("INFO tunesmith.example: named x")
    assert second == "  2026-01-01T00:00:00Z ERROR root: broken [job_id=j-1]"


def test_lines_below_the_level_are_left_out() -> None:
    stream = written(level=LogLevel.WARNING)
    _log.info("unheard")
    assert not stream.getvalue()


def test_libraries_are_not_debugged_as_they_write_what_they_send() -> None:
    stream = written(level=LogLevel.DEBUG)
    logging.getLogger("worker.example").debug("ours")
    logging.getLogger("botocore.auth").debug("StringToSign")
    logging.getLogger("alembic.runtime").info("Context impl")
    logging.getLogger("alembic.runtime").warning("odd")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["ours", "odd"]


def test_warnings_are_lines_like_others() -> None:
    stream = written()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logs.set_up(LogFormat.JSON, LogLevel.INFO, stream=stream)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert "old" in json.loads(stream.getvalue())["message"]


def test_ids_end_with_the_block_and_reach_only_threads_that_inherit_them() -> None:
    found: list[dict[str, Any]] = []
    with logs.bound(job_id="j-1"):
        with logs.bound(engine="relay", stage=None):
            assert logs.ids() == {"job_id": "j-1", "engine": "relay"}
        assert logs.ids() == {"job_id": "j-1"}
        targets = [logs.inherited(lambda: found.append(dict(logs.ids()))), lambda: found.append(dict(logs.ids()))]
    for target in targets:
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    assert found == [{"job_id": "j-1"}, {}]
    assert logs.ids() == {}


def test_only_known_ids_can_be_bound() -> None:
    with pytest.raises(ValueError, match="not token"):
        logs.bind(token="x")


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer s3cr3t-s3cr3t",
        "got tsk_s3cr3t-s3cr3t from it",
        "redis://worker:s3cr3t@cache.example:6379/0",
        "redis://:s3cr3t@cache.example:6379/0",
        "GET https://example.org/hook?a=1&token=s3cr3t",
    ],
)
def test_what_looks_like_a_secret_is_not_written(text: str) -> None:
    for form in LogFormat:
        stream = written(form)
        try:
            raise RuntimeError(text)
        except RuntimeError:
            _log.exception("refused: %s", text)
        assert "s3cr3t" not in stream.getvalue()
        assert stream.getvalue().count("[redacted]") == 2
