from __future__ import annotations

import errno
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from tests.support.api.factories import TOOLCHAINS, Service
from tests.support.api.scripted import ScriptedWorker
from tests.support.hostile.tars import hostile
from tests.support.tunesmith.commands import parsed
from tests.unit.tuner.native.test_formats import AUTOTVM, LINES, RECORDS
from tunesmith import errors
from tunesmith.cli.main import main
from tunesmith.client import Client
from tunesmith.record_files import METASCHEDULE_FILES
from tunesmith.transport import Transport

EXPORT = ["records", "export", "--tuner", "metaschedule", "--provenance", "imported"]
TARGET = "llvm -mcpu=skylake-avx512 -num-cores=2"


@pytest.fixture(autouse=True)
def _living(service: Service, url: str) -> None:
    assert url
    ScriptedWorker(service).beat(toolchains=tuple(TOOLCHAINS.values()))


@pytest.mark.parametrize(("tuner", "count"), [("autotvm", 4), ("ansor", 3)])
def test_a_log_goes_in_and_comes_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tuner: str, count: int
) -> None:
    log, out = LINES / f"{tuner}.jsonl", tmp_path / "out.json"
    report = parsed(capsys, "records", "import", log, "--tuner", tuner, "--target", TARGET)
    assert (report["imported"], report["refused"]) == (count, [])
    wanted = ["--tuner", tuner, "--target", TARGET, "--provenance", "imported", "-o", out]
    exported = parsed(capsys, "records", "export", *wanted)
    assert exported == {"path": str(out), "tuner": tuner, "provenance": "imported", "bytes": out.stat().st_size}
    assert out.read_text().split("\n") == [line for line in log.read_text().split("\n") if line] + [""]


def test_a_database_goes_in_and_comes_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert parsed(capsys, "records", "import", LINES, "--tuner", "metaschedule")["imported"] == 3
    for name in ("folder", "again/deeper"):
        parsed(capsys, *EXPORT, "-o", tmp_path / name)
        for file in METASCHEDULE_FILES:
            assert (tmp_path / name / file).read_text().split() == (LINES / file).read_text().split()
        assert len(list((tmp_path / name).iterdir())) == 2
    packed = tmp_path / "records.tar"
    parsed(capsys, *EXPORT, "-o", packed)
    with tarfile.open(packed) as archive:
        assert archive.getnames() == list(METASCHEDULE_FILES)
    assert parsed(capsys, "records", "import", packed, "--tuner", "metaschedule")["known_already"] == len(RECORDS)


@pytest.mark.parametrize("name", hostile())
def test_an_answer_that_is_no_archive_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    @contextmanager
    def answer(*_: object) -> Iterator[httpx.Response]:
        yield httpx.Response(200, content=hostile()[name])

    monkeypatch.setattr(Transport, "stream", answer)
    command = ["records", "export", "--tuner", "metaschedule", "-o", str(tmp_path / "folder")]
    started = time.monotonic()
    assert main(command) == 4
    assert "error[server_error]: the server's response is not a tar: " in capsys.readouterr().err
    # tarfile takes over a minute.
    assert time.monotonic() - started < 20
    assert not (tmp_path / "folder").exists()


def test_people_see_counts_and_reasons(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_text("\n".join([*AUTOTVM, *["nonsense"] * 12]))
    assert main(["records", "import", str(log), "--tuner", "autotvm"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "4 imported, 0 already stored, 12 rejected\n"
    assert "rejected line 5: not JSON" in captured.err
    assert "… and 2 more; see --json" in captured.err
    assert f"4 for {TARGET}" in captured.err


def test_imported_records_are_listed_withdrawn_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    parsed(capsys, "records", "import", LINES / "autotvm.jsonl", "--tuner", "autotvm")
    assert main(["records", "list", "--provenance", "imported"]) == 0
    header, first, *_ = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["ID", "PROVENANCE", "STATE", "LATENCY"]
    assert "imported by local  untried  1.111 ms claimed" in first
    identifier = first.split()[0]
    assert parsed(capsys, "records", "invalidate", identifier) == {"records": 1}
    assert [each["id"] for each in parsed(capsys, "records", "list", "--state", "invalidated")] == [identifier]
    assert main(["records", "delete", "--tuner", "autotvm", "--target", TARGET]) == 0
    assert capsys.readouterr().out == "4 deleted\n"
    assert main(["records", "list"]) == 0
    assert capsys.readouterr().err == "no records\n"
    assert main(["records", "delete"]) == 5
    assert "error[invalid_request]: no filter is set" in capsys.readouterr().err


def test_an_export_of_nothing_fails_and_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    kept = tmp_path / "autotvm"
    kept.write_text("a log of before")
    for tuner, name in (("autotvm", "autotvm"), ("metaschedule", "folder"), ("metaschedule", "packed.tar")):
        command = ["records", "export", "--tuner", tuner, "--target", "native", "-o", str(tmp_path / name)]
        assert main(command) == 5
        told = capsys.readouterr().err
        assert "error[invalid_input]: no record matches\nhint: " in told
        assert "the page /records" in told
    assert kept.read_text() == "a log of before"
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith((".records", "folder", "packed"))] == []


def test_an_import_that_takes_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["records", "import", str(LINES / "ansor.jsonl"), "--tuner", "autotvm"]) == 5
    captured = capsys.readouterr()
    assert captured.out.startswith("0 imported, 0 already stored, ")
    assert "error[invalid_input]: no record in" in captured.err
    assert "hint: Check that it is a log of autotvm" in captured.err


def test_what_is_wrong_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, code in (
        (["import", tmp_path / "none", "--tuner", "autotvm"], "unreadable_file"),
        (["import", tmp_path, "--tuner", "metaschedule"], "unreadable_file"),
        (["import", LINES / "ansor.jsonl", "--tuner", "nonsense"], "unknown_tuner"),
        (["export", "--tuner", "nonsense", "-o", tmp_path / "x"], "unknown_tuner"),
        (["export", "--tuner", "ansor", "-o", tmp_path / "no" / "x"], "unwritable_file"),
        (["export", "--tuner", "ansor", "-o", tmp_path], "unwritable_file"),
    ):
        assert main(["records", *map(str, arguments)]) == 5
        assert f"error[{code}]" in capsys.readouterr().err
    assert list(tmp_path.glob(".records*")) == []


def test_a_full_disk_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> Iterator[bytes]:
        raise OSError(errno.ENOSPC, "No space left on device")
        yield b""

    @contextmanager
    def answer(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(iter_bytes=full)

    monkeypatch.setattr(Transport, "stream", answer)
    assert main(["records", "export", "--tuner", "ansor", "-o", str(tmp_path / "x")]) == 5
    assert "error[unwritable_file]: cannot write" in capsys.readouterr().err
    assert list(tmp_path.glob(".records*")) == []


def test_the_client_reads_writes_and_lists(client: Client, tmp_path: Path) -> None:
    assert client.import_records(LINES / "ansor.jsonl", "ansor")["imported"] == 3
    assert [record["error"] for record in client.records("ansor")] == [None, None, "run_error"]
    assert len(list(client.records(valid_only=True, target=TARGET))) == 2
    out = client.export_records(tmp_path / "ansor.json", "ansor", valid_only=True, provenance="imported")
    assert len(out.read_text().splitlines()) == 2
    assert {(record["provenance"], record["owner"], record["state"]) for record in client.records()} == {
        ("imported", "local", "untried")
    }
    first, *others = client.records()
    assert client.invalidate_records(id=[first["id"]]) == 1
    assert [record["id"] for record in client.records(state="invalidated")] == [first["id"]]
    assert client.delete_records(tuner="ansor") == 1 + len(others)
    with pytest.raises(errors.RequestRejected, match="no filter is set"):
        client.delete_records()
    with pytest.raises(errors.RequestRejected):
        client.import_records(LINES / "ansor.jsonl", "metaschedule")
