"""The host reads what engines and TVM write as they do, and plain TVM reads what the host writes."""

from __future__ import annotations

import io
import json
import statistics
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.records import record_files
from domain.jobs import Tuner
from domain.records import Provenance
from domain.targets import Device, Toolchain
from storage.database import Database, migrate
from storage.record_filters import RecordFilter
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import workload
from tests.unit.tuner.native.test_formats import ANSOR, AUTOTVM, LINES
from tuner.host.record_reading import RecordReader
from tuner.host.session import EngineSession
from tuner.host.settings import TunerSettings
from tuner.native import ansor, autotvm, metaschedule
from tuner.native.importing import RecordOrigin

pytestmark = pytest.mark.engine

THREADS = 1
READERS = {"autotvm": autotvm.read, "ansor": ansor.read, "metaschedule": metaschedule.read}

PLAIN = {
    "autotvm": """
import json, sys
from tvm import autotvm
pairs = list(autotvm.record.load_from_file(sys.argv[1]))
history = autotvm.apply_history_best(sys.argv[1])
found = [history._query_inside(each.target, each.task.workload) for each, result in pairs if result.error_no == 0]
rewritten = [autotvm.record.encode(*pair) for pair in pairs]
print(json.dumps({"read": len(pairs), "found": sum(each is not None for each in found), "rewritten": rewritten}))
""",
    "ansor": """
import json, sys
from tvm import auto_scheduler
from tvm.auto_scheduler import measure_record
pairs = list(auto_scheduler.load_records(sys.argv[1]))
history = auto_scheduler.ApplyHistoryBest(sys.argv[1])
rewritten = [str(measure_record.dump_record_to_string(*pair)).strip() for pair in pairs]
found = sum(len(shapes) for by_key in history.best_by_targetkey.values() for shapes in by_key.values())
print(json.dumps({"read": len(pairs), "found": found, "rewritten": rewritten}))
""",
    "metaschedule": """
import json, sys
from tvm.s_tir import meta_schedule
database = meta_schedule.database.JSONDatabase(work_dir=sys.argv[1])
every = list(database.get_all_tuning_records())
[best] = database.get_top_k(database.commit_workload(every[0].workload.mod), 1)
seconds = [float(each) for each in best.run_secs]
print(json.dumps({"read": len(database), "found": 1, "rewritten": [], "seconds": sum(seconds) / len(seconds)}))
""",
}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path / 'db.sqlite3'}")
    migrate(made)
    yield made
    made.close()


@pytest.fixture(scope="module", params=READERS)
def tuner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest, tuner: str) -> EngineSession:
    found: EngineSession = request.getfixturevalue(Tuner(tuner).engine)
    return found


@pytest.fixture(scope="module")
def tuned(
    tuner: str, engine: EngineSession, prepared: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str | None, list[dict[str, Any]]]:
    """The target, the definition and the trials of one round for the network's first task."""
    folder = tmp_path_factory.mktemp(tuner)
    target = f"llvm -mcpu={engine.hello['mcpu']}"
    place = {"model": str(prepared), "target": target, "threads": THREADS, "tuner": tuner, "options": {}}
    task = engine.request("extract", {**place, "out_dir": str(folder)}, timeout=200)["tasks"][0]
    measure = {**asking.MEASURE, "repeat": 2}
    # A search of its own: others in this session begin anew.
    options = {"n_trial": 1100}
    params = workload(place, task, folder)
    _, trials = asking.tune(engine, params, folder / "j", trials=4, measure=measure, options=options)
    return target, Path(params["task"]).read_text() if "task" in params else None, trials


def origin(tuner: str, engine: EngineSession) -> RecordOrigin:
    toolchain = Toolchain(**engine.hello["toolchain"])
    device = Device(key="this/t1", name="this", threads=THREADS)
    return RecordOrigin(tuner=Tuner(tuner), toolchain=toolchain, device=device, device_is_exact=False)


def test_an_engine_s_trial_is_the_same_candidate_when_it_is_imported(
    tuner: str, tuned: tuple[str, str | None, list[dict[str, Any]]]
) -> None:
    target, _, trials = tuned
    assert len(trials) == 4
    for trial in trials:
        found = READERS[tuner](trial["schedule"])
        assert found.workload_key == trial["workload_key"]
        assert found.schedule_digest == trial["schedule_digest"]
        assert (found.target, found.threads) == (target, THREADS)
        assert found.latencies == pytest.approx(tuple(trial["latencies"]), rel=1e-5)
        assert (found.error is None) == (trial["error"] is None)


def test_plain_tvm_reads_what_was_imported_and_exported(
    tuner: str,
    engine: EngineSession,
    tuned: tuple[str, str | None, list[dict[str, Any]]],
    database: Database,
    tmp_path: Path,
) -> None:
    target, definition, trials = tuned
    lines = [trial["schedule"].strip() for trial in trials]
    content = "\n".join(lines).encode() if tuner != "metaschedule" else packed(str(definition), lines)
    report = take(database, replace(origin(tuner, engine), target=target), content, tmp_path)
    assert (report.imported, report.refused) == (len(lines), [])
    written = export(database, tuner, tmp_path)
    read = asking.told_inside(Tuner(tuner).engine, PLAIN[tuner], written)
    assert read["read"] == len(lines)
    assert read["found"] >= 1
    if read["rewritten"]:
        assert [json.loads(line) for line in read["rewritten"]] == [json.loads(line) for line in lines]
    else:
        fastest = min(statistics.mean(trial["latencies"]) for trial in trials if not trial["error"])
        assert read["seconds"] == pytest.approx(fastest, rel=1e-5)


def origin_of_two(tuner: str, toolchain: Toolchain) -> RecordOrigin:
    device = Device(key="this/t2", name="this", threads=2)
    return RecordOrigin(tuner=Tuner(tuner), toolchain=toolchain, device=device, device_is_exact=True)


@pytest.mark.parametrize(("tuner_", "lines"), [("autotvm", AUTOTVM), ("ansor", [line for line in ANSOR if line])])
def test_what_tvm_wrote_is_exported_as_it_was(
    tuner_: str, lines: list[str], database: Database, tmp_path: Path
) -> None:
    place = origin_of_two(tuner_, Toolchain(engine="relay", tvm="0.19.0", llvm="22"))
    assert take(database, place, "\n".join(lines).encode(), tmp_path).imported == len(lines)
    written = export(database, tuner_, tmp_path)
    assert written.read_text().splitlines() == lines


def test_a_database_that_tvm_wrote_is_exported_as_it_was(database: Database, tmp_path: Path) -> None:
    place = origin_of_two("metaschedule", Toolchain(engine="relax", tvm="0.27.0", llvm="22"))
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in (metaschedule.WORKLOADS_FILE, metaschedule.RECORDS_FILE):
            archive.add(LINES / name, name)
    assert take(database, place, file.getvalue(), tmp_path).imported == 3
    written = export(database, "metaschedule", tmp_path)
    for name in (metaschedule.WORKLOADS_FILE, metaschedule.RECORDS_FILE):
        assert (written / name).read_text().split("\n") == [*(LINES / name).read_text().strip().split("\n"), ""]
    read = asking.told_inside("relax", PLAIN["metaschedule"], written)
    assert (read["read"], read["found"]) == (3, 1)


def take(database: Database, place: RecordOrigin, content: bytes, folder: Path) -> record_files.Imported:
    (folder / "import").write_bytes(content)
    reader = RecordReader(home=folder, settings=TunerSettings())
    return record_files.take(database, place, folder / "import", reader.read, owner="local")


def packed(definition: str, lines: list[str]) -> bytes:
    key = str(json.loads(definition)[0])
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, text in (
            (metaschedule.WORKLOADS_FILE, definition),
            (metaschedule.RECORDS_FILE, "\n".join(metaschedule.with_positions(lines, {key: 0}))),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return file.getvalue()


def export(database: Database, tuner: str, folder: Path) -> Path:
    """The file, or for MetaSchedule the folder, that TVM reads."""
    wanted = RecordFilter(tuner=tuner, provenance=Provenance.IMPORTED)
    if tuner != "metaschedule":
        path = folder / "records.json"
        path.write_bytes(b"".join(record_files.lines(database, wanted)))
        return path
    content = io.BytesIO(b"".join(record_files.database_tar(database, wanted)))
    with tarfile.open(fileobj=content) as archive:
        archive.extractall(folder / "database", filter="data")
    return folder / "database"
