"""Real builds whose outputs are changed on the way: none of them is published."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from domain.artifacts import Variant
from domain.jobs import JobState, Tuner
from domain.ports import Engine
from tests.support import models
from tests.support.worker.fixtures import Bench
from tests.support.worker.real import run_job
from tuner.host.settings import TunerSettings
from worker.engines import EngineOptions, InstalledEngines
from worker.pipeline.context import UNTUNED

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("real_engines")]

Fault = Callable[[list[float], list[float]], Sequence[float]]
"""Returns the wrong scores; also receives those of the run before."""

FAULTS: dict[str, Fault] = {
    "a scale off by 1e-3": lambda scores, _: [1.001 * score for score in scores],
    "a stale element": lambda scores, before: [*scores[:-1], before[-1] if before else 0.0],
}


class _Faulty:
    """An engine whose outputs are changed after each run."""

    def __init__(self, engine: Engine, fault: Fault, is_faulty: Callable[[str], bool]) -> None:
        self._engine, self._fault, self._is_faulty = engine, fault, is_faulty
        self._before: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def request(self, method: str, params: dict[str, Any], **more: Any) -> dict[str, Any]:
        answer = self._engine.request(method, params, **more)
        if method == "run" and self._is_faulty(Path(params["bundle"]).name):
            with _scores(Path(params["outputs"])) as scores:
                right = list(scores)
                scores[:] = self._fault(right, self._before)
                self._before = right
        return answer


@contextmanager
def _scores(path: Path) -> Iterator[list[float]]:
    """The float32 numbers of an ``.npz`` file with one array; changes are written."""
    with zipfile.ZipFile(path) as archive:
        [name] = archive.namelist()
        content = archive.read(name)
    start = 10 + int.from_bytes(content[8:10], "little")
    shape = f"<{(len(content) - start) // 4}f"
    numbers = list(struct.unpack(shape, content[start:]))
    yield numbers
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, content[:start] + struct.pack(shape, *numbers))
    path.write_bytes(made.getvalue())


@dataclass(frozen=True, kw_only=True)
class _Engines(InstalledEngines):
    fault: Fault
    is_faulty: Callable[[str], bool]
    """By the name of a build's folder."""

    def start(self, name: str, given: EngineOptions) -> Engine:
        engine = super().start(name, given)
        return engine if name == "onnx" else _Faulty(engine, self.fault, self.is_faulty)


def _run(bench: Bench, fault: Fault, is_faulty: Callable[[str], bool]) -> str:
    engines = _Engines(home=bench.home, settings=TunerSettings(), fault=fault, is_faulty=is_faulty)
    shapes = {"image": (1, 3, 16, 16)}
    job = bench.job(trials=4, content=models.small_network(), input_shapes=shapes, tuner=Tuner.AUTOTVM)
    run_job(bench, job, engines)
    return job


@pytest.mark.parametrize("fault", FAULTS)
def test_no_wrong_build_is_published(bench: Bench, fault: str) -> None:
    job = _run(bench, FAULTS[fault], lambda _: True)
    ended = bench.get(job)
    assert ended.failure is not None
    assert (ended.state, ended.failure.code, ended.artifact_id) == (JobState.FAILED, "verification_failed", None)


def test_a_wrong_tuned_build_loses_to_the_right_untuned_one(bench: Bench) -> None:
    job = _run(bench, FAULTS["a scale off by 1e-3"], lambda folder: not folder.startswith(UNTUNED))
    report = bench.report(job)
    assert report.published is Variant.UNTUNED
    assert not report.verifications[Variant.TUNED].passed
