"""Files of records are read by a real process with limits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.jobs import Tuner
from tests.unit.tuner.native.test_formats import AUTOTVM
from tuner.host.record_reading import RecordReader
from tuner.host.settings import TunerSettings
from tuner.native.reading import Batch

pytestmark = pytest.mark.usefixtures("no_child_left")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "records"
    path.write_text("\n".join(AUTOTVM))
    return path


def read(file: Path, **settings: Any) -> list[Batch]:
    batches: list[Batch] = []
    RecordReader(home=file.parent, settings=TunerSettings(**settings)).read(file, Tuner.AUTOTVM, batches.append)
    return batches


@pytest.mark.smoke
def test_records_are_read(file: Path) -> None:
    (batch,) = read(file)
    assert [record.schedule for _, record in batch.records] == AUTOTVM


def test_a_line_that_needs_too_much_memory_is_refused(file: Path) -> None:
    with file.open("a") as lines:
        lines.write("\n[" + "[[]]," * 800_000 + "0]")
    with pytest.raises(errors.InvalidRequest, match="too much memory") as caught:
        read(file, inspect_memory_mb=128)
    assert caught.value.details["reason"] == "memory"
    assert read(file)[0].refused == ((len(AUTOTVM) + 1, "not a line of AutoTVM"),)


def test_time_is_limited_while_records_are_stored_too(file: Path) -> None:
    reader = RecordReader(home=file.parent, settings=TunerSettings(inspect_seconds=0.1))
    with pytest.raises(errors.InvalidRequest, match="took too long"):
        reader.read(file, Tuner.AUTOTVM, lambda _: time.sleep(0.6))


def test_cpu_time_is_limited_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b"x\n" * 8 * 1024**2)
    limits = RecordReader._limits
    monkeypatch.setattr(RecordReader, "_limits", lambda self, path, _: limits(self, path, -9))
    with pytest.raises(errors.InvalidRequest, match=r"ended with SIG(KILL|XCPU)"):
        read(file)
