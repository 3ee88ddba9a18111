"""Rows of a data set from the request to the report, with scripted engines."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.artifacts import Variant
from domain.data_sets import DataFacts
from domain.jobs import JobState, Precision
from domain.models import TensorSpec
from storage import data_sets
from tests.integration.worker.test_engines import run
from tests.support.storage.factories import NOW
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO, RELAX
from tuner.results import verification

SECRET = b"a user's rows"


@pytest.fixture
def data(bench: Bench) -> str:
    """A data set of forty rows, as the scripted model takes them."""
    blob = bench.blobs.put([SECRET])
    facts = DataFacts(arrays=(TensorSpec(name="x", dtype="float32", shape=(40, 3, 8, 8)),), rows=40)
    with bench.database.transaction() as session:
        made = data_sets.add(
            session, digest=blob.digest, name="val", owner="local", size_bytes=13, facts=facts, now=NOW
        )
    return made.id


def _rows(bench: Bench, method: str, field: str) -> list[Any]:
    """Files of rows among those that the engines were asked about."""
    return [each for each in bench.script.asked(method) if Path(str(each[field])).name.startswith("rows-")]


def test_f32_is_compared_on_seeds_and_on_rows_which_are_timed(bench: Bench, data: str) -> None:
    job = run(bench, data=data)
    assert bench.get(job).state is JobState.SUCCEEDED
    report = bench.report(job)
    assert report.data is not None
    assert (report.data.name, report.data.rows, report.data.calibration_rows) == ("val", 40, 0)
    assert report.data.judging_rows == 40
    for found in report.verifications.values():
        assert found.seeds == verification.SEEDS
        assert found.rows is not None
        assert (found.rows.rows, found.rows.elements) == (verification.MOST_ROWS_OF_F32, 8 * 32)
        assert len(found.rows.worst) == 5
        assert found.rows.labelled is None
    [perturbed] = bench.script.asked("run_perturbed")
    assert len(perturbed["inputs"]) == 3 + verification.MOST_ROWS_OF_F32
    timed = {Path(each["inputs"]).name for each in bench.script.asked("time")}
    assert timed == {"rows-0.npz"}


def test_narrower_precisions_are_judged_by_rows_that_did_not_calibrate(bench: Bench, data: str) -> None:
    bench.script.hellos, bench.script.precisions = {"relax": RELAX, "onnx": HELLO}, {"relax": ["f32", "bf16", "int8"]}
    bench.script.labelled = True
    job = run(bench, data=data, precision=Precision.INT8)
    report = bench.report(job)
    [asked] = bench.script.asked("quantize")
    calibrated = {Path(path).name for path in asked["inputs"]}
    assert len(calibrated) == 10
    judged = {Path(each["inputs"]).name for each in _rows(bench, "run", "inputs")}
    assert len(judged) == 30
    assert not judged & calibrated
    tuned = report.verifications[Variant.TUNED]
    assert (tuned.seeds, tuned.precision) == ((), "int8")
    assert tuned.rows is not None
    assert tuned.rows.rows == 30
    assert tuned.rows.labelled is not None
    assert (tuned.rows.labelled.reference, tuned.rows.labelled.build, tuned.rows.labelled.count) == (1.0, 1.0, 30)
    assert report.data is not None
    assert (report.data.calibration_rows, report.data.judging_rows) == (10, 30)
    assert any("10 rows of the data set" in sentence for sentence in report.choice)


def test_a_build_that_loses_labels_is_not_published(bench: Bench, data: str) -> None:
    bench.script.hellos, bench.script.precisions = {"relax": RELAX, "onnx": HELLO}, {"relax": ["f32", "int8"]}
    bench.script.labelled, bench.script.wrong_on_labels = True, frozenset({"int8"})
    failure = bench.failure(run(bench, data=data, precision=Precision.INT8))
    assert failure.code == "accuracy_not_met"
    assert "top-1 on the labels falls by 100.0%; 1% are allowed" in failure.message


def test_rows_never_enter_a_bundle_or_a_log(bench: Bench, data: str) -> None:
    job = run(bench, data=data)
    digest = bench.artifact(job).digest
    with bench.blobs.local(digest) as path:
        assert SECRET not in path.read_bytes()
        with tarfile.open(path) as bundle:
            names = bundle.getnames()
            evidence = json.load(bundle.extractfile("evidence.json"))  # type: ignore[arg-type]
            readme = bundle.extractfile("README.md").read().decode()  # type: ignore[union-attr]
    assert not [name for name in names if "rows" in name or name.endswith(".npz")]
    assert evidence["data"]["name"] == "val"
    assert "on rows of the data set `val`" in readme
    assert not [note for note in bench.notes(job) if SECRET.decode() in note]


def test_a_job_that_is_retried_without_its_data_set_says_so(bench: Bench, data: str) -> None:
    with bench.database.transaction() as session:
        data_sets.delete(session, data_sets.of_job(session, data), now=NOW)
    failure = bench.failure(run(bench, data=data))
    assert (failure.code, bool(failure.hint)) == ("data_set_deleted", True)


def test_labels_that_are_no_classes_end_the_job_with_their_code(bench: Bench, data: str) -> None:
    bench.script.labelled = True

    def refuse(method: str, params: dict[str, Any]) -> None:
        if method == "compare" and "labels" in params:
            raise errors.EngineRequestFailed("data_mismatch", "label 7 is no class of an output with 7 classes")

    bench.script.refuse = refuse
    failure = bench.failure(run(bench, data=data))
    assert (failure.code, bool(failure.hint)) == ("data_mismatch", True)
    assert "label 7 is no class" in failure.message
