from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from domain import errors
from domain.jobs import Tuner
from domain.targets import Device, Toolchain
from tests.unit.tuner.native.test_formats import ANSOR, AUTOTVM, METASCHEDULE, RECORDS, WORKLOADS
from tuner.native import importing, metaschedule
from tuner.native.importing import Origin
from tuner.native.lines import LONGEST_LINE_BYTES, Refused

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ORIGIN = Origin(
    tuner=Tuner.AUTOTVM,
    toolchain=Toolchain(engine="relay", tvm="0.19.0", llvm="22.1.8"),
    device=Device(key="AMD EPYC/avx2/t8", name="AMD EPYC", threads=8),
    device_is_exact=False,
)


def test_a_line_becomes_a_record_of_its_own_target_and_threads() -> None:
    record = importing.read(AUTOTVM[0], ORIGIN, number=3, now=NOW)
    assert record.key.target == "llvm -mcpu=skylake-avx512 -num-cores=2"
    assert record.key.device_key == "AMD EPYC/avx2/t2"
    assert record.key.toolchain == "relay/tvm-0.19.0/llvm-22.1.8"
    assert (record.tuner, record.schedule, record.trial_number) == ("autotvm", AUTOTVM[0], 3)
    assert record.job_id.startswith("imported:")
    assert len(record.job_id) <= 40
    for tuner, line in ((Tuner.ANSOR, ANSOR[0]), (Tuner.METASCHEDULE, METASCHEDULE[0])):
        other = importing.read(line, replace(ORIGIN, tuner=tuner), number=0, now=NOW)
        assert other.key.target == record.key.target
        assert other.job_id == record.job_id
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
        importing.read(AUTOTVM[0], replace(ORIGIN, **changes), number=0, now=NOW)  # type: ignore[arg-type]


def test_threads_are_told_by_the_line_or_the_caller() -> None:
    silent = AUTOTVM[0].replace(" -num-cores=2", "")
    with pytest.raises(Refused, match="set threads"):
        importing.read(silent, ORIGIN, number=0, now=NOW)
    record = importing.read(silent, replace(ORIGIN, threads=4), number=0, now=NOW)
    assert record.key.target == "llvm -mcpu=skylake-avx512 -num-cores=4"


def test_lines_are_told_apart_and_numbered() -> None:
    content = b"a\n\n \r\n\xff\nb\r\n" + b"x" * (LONGEST_LINE_BYTES * 2 + 7) + b"\n" + "é".encode() + b"\nend"
    found = [(number, str(text), type(text)) for number, text in importing.lines(io.BytesIO(content))]
    assert [(number, text) for number, text, kind in found if kind is str] == [(1, "a"), (5, "b"), (7, "é"), (8, "end")]
    assert [number for number, _, kind in found if kind is Refused] == [4, 6]


def packed(files: dict[str, bytes]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    file.seek(0)
    return file


def test_an_archive_holds_both_files() -> None:
    file = io.BytesIO()
    metaschedule.write(file, io.BytesIO("\n".join(WORKLOADS).encode()), io.BytesIO("\n".join(RECORDS).encode()))
    file.seek(0)
    with metaschedule.opened(file) as (workloads, records):
        ((_, workload),) = importing.workloads(importing.lines(workloads))
        assert isinstance(workload, tuple)
        assert [text for _, text in importing.lines(records)] == RECORDS
    with metaschedule.opened(
        packed({f"./db/{metaschedule.RECORDS_FILE}": b"r", metaschedule.WORKLOADS_FILE: b"w"})
    ) as both:
        assert [part.read() for part in both] == [b"w", b"r"]


def link() -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in (metaschedule.WORKLOADS_FILE, metaschedule.RECORDS_FILE):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(member)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    "file",
    [
        io.BytesIO(b""),
        io.BytesIO(b"not a tar" * 1000),
        packed({}),
        packed({metaschedule.RECORDS_FILE: b""}),
        packed({metaschedule.RECORDS_FILE: b"", metaschedule.WORKLOADS_FILE: b"", "other": b""}),
        packed({str(number): b"" for number in range(20)}),
        packed({f"a/{metaschedule.RECORDS_FILE}": b"", f"b/{metaschedule.RECORDS_FILE}": b""}),
        link(),
    ],
)
def test_anything_else_is_no_archive(file: io.BytesIO) -> None:
    with pytest.raises(errors.InvalidRequest, match="tar"), metaschedule.opened(file):
        pass


def test_a_cut_archive_ends_early_or_is_refused() -> None:
    whole = packed({metaschedule.WORKLOADS_FILE: b"w" * 5000, metaschedule.RECORDS_FILE: b"r" * 5000}).getvalue()
    for size in range(0, len(whole), 500):
        try:
            with metaschedule.opened(io.BytesIO(whole[:size])) as both:
                assert all(len(part.read()) <= 5000 for part in both)
        except errors.InvalidRequest:
            assert size < len(whole) - 512
