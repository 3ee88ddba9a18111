"""The profile of the published build: made after the benchmark, and never the reason that a job fails."""

from __future__ import annotations

import json
import tarfile
from typing import Any

import pytest

from domain import errors
from domain.jobs import JobState
from domain.profiles import Peak
from domain.stage_results import BenchmarkResult
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO
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


def test_a_failed_profile_is_a_note(bench: Bench) -> None:
    def refuse(method: str, params: dict[str, Any]) -> None:
        if method == "profile" and params["engine"] == "onnx":
            raise errors.EngineRequestFailed("run_failed", "no memory")

    bench.script.refuse = refuse
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
