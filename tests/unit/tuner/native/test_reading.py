"""What the process that reads a file tells the host."""

from __future__ import annotations

import io
import json

import pytest

from domain.jobs import Tuner
from tests.unit.tuner.native.test_formats import ANSOR, AUTOTVM, FORMATS, KEY, RECORDS, WORKLOADS
from tuner.engines.protocol.messages import MAX_LINE_BYTES
from tuner.native import metaschedule, reading
from tuner.native.lines import LONGEST_LINE_BYTES, Refused
from tuner.native.reading import Batch


def batches(content: bytes, tuner: Tuner = Tuner.AUTOTVM) -> list[Batch]:
    found = [json.dumps(message) for message in reading.messages(io.BytesIO(content), tuner)]
    assert all(len(each) < MAX_LINE_BYTES for each in found)
    return [Batch.of(json.loads(each)) for each in found]


def database(workloads: list[str], records: list[str]) -> bytes:
    file = io.BytesIO()
    metaschedule.write(file, *(io.BytesIO("\n".join(lines).encode()) for lines in (workloads, records)))
    return file.getvalue()


@pytest.mark.parametrize(("tuner", "lines"), [(Tuner.AUTOTVM, AUTOTVM), (Tuner.ANSOR, ANSOR)])
def test_records_are_the_same_after_their_way_through_json(tuner: Tuner, lines: list[str]) -> None:
    (batch,) = batches("\n".join(["nonsense", *lines]).encode(), tuner)
    read, _ = FORMATS[tuner.value]
    assert batch.records == tuple((number, read(line)) for number, line in enumerate(lines, 2))
    assert (batch.refused, batch.refused_count) == (((1, "not JSON"),), 1)


def test_the_workloads_of_metaschedule_come_first() -> None:
    workloads, records = batches(
        database(["[]", *WORKLOADS], ["[0" + RECORDS[0][2:], "[1" + RECORDS[0][2:]]), Tuner.METASCHEDULE
    )
    assert (workloads.file, workloads.definitions) == (metaschedule.WORKLOADS_FILE, {KEY: WORKLOADS[0]})
    assert workloads.refused == ((1, "not a workload of MetaSchedule"),)
    assert records.refused == ((1, "its workload was rejected"),)
    ((number, record),) = records.records
    assert (records.file, number, record.workload_key) == (metaschedule.RECORDS_FILE, 2, KEY)


def test_messages_stay_small() -> None:
    line = json.loads(AUTOTVM[0])
    line["config"]["more"] = "x" * 300_000
    found = batches("\n".join([json.dumps(line)] * 10).encode())
    assert [len(batch.records) for batch in found] == [3, 3, 3, 1]
    line["config"]["more"] = "x" * (LONGEST_LINE_BYTES - 20_000)
    (longest,) = batches(json.dumps(line).encode())
    assert longest.refused == ((1, f"longer than {MAX_LINE_BYTES - 64 * 1024} bytes of JSON"),)
    assert [len(batch.records) for batch in batches("\n".join(AUTOTVM * 300).encode())] == [500, 500, 200]


def test_a_million_rejected_lines_are_counted() -> None:
    (batch,) = batches(b"x\n" * 5000)
    assert batch.refused_count == 5000
    assert [number for number, _ in batch.refused] == list(range(1, 101))


def test_a_reason_is_short_and_unicode() -> None:
    line = AUTOTVM[0].replace('"llvm ', '"llvm -keys=' + r"\ud800" * 2000 + " ")
    ((_, reason),) = batches(line.encode())[0].refused
    reason.encode()
    assert len(reason) <= 6 * 1000


def test_lines_are_told_apart_and_numbered() -> None:
    content = b"a\n\n \r\n\xff\nb\r\n" + b"x" * (LONGEST_LINE_BYTES * 2 + 7) + b"\n" + "é".encode() + b"\nend"
    found = [(number, str(text), type(text)) for number, text in reading.lines(io.BytesIO(content))]
    assert [(number, text) for number, text, kind in found if kind is str] == [(1, "a"), (5, "b"), (7, "é"), (8, "end")]
    assert [number for number, _, kind in found if kind is Refused] == [4, 6]
