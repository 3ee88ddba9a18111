"""What becomes of failures of the process that reads records, with a fake."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

import pytest

from domain import errors
from domain.jobs import Tuner
from tests.support.tuner.fakes import FakeEngine
from tuner.engines.protocol.serving import EngineFailure
from tuner.host.record_reading import RecordReader
from tuner.host.settings import TunerSettings


@pytest.fixture
def reader(tmp_path: Path) -> RecordReader:
    return RecordReader(home=tmp_path, settings=TunerSettings(inspect_seconds=30, inspect_memory_mb=512))


def read(reader: RecordReader, monkeypatch: pytest.MonkeyPatch, failure: Exception) -> errors.TunesmithError:
    def answer(*_: object, **__: object) -> NoReturn:
        raise failure

    engine = nullcontext(FakeEngine({"read": answer}))
    starts = answer if isinstance(failure, errors.EngineStartFailed) else lambda *_, **__: engine
    monkeypatch.setattr("tuner.host.record_reading.EngineSession.start", starts)
    file = reader.home / "records"
    file.write_bytes(bytes(2 * 1024**2))
    with pytest.raises(errors.TunesmithError) as caught:
        reader.read(file, Tuner.AUTOTVM, lambda _: None)
    return caught.value


@pytest.mark.parametrize(
    ("failure", "message", "reason"),
    [
        (errors.EngineCrashed("gone", details={"signal": "SIGXCPU"}), "ended with SIGXCPU", "reader_ended"),
        (errors.EngineTimeout("slow"), "took too long", "reader_ended"),
        (errors.EngineSilent("mute"), "took too long", "reader_ended"),
        (errors.EngineGarbled("half a line"), "invalid message", "reader_ended"),
        (EngineFailure("out_of_memory", "MemoryError: "), "too much memory", "memory"),
    ],
)
def test_a_file_that_brings_its_reader_down_is_refused(
    reader: RecordReader, monkeypatch: pytest.MonkeyPatch, failure: Exception, message: str, reason: str
) -> None:
    found = read(reader, monkeypatch, failure)
    assert (type(found), found.details["reason"]) == (errors.InvalidRequest, reason)
    assert message in found.message
    assert found.hint == "Split the file and import the parts; each must be readable within 0.5 GB and 32 s."


def test_an_invalid_archive_keeps_its_message(reader: RecordReader, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(reader, monkeypatch, EngineFailure("invalid_request", "not a tar", hint="Write one."))
    assert (type(found), found.message, found.hint) == (errors.InvalidRequest, "not a tar", "Write one.")


def test_a_defect_stays_one(reader: RecordReader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        type(read(reader, monkeypatch, EngineFailure("engine_internal_error", "KeyError")))
        is errors.EngineRequestFailed
    )
    assert type(read(reader, monkeypatch, errors.EngineStartFailed("no memory"))) is errors.Unavailable
