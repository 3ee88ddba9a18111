"""A real engine that reads whatever it is asked for finds, of everybody's files, those of its own job alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from domain import errors
from domain.models import ModelFormat
from domain.ports import Engine
from tests.support import models
from tests.support.tuner import sandboxed
from tuner.host.extraction import InstalledPlanner
from tuner.host.inspection import Inspector
from tuner.host.settings import TunerSettings
from tuner.sandbox import limits, probing
from worker.engines import EngineOptions, InstalledEngines

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("real_engines")]


@pytest.fixture(params=["as this host sandboxes", "without namespaces"], autouse=True)
def _sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without namespaces":
        sandboxed.weaken(monkeypatch, [sandboxed.NO_NAMESPACES])
    if not probing.probe().files:
        pytest.skip("this kernel has neither mount namespaces nor Landlock")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TUNESMITH_BLOB_URL", raising=False)
    home = tmp_path / "home"
    for name in ("work/mine", "work/theirs", "blobs/ab", "logs/jobs"):
        (home / name).mkdir(parents=True)
    for name in ("work/mine/prepared", "work/theirs/prepared", "blobs/ab/given", "blobs/ab/other", "logs/jobs/theirs"):
        (home / f"{name}.onnx").write_bytes(models.small_network())
    return home


@pytest.fixture
def of_job(home: Path) -> Iterator[Engine]:
    with closing(_start(home, EngineOptions(log=home / "logs/jobs/mine.log", folder=home / "work/mine"))) as engine:
        yield engine


def _start(home: Path, options: EngineOptions) -> Engine:
    return InstalledEngines(home=home, settings=TunerSettings()).start("onnx", options)


def _reads(engine: Engine, path: Path) -> bool:
    assert path.is_file()
    try:
        return bool(engine.request("inspect", {"path": str(path)}, timeout=60)["inputs"])
    except errors.EngineRequestFailed:
        return False


def test_the_engine_of_a_job(of_job: Engine, home: Path) -> None:
    mine = home / "work" / "mine"
    assert _reads(of_job, mine / "prepared.onnx")
    for other in ("work/theirs/prepared", "blobs/ab/given", "logs/jobs/theirs"):
        assert not _reads(of_job, home / f"{other}.onnx"), other


def test_a_link_in_place_of_the_jobs_folder_leads_nowhere(home: Path) -> None:
    """As an engine that was taken over may leave it to the next one, where it is kept from files by Landlock alone."""
    mine = home / "work" / "mine"
    mine.rename(home / "work" / "moved")
    mine.symlink_to(home, target_is_directory=True)
    with closing(_start(home, EngineOptions(log=home / "logs/jobs/mine.log", folder=mine))) as engine:
        for other in ("work/theirs/prepared", "blobs/ab/given", "logs/jobs/theirs", "work/mine/blobs/ab/given"):
            assert not _reads(engine, home / f"{other}.onnx"), other


def test_what_either_side_writes_later_the_other_reads(of_job: Engine, home: Path) -> None:
    mine = home / "work" / "mine"
    (mine / "sub").mkdir()
    (mine / "sub" / "later.onnx").write_bytes(models.small_network())
    assert _reads(of_job, mine / "sub" / "later.onnx")
    written = mine / "sub" / "prepared.onnx"
    shapes = {"image": [1, 3, 16, 16]}
    given = {"path": str(mine / "prepared.onnx"), "input_shapes": shapes, "out_path": str(written)}
    of_job.request("prepare", given, timeout=60)
    assert written.stat().st_size > 0


def test_an_engine_of_no_job(home: Path) -> None:
    with closing(_start(home, EngineOptions(log=home / "logs" / "engines.log"))) as engine:
        assert not _reads(engine, home / "work" / "mine" / "prepared.onnx")


def test_preparing_a_model_of_the_store(home: Path) -> None:
    engines = InstalledEngines(home=home, settings=TunerSettings())
    out = home / "work" / "mine" / "made.onnx"
    given = home / "blobs" / "ab" / "given.onnx"
    engines.prepare(given, {"image": (1, 3, 16, 16)}, out, log=home / "logs" / "jobs" / "mine.log")
    assert out.stat().st_size > 0


def test_who_reads_an_upload_sees_that_one(home: Path) -> None:
    hidden = limits.hideable(home / "blobs", home)
    inspector = Inspector.installed(ModelFormat.ONNX, home, TunerSettings(), hidden=hidden)
    given = home / "blobs" / "ab" / "given.onnx"
    assert inspector.inspect(given).inputs
    with inspector._engine(given, None) as engine:
        assert _reads(engine, given)
        for other in ("blobs/ab/other", "work/theirs/prepared", "logs/jobs/theirs"):
            assert not _reads(engine, home / f"{other}.onnx"), other


def test_who_makes_a_plan_sees_nothing_of_the_store(home: Path, tmp_path: Path) -> None:
    planner = InstalledPlanner(home=home, settings=TunerSettings(), hidden=limits.hideable(home / "blobs", home))
    prepared = tmp_path / "prepared.onnx"
    planner.prepare(home / "blobs" / "ab" / "given.onnx", {"image": (1, 3, 16, 16)}, prepared)
    with closing(planner.start("onnx", tmp_path, lambda: False)) as engine:
        assert _reads(engine, prepared)
        assert not _reads(engine, home / "blobs" / "ab" / "given.onnx")
