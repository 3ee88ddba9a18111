"""The profile of the published build: made after the benchmark, and never the reason that a job fails."""

from __future__ import annotations

import json
import tarfile

import pytest

from domain import errors
from domain.artifacts import Runtime
from domain.jobs import JobState
from domain.profiles import Peak
from domain.stage_results import BenchmarkResult
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO, refusing
from worker.pipeline import profiling


@pytest.fixture(autouse=True)
def _libraries(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling.peaks, "measure", lambda _: Peak(flops=1e12))
    bench.script.hellos = {"relay": HELLO, "onnx": HELLO, "library": HELLO}
    bench.script.standalone = True


def test_the_published_build_is_profiled_beside_onnx_runtime(bench: Bench) -> None:
    job = bench.run()
    profile = bench.result(job, BenchmarkResult).profile
    assert profile is not None
    assert (profile.variant, profile.seconds, profile.reference_seconds) == ("tuned", 1e-3, 3e-3)
    [operator] = profile.operators
    assert (operator.name, operator.kernels, operator.loss) == ("/Conv", ("fused_conv2d",), pytest.approx(-1.5e-3))
    # The untuned build before the search, then the published one.
    assert [asked["engine"] for asked in bench.script.asked("profile")] == ["library", "library", "onnx"]
    with bench.blobs.open(bench.artifact(job).digest) as file, tarfile.open(fileobj=file) as bundle:
        member = bundle.extractfile("evidence.json")
        assert member is not None
        assert json.load(member)["profile"]["operators"][0]["name"] == "/Conv"


@pytest.fixture
def _openvino(bench: Bench) -> None:
    """It is installed."""
    bench.script.hellos["openvino"] = {**HELLO, "toolchain": {"engine": "openvino", "openvino": "2026.4.1"}}
    bench.options = {"benchmark_seconds": 5.0}


@pytest.mark.usefixtures("_openvino")
def test_openvino_is_profiled_if_it_is_one_of_the_runtimes(bench: Bench) -> None:
    profile = bench.result(bench.run(), BenchmarkResult).profile
    assert profile is not None
    assert profile.openvino_seconds == 3e-3
    assert [each.layers for each in profile.operators] == [("Convolution /Conv",)]
    narrowed = bench.result(bench.run(runtimes=(Runtime.TVM, Runtime.ONNXRUNTIME)), BenchmarkResult).profile
    assert narrowed is not None
    assert (narrowed.openvino_seconds, narrowed.operators[0].openvino_seconds) == (None, None)


@pytest.mark.usefixtures("_openvino")
@pytest.mark.parametrize("wrong", [True, False])
def test_without_a_profile_of_a_right_openvino_the_rest_remains(bench: Bench, wrong: bool) -> None:
    if wrong:
        bench.script.wrong = frozenset({"openvino"})
    else:
        error = errors.EngineRequestFailed("run_failed", "no memory")
        bench.script.refuse = refusing("profile", error, engine="openvino")
    job = bench.run()
    profile = bench.result(job, BenchmarkResult).profile
    assert profile is not None
    assert (profile.reference_seconds, profile.openvino_seconds) == (3e-3, None)
    assert ("OpenVINO was not profiled: no memory" in bench.notes(job)) is not wrong


def test_a_failed_profile_is_a_note(bench: Bench) -> None:
    error = errors.EngineRequestFailed("run_failed", "no memory")
    bench.script.refuse = refusing("profile", error, engine="onnx")
    job = bench.run()
    result = bench.result(job, BenchmarkResult)
    assert bench.get(job).state is JobState.SUCCEEDED
    assert (result.profile, result.unprofiled) == (None, "the profile failed: no memory")
    assert result.unprofiled in bench.notes(job)


@pytest.mark.parametrize(
    ("standalone", "seconds", "reason"), [(False, 1e-3, "needs TVM"), (True, 1.0, "taken too long")]
)
def test_what_cannot_be_profiled_says_why(bench: Bench, standalone: bool, seconds: float, reason: str) -> None:
    bench.script.standalone = standalone
    bench.script.run_seconds = {"reference": seconds, "untuned": 2 * seconds, "tuned": seconds}
    result = bench.result(bench.run(), BenchmarkResult)
    assert result.profile is None
    assert reason in result.unprofiled
    assert not bench.script.asked("profile")
