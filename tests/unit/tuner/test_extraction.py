"""Real engines, with the limits that a plan sets them, and what becomes of their refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain import errors
from domain.jobs import Precision, Tuner, TunerOptions
from domain.ports import Canceled
from domain.targets import Target
from tests.support import models
from tests.support.tuner.fakes import FakeEngine
from tuner.engines.protocol.serving import EngineFailure
from tuner.host.extraction import InstalledPlanner, Questions, questions
from tuner.host.settings import TunerSettings
from tunesmith import connection


def never() -> bool:
    return False


def refuse(_params: object, _emit: object) -> dict[str, object]:
    raise EngineFailure("unsupported_operators", "it lacks Foo", details={"operators": {"Foo": 1}})


def test_a_refusal_is_the_callers_error(tmp_path: Path) -> None:
    asking = Questions(FakeEngine({"check": refuse}), folder=tmp_path, seconds=5, canceled=never)
    with pytest.raises(errors.UnsupportedOperators) as caught:
        asking.check(tmp_path / "m.onnx")
    assert caught.value.details == {"operators": {"Foo": 1}}


def test_whoever_asks_may_stop(tmp_path: Path) -> None:
    engine = FakeEngine({"check": lambda params, emit: {"operators": {}}})
    asking = Questions(engine, folder=tmp_path, seconds=5, canceled=lambda: True)
    with pytest.raises(Canceled):
        asking.check(tmp_path / "m.onnx")


@pytest.fixture
def planner() -> InstalledPlanner:
    return InstalledPlanner(home=connection.home(), settings=TunerSettings())


@pytest.mark.engine
@pytest.mark.parametrize("tuner", [Tuner.AUTOTVM, Tuner.ANSOR, Tuner.METASCHEDULE])
def test_an_engine_with_limits_finds_tasks(planner: InstalledPlanner, tmp_path: Path, tuner: Tuner) -> None:
    (tmp_path / "model.onnx").write_bytes(models.small_network())
    prepared = planner.prepare(tmp_path / "model.onnx", {"image": [1, 3, 16, 16]}, tmp_path / "prepared.onnx")
    with questions(planner, tuner.engine, never) as asking:
        target = Target(text=f"llvm -mcpu={asking.hello['mcpu']}", threads=1)
        assert asking.check(prepared.path, target)
        tasks, definitions = asking.extract(
            prepared.path, target, tuner, precision=Precision.F32, rewrite=True, options=TunerOptions()
        )
    assert len(tasks) >= 2
    assert all(task.flop > 0 and task.workload_key for task in tasks)
    assert set(definitions) == {task.workload_key for task in tasks if task.definition}
