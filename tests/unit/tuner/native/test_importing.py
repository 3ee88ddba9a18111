from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from domain import errors
from domain.jobs import Tuner
from domain.records import ImportedRecord, ImportState
from domain.targets import Device, Toolchain
from tests.support.hostile.tars import hostile, packed
from tests.unit.tuner.native.test_formats import ANSOR, AUTOTVM, FORMATS, METASCHEDULE, RECORDS, WORKLOADS
from tuner.native import importing, metaschedule
from tuner.native.importing import RecordOrigin
from tuner.native.lines import Refused

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ORIGIN = RecordOrigin(
    tuner=Tuner.AUTOTVM,
    toolchain=Toolchain(engine="relay", tvm="0.19.0", llvm="22.1.8"),
    device=Device(key="AMD EPYC/avx2/t8", name="AMD EPYC", threads=8),
    device_is_exact=False,
)


def read(line: str, origin: RecordOrigin, *, now: datetime) -> ImportedRecord:
    found = FORMATS[origin.tuner.value][0](line)
    return importing.record(found, origin, owner="ann", now=now)


def test_a_line_becomes_a_record_of_its_own_target_and_threads() -> None:
    record = read(AUTOTVM[0], ORIGIN, now=NOW)
    assert record.key.target == "llvm -mcpu=skylake-avx512 -num-cores=2"
    assert record.key.device_key == "AMD EPYC/avx2/t2"
    assert record.key.toolchain == "relay/tvm-0.19.0/llvm-22.1.8"
    assert (record.tuner, record.schedule, record.owner) == ("autotvm", AUTOTVM[0], "ann")
    assert (record.state, record.job_id, record.imported_at) == (ImportState.UNTRIED, None, NOW)
    for tuner, line in ((Tuner.ANSOR, ANSOR[0]), (Tuner.METASCHEDULE, METASCHEDULE[0])):
        other = read(line, replace(ORIGIN, tuner=tuner), now=NOW)
        assert other.key.target == record.key.target
    assert other.finished_at == NOW


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target": "llvm -mcpu=znver3"}, "measured for 'llvm -mcpu=skylake-avx512', not for 'llvm -mcpu=znver3'"),
        ({"threads": 1}, "measured with 2 threads, not 1"),
        ({"device_is_exact": True}, "2 threads, unlike 'AMD EPYC/avx2/t8'"),
        ({"toolchain": replace(ORIGIN.toolchain, tvm="0.18.0")}, "measured with TVM 0.19.0, not 0.18.0"),
        ({"tuner": Tuner.ANSOR}, "not a line of Ansor"),
    ],
)
def test_a_line_of_something_else_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        read(AUTOTVM[0], replace(ORIGIN, **changes), now=NOW)  # type: ignore[arg-type]


def test_threads_are_told_by_the_line_or_the_caller() -> None:
    silent = AUTOTVM[0].replace(" -num-cores=2", "")
    with pytest.raises(Refused, match="set threads"):
        read(silent, ORIGIN, now=NOW)
    record = read(silent, replace(ORIGIN, threads=4), now=NOW)
    assert record.key.target == "llvm -mcpu=skylake-avx512 -num-cores=4"


def test_an_archive_holds_both_files() -> None:
    file = io.BytesIO()
    metaschedule.write(file, io.BytesIO("\n".join(WORKLOADS).encode()), io.BytesIO("\n".join(RECORDS).encode()))
    file.seek(0)
    workloads, records = metaschedule.opened(file)
    assert workloads.read().decode().splitlines() == WORKLOADS
    assert records.read().decode().splitlines() == RECORDS
    both = packed({f"./db/{metaschedule.RECORDS_FILE}": b"r", metaschedule.WORKLOADS_FILE: b"w"})
    assert [part.read() for part in metaschedule.opened(io.BytesIO(both))] == [b"w", b"r"]


def link() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in (metaschedule.WORKLOADS_FILE, metaschedule.RECORDS_FILE):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(member)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a tar" * 1000,
        packed({}),
        packed({metaschedule.RECORDS_FILE: b""}),
        packed({metaschedule.RECORDS_FILE: b"", metaschedule.WORKLOADS_FILE: b"", "other": b""}),
        packed({str(number): b"" for number in range(20)}),
        packed({f"a/{metaschedule.RECORDS_FILE}": b"", f"b/{metaschedule.RECORDS_FILE}": b""}),
        link(),
        *hostile().values(),
    ],
    ids=lambda content: f"{len(content)} bytes",
)
def test_anything_else_is_no_archive(content: bytes) -> None:
    with pytest.raises(errors.InvalidRequest, match="tar"):
        metaschedule.opened(io.BytesIO(content))


def test_a_cut_archive_is_refused() -> None:
    whole = packed({metaschedule.WORKLOADS_FILE: b"w" * 5000, metaschedule.RECORDS_FILE: b"r" * 5000})
    for size in range(0, len(whole), 500):
        try:
            assert [len(part.read()) for part in metaschedule.opened(io.BytesIO(whole[:size]))] == [5000, 5000]
        except errors.InvalidRequest:
            assert size < len(whole) - 512
