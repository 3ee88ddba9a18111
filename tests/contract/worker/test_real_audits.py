"""A record that computes something else, and a real engine that finds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from domain.artifacts import Variant
from domain.jobs import Tuner
from domain.ports import Engine
from domain.records import Record, TrialError
from storage import records
from tests.support import models
from tests.support.worker.fixtures import Bench
from tests.support.worker.hearing import HeardEngine
from tests.support.worker.real import publish
from tuner.host.settings import TunerSettings
from tuner.native import autotvm
from worker.engines import EngineOptions, InstalledEngines

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("real_engines")]

DENSE = ["dense_nopack.x86", [["TENSOR", [1, 16], "float32"], ["TENSOR", [5, 16], "float32"], None, "float32"]]


@dataclass(frozen=True, kw_only=True)
class Engines(InstalledEngines):
    """Real ones, whose trials are heard."""

    hear: Callable[[], None]

    def start(self, name: str, given: EngineOptions) -> Engine:
        def listen(kind: str, _: dict[str, Any]) -> None:
            if kind == "trial":
                self.hear()

        return HeardEngine(super().start(name, given), listen)


def _leaving_work_out(other: Record) -> Record:
    """Of 16 products of the network's dense layer a tile of 3 adds up 15; its record says that it is very fast."""
    line = json.loads(other.schedule)
    line["input"] = [line["input"][0], *DENSE, {}]
    line["config"]["entity"] = [["tile_y", "sp", [-1, 1]], ["tile_x", "sp", [-1, 1]], ["tile_k", "sp", [-1, 3]]]
    line["result"][0] = [1e-9]
    read = autotvm.read(json.dumps(line))
    return replace(
        other,
        key=replace(other.key, workload_key=read.workload_key),
        job_id="j-elsewhere",
        schedule=read.schedule,
        schedule_digest=read.schedule_digest,
        latencies=read.latencies,
    )


def test_a_poisoned_record_is_found_and_costs_no_other_gain(bench: Bench) -> None:
    job_id = bench.job(
        trials=4, content=models.small_network(), input_shapes={"image": (1, 3, 16, 16)}, tuner=Tuner.AUTOTVM
    )

    def poison() -> None:
        own = [record for record in bench.records(job_id) if record.latencies]
        if own and not bench.records("j-elsewhere"):
            with bench.database.transaction() as session:
                records.add(session, [_leaving_work_out(own[0])])

    artifact = publish(bench, job_id, Engines(home=bench.home, settings=TunerSettings(), hear=poison))
    assert any("were invalidated: 1" in note for note in bench.notes(job_id)), bench.notes(job_id)
    assert artifact.report.verifications[Variant.TUNED].passed
    (stored,) = bench.records("j-elsewhere")
    assert (stored.error, stored.latencies) == (TrialError.WRONG_RESULT, ())
    assert autotvm.read(stored.schedule).error is TrialError.WRONG_RESULT
