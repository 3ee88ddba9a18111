"""Several builds for one job: the fastest one that is right is published, and the report shows all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.artifacts import Report, Runtime, Variant
from domain.jobs import Precision, RunnerKind, Tuner, TunerOptions
from tests.support.worker.fixtures import Bench, Killed
from tests.support.worker.scripted import BOTH, HELLO, RELAX, ScriptedEngine, refusing
from tuner.results import bundle
from tuner.results.manifest import Manifest, OtherRuntime
from tuner.search import racing
from worker.pipeline import verifying


@pytest.fixture(autouse=True)
def _large_budget(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tuners race, and the budget reaches for every build."""
    monkeypatch.setattr(racing, "IMPRESSION_TRIALS", 8)
    monkeypatch.setattr(racing, "RIVAL_TRIALS", 1)
    monkeypatch.setattr(racing, "SAVED_SECONDS", -1e6)
    bench.script.hellos = {"relay": {**HELLO, "tuners": ["autotvm", "ansor"]}, "onnx": HELLO}
    bench.script.space_size = 8
    bench.script.run_seconds = {
        "reference": 3e-3, "untuned": 2e-3, "tuned-autotvm": 1.5e-3, "tuned-rewritten-relay": 1.8e-3,
        "tuned-ansor": 1e-3,
    }  # fmt: skip


def run(bench: Bench, **request: Any) -> str:
    return bench.run(**{"trials": 32, **request})


def told(found: Report) -> dict[str, str]:
    return {each.name: each.verdict for each in found.portfolio}


def refuse_of(method: str, word: str) -> Callable[[str, dict[str, Any]], None]:
    """Requests about the build of this name fail."""

    def refuse(asked: str, params: dict[str, Any]) -> None:
        if asked == method and f"tuned-{word}" in str(params.get("bundle", params.get("out_dir", ""))):
            raise errors.EngineCrashed("relay engine: it was killed by SIGSEGV")

    return refuse


def test_the_fastest_build_is_published(bench: Bench) -> None:
    found = bench.report(run(bench))
    assert found.published is Variant.TUNED
    assert found.timings[Variant.TUNED].median == pytest.approx(1e-3)
    assert [each.name for each in found.portfolio] == [
        "ansor",
        "untuned relay",
        "onnxruntime",
        "autotvm",
        "rewritten relay",
    ]
    assert told(found) == {
        "ansor": "published",
        "untuned relay": "2.00× the time of the fastest",
        "onnxruntime": "3.00× the time of the published build",
        "autotvm": "1.50× the time of ansor in the comparison",
        "rewritten relay": "1.80× the time of ansor in the comparison",
    }
    ansor = found.portfolio[0]
    assert (ansor.tuner, ansor.records, ansor.verified, ansor.rewritten) == ("ansor", 2, True, True)
    assert ansor.trials >= 8


def test_a_faster_onnx_runtime_runs_the_bundle_beside_the_fastest_build(bench: Bench) -> None:
    bench.script.hellos["onnx"] = {**HELLO, "toolchain": {"engine": "onnx", "onnxruntime": "1.31.1"}}
    bench.script.run_seconds = {**bench.script.run_seconds, "reference": 0.5e-3}
    job_id = run(bench)
    found = bench.report(job_id)
    assert (found.runtime, found.runtime_version, found.published) == (Runtime.ONNXRUNTIME, "1.31.1", Variant.TUNED)
    assert (found.runtime_speedup_over_untuned, found.speedup_over_reference) == (pytest.approx(4.0), 0.5)
    assert [each.name for each in found.portfolio[:2]] == ["onnxruntime", "ansor"]
    assert (told(found)["onnxruntime"], told(found)["ansor"]) == (
        "runs the bundle: 0.50× the time of the published build", "published",
    )  # fmt: skip
    path = bench.blobs.path(bench.artifact(job_id).digest)
    opened = bundle.open_bundle(path, bench.home / "opened")
    assert opened.runtime == OtherRuntime(name="onnxruntime", version="1.31.1", model=bundle.PREPARED, threads=2)
    prepared = (bench.home / "opened" / bundle.PREPARED).read_bytes()
    assert hashlib.sha256(prepared).hexdigest() == opened.model_digest, "the scripted engine changes nothing"
    assert opened.files.keys() >= {"mod.so"}
    alone = bench.report(run(bench, runtimes=(Runtime.TVM,)))
    assert (alone.runtime, "onnxruntime" in told(alone)) == (Runtime.TVM, False)
    assert alone.summary.startswith("ONNX Runtime is still 2.00× as fast as tuned")


INSTALLED = {
    name: {**HELLO, "toolchain": {"engine": name, **versions}}
    for name, versions in {
        "onnx": {"onnxruntime": "1.31.1"},
        "library": {"onnxruntime": "1.31.1"},
        "openvino": {"openvino": "2026.4.1"},
    }.items()
}


@pytest.fixture
def raced(bench: Bench) -> Bench:
    """Both runtimes are installed, the model can be rewritten, and there is time to compare candidates."""
    bench.script.hellos |= INSTALLED
    bench.script.rewritings = {"lines": 1}
    bench.options = {"benchmark_seconds": 5.0}
    return bench


def opened(bench: Bench, job_id: str) -> Manifest:
    return bundle.open_bundle(bench.blobs.path(bench.artifact(job_id).digest), bench.home / "opened")


def test_a_faster_openvino_runs_the_bundle(raced: Bench) -> None:
    raced.script.run_seconds = {**raced.script.run_seconds, "openvino-rewritten-model": 0.25e-3, "openvino": 0.5e-3}
    job_id = run(raced)
    found = raced.report(job_id)
    assert (found.runtime, found.runtime_variant, found.published) == (
        Runtime.OPENVINO, Variant.OPENVINO, Variant.TUNED,
    )  # fmt: skip
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    assert (found.runtime_version, found.runtime_model, found.runtime_options) == (
        "2026.4.1", bundle.REWRITTEN, options,
    )  # fmt: skip
    assert found.verifications[Variant.OPENVINO].passed
    assert found.runtime_speedup_over_untuned == pytest.approx(8.0)
    assert told(found)["openvino, rewritten model"] == "runs the bundle: 0.25× the time of the published build"
    assert told(found)["openvino"] == "2.00× the time of openvino, rewritten model in the comparison"
    assert found.summary.startswith("OpenVINO is 4.00× as fast as tuned, so the bundle runs with it")
    manifest = opened(raced, job_id)
    assert manifest.runtime == OtherRuntime(
        name="openvino", version="2026.4.1", model=bundle.REWRITTEN, threads=2, options=options
    )
    assert (raced.home / "opened" / bundle.REWRITTEN).read_bytes() == b"rewritten a model"
    assert {each["runtime"] for each in raced.script.asked("run") if each["engine"] == "openvino"} == {"openvino"}
    narrowed = raced.report(run(raced, runtimes=(Runtime.TVM, Runtime.ONNXRUNTIME)))
    assert Variant.OPENVINO not in narrowed.timings


ABLE = {"relax": ["f32", "bf16", "int8"]}


@pytest.fixture
def narrow(raced: Bench) -> Bench:
    """Builds may be narrower than float32, and OpenVINO computes in bf16."""
    raced.script.precisions = ABLE
    raced.script.hellos["relax"] = RELAX
    raced.script.hellos["openvino"] = {**INSTALLED["openvino"], "precisions": ["f32", "bf16"]}
    raced.script.rewritings = {}
    return raced


def test_openvino_in_bf16_runs_the_bundle_of_a_job_that_considers_bf16(narrow: Bench) -> None:
    narrow.script.run_seconds = {**narrow.script.run_seconds, "openvino-bf16": 0.25e-3, "openvino": 0.5e-3}
    job_id = run(narrow, precision=Precision.BF16)
    found, options = narrow.report(job_id), {"INFERENCE_PRECISION_HINT": "bf16"}
    assert (found.runtime, found.runtime_precision, found.runtime_model, found.runtime_options) == (
        Runtime.OPENVINO, "bf16", bundle.PREPARED, options,
    )  # fmt: skip
    assert found.verifications[Variant.OPENVINO].precision == "bf16"
    assert found.summary.startswith("OpenVINO in bf16 is ")
    assert told(found)["openvino, bf16"].startswith("runs the bundle: ")
    assert {each.name: each.precision for each in found.portfolio}["openvino, bf16"] == "bf16"
    manifest = opened(narrow, job_id)
    assert manifest.runtime == OtherRuntime(
        name="openvino", version="2026.4.1", model=bundle.PREPARED, threads=2, precision="bf16", options=options
    )


@pytest.mark.parametrize("runtime", [Runtime.ONNXRUNTIME, Runtime.OPENVINO])
def test_runtimes_run_the_quantized_model_of_a_job_that_considers_int8(narrow: Bench, runtime: Runtime) -> None:
    narrow.script.run_seconds = {**narrow.script.run_seconds, f"{runtime}-int8": 0.25e-3}
    job_id = run(narrow, precision=Precision.INT8)
    found = narrow.report(job_id)
    assert (found.runtime, found.runtime_precision, found.runtime_model) == (runtime, "int8", bundle.QUANTIZED)
    manifest = opened(narrow, job_id)
    assert manifest.runtime is not None
    assert (manifest.runtime.model, manifest.runtime.precision) == (bundle.QUANTIZED, "int8")
    assert (narrow.home / "opened" / bundle.QUANTIZED).read_bytes().startswith(b"quantized")


def test_an_artifact_has_the_precision_that_its_runtime_computes_in(narrow: Bench) -> None:
    narrow.script.run_seconds = {**narrow.script.run_seconds, "openvino-bf16": 0.1e-3, "openvino": 0.5e-3}
    job_id = run(narrow, precision=Precision.AUTO)
    found = narrow.artifact(job_id)
    assert (found.precision, found.report.runtime_precision) == ("bf16", "bf16")
    assert opened(narrow, job_id).precision == found.report.precision


def test_jobs_in_f32_and_cpus_without_bf16_have_no_narrow_candidate(narrow: Bench) -> None:
    assert "openvino, bf16" not in told(narrow.report(run(narrow)))
    narrow.script.hellos["openvino"] = INSTALLED["openvino"]
    found = told(narrow.report(run(narrow, precision=Precision.BF16)))
    assert "openvino" in found
    assert "openvino, bf16" not in found


@pytest.mark.parametrize("name", ["openvino, bf16", "openvino, int8", "onnxruntime, int8"])
def test_a_narrow_runtime_that_is_not_accurate_does_not_compete(narrow: Bench, name: str) -> None:
    precision = name.split(", ")[1]
    narrow.script.run_seconds = {**narrow.script.run_seconds, name.replace(", ", "-"): 0.1e-3}
    narrow.script.inaccurate = frozenset({precision})
    found = narrow.report(run(narrow, precision=Precision.AUTO))
    assert told(found)[name].startswith("not accurate enough: output y is off by 40 % of its largest magnitude; the")
    assert precision not in (found.runtime_precision, found.narrowest)


def test_a_narrow_runtime_that_does_not_run_does_not_compete(narrow: Bench) -> None:
    error = errors.EngineRequestFailed("run_failed", "no such primitive")
    narrow.script.refuse = refusing("run", error, bundle="openvino-bf16")
    found = narrow.report(run(narrow, precision=Precision.BF16))
    assert told(found)["openvino, bf16"] == "does not run: no such primitive"
    assert found.runtime_precision == "f32"


def test_the_options_of_onnx_runtime_are_chosen_one_after_the_other(raced: Bench) -> None:
    raced.script.run_seconds = {
        **raced.script.run_seconds,
        "onnxruntime-rewritten-model": 2.5e-3,
        "onnxruntime-rewritten-model-no-arena": 0.5e-3,
    }
    job_id = run(raced)
    found = raced.report(job_id)
    assert (found.runtime, found.fastest) == (Runtime.ONNXRUNTIME, Variant.ONNXRUNTIME)
    assert (found.runtime_model, found.runtime_options) == (bundle.REWRITTEN, {"enable_cpu_mem_arena": "0"})
    verdicts = told(found)
    assert (
        verdicts["onnxruntime, rewritten model, no arena"] == "runs the bundle: 0.50× the time of the published build"
    )
    assert verdicts["onnxruntime"] == "3.00× the time of the published build"
    assert verdicts["onnxruntime, rewritten model"].startswith(
        "5.00× the time of onnxruntime, rewritten model, no arena"
    )
    assert {"onnxruntime, rewritten model, extended optimization", "onnxruntime, rewritten model, no spinning"} <= set(
        verdicts
    )
    manifest = opened(raced, job_id)
    assert manifest.runtime is not None
    assert manifest.runtime.options == {"enable_cpu_mem_arena": "0"}


def test_onnx_runtime_keeps_its_own_options_unless_others_are_faster(raced: Bench) -> None:
    raced.script.run_seconds = {**raced.script.run_seconds, "reference": 0.5e-3, "onnxruntime": 0.495e-3}
    found = raced.report(run(raced))
    assert (found.fastest, found.runtime_options) == (Variant.REFERENCE, {})
    assert Variant.ONNXRUNTIME not in found.timings


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(True, "wrong results: output y: NaN, infinite"), (False, "does not run: openvino engine: it was")],
)
def test_a_runtime_that_is_wrong_or_crashes_does_not_compete(raced: Bench, wrong: bool, said: str) -> None:
    raced.script.run_seconds = {**raced.script.run_seconds, "openvino": 0.5e-3}
    if wrong:
        raced.script.wrong = frozenset({"openvino"})
    else:
        error = errors.EngineCrashed("openvino engine: it was killed by SIGSEGV")
        raced.script.refuse = refusing("run", error, engine="openvino")
    found = raced.report(run(raced))
    assert (found.runtime, Variant.OPENVINO in found.timings) == (Runtime.TVM, False)
    assert told(found)["openvino"].startswith(said)


def test_a_runtime_that_crashes_in_the_benchmark_is_left_out(raced: Bench) -> None:
    raced.script.run_seconds = {**raced.script.run_seconds, "openvino": 0.5e-3}
    raced.script.rewritings = {}
    error = errors.EngineCrashed("openvino engine: it was killed by SIGSEGV")
    raced.script.refuse = refusing("time", error, engine="openvino")
    found = raced.report(run(raced))
    assert (found.runtime, found.published) == (Runtime.TVM, Variant.TUNED)
    assert told(found)["openvino"] == "not timed"


def test_runtimes_that_were_asked_for_and_are_not_installed_are_named(bench: Bench) -> None:
    job_id = run(bench, runtimes=(Runtime.TVM, Runtime.OPENVINO))
    assert "openvino does not compete: it is not installed on this worker" in bench.notes(job_id)


@pytest.mark.parametrize(("factor", "published"), [(1.0, "ansor"), (2.1, "untuned relay")])
def test_times_are_those_of_the_benchmark_however_the_race_went(
    bench: Bench, factor: float, published: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = verifying._race

    def on_a_busy_machine(*args: Any) -> Any:
        bench.script.speed = {"relay": 3.0}
        try:
            return race(*args)
        finally:
            bench.script.speed = {}

    monkeypatch.setattr(verifying, "_race", on_a_busy_machine)
    bench.script.run_seconds = {
        name: seconds * (factor if name.startswith("tuned") else 1.0)
        for name, seconds in bench.script.run_seconds.items()
    }
    found = bench.report(run(bench))
    seconds = {each.name: each.seconds for each in found.portfolio}
    assert seconds == {
        "untuned relay": found.timings[Variant.UNTUNED].median,
        "ansor": found.timings[Variant.TUNED].median,
        "onnxruntime": found.timings[Variant.REFERENCE].median,
        "autotvm": None,
        "rewritten relay": None,
    }
    assert told(found)[published] == "published"
    assert found.portfolio[0].name == published
    assert told(found)["autotvm"] == "1.50× the time of ansor in the comparison"


def test_the_only_tuned_build_may_crash_while_it_is_timed(bench: Bench) -> None:
    bench.script.refuse = refuse_of("time", "autotvm")
    found = bench.report(run(bench, tuner=Tuner.AUTOTVM, tuner_options=TunerOptions(rewrite=False)))
    assert (found.published, set(found.timings)) == (Variant.UNTUNED, {Variant.REFERENCE, Variant.UNTUNED})
    others = {"onnxruntime": "1.50× the time of the published build"}
    assert told(found) == {"untuned relay": "published", "autotvm": "not timed", **others}
    medians = [found.timings[each].median for each in (Variant.UNTUNED, Variant.REFERENCE)]
    assert [each.seconds for each in found.portfolio] == [*medians, None]
    assert "the tuned build crashes; untuned runs in 2 ms" in found.summary


def test_the_rewritten_network_alone_may_win(bench: Bench) -> None:
    bench.script.run_seconds = {**bench.script.run_seconds, "tuned-rewritten-relay": 0.5e-3}
    job_id = run(bench)
    found = bench.report(job_id)
    assert (found.portfolio[0].name, found.portfolio[0].verdict, found.portfolio[0].tuner) == (
        "rewritten relay", "published", None,
    )  # fmt: skip
    assert "ewriting the model alone made it 4.00× as fast: 0.5 ms against 2 ms untuned" in found.summary
    artifact = bench.artifact(job_id)
    # Nobody's records are in it.
    assert bundle.open_bundle(bench.blobs.path(artifact.digest), bench.home / "opened").tuner == ""


@pytest.mark.parametrize("wrong", ["ansor", "autotvm"])
def test_a_wrong_build_costs_itself(bench: Bench, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_ = ScriptedEngine._run

    def poison(engine: ScriptedEngine, params: dict[str, Any]) -> dict[str, Any]:
        answer = run_(engine, params)
        if f"tuned-{wrong}" in params.get("bundle", ""):
            Path(params["outputs"]).write_text("poisoned")
        return answer

    monkeypatch.setattr(ScriptedEngine, "_run", poison)
    found = bench.report(run(bench))
    assert found.published is Variant.TUNED
    assert told(found)[wrong] == "wrong results: output y: NaN, infinite or of a wrong shape (0.01 % allowed)"
    assert found.portfolio[0].name == ("autotvm" if wrong == "ansor" else "ansor")
    assert not next(each for each in found.portfolio if each.name == wrong).verified


@pytest.mark.parametrize(
    ("method", "verdict"),
    [
        ("compile", "failed to build: relay engine: it was killed by SIGSEGV"),
        ("run", "does not run"),
        ("time", "crashed in the benchmark: relay engine: it was killed by SIGSEGV"),
    ],
)
def test_a_build_that_crashes_costs_itself(bench: Bench, method: str, verdict: str) -> None:
    bench.script.refuse = refuse_of(method, "ansor")
    found = bench.report(run(bench))
    assert told(found)["ansor"] == verdict
    assert (found.portfolio[0].name, found.portfolio[0].verdict) == ("autotvm", "published")


def test_builds_that_are_all_slower_leave_untuned(bench: Bench) -> None:
    bench.script.run_seconds = {"reference": 3e-3, "untuned": 0.9e-3, "tuned": 1e-3}
    found = bench.report(run(bench))
    assert found.published is Variant.UNTUNED
    assert found.portfolio[0].name == "untuned relay"
    assert told(found)["untuned relay"] == "published"


@pytest.fixture
def two_engines(bench: Bench) -> None:
    """Relay leads: relax is not clearly faster, as far as the rough times of the baseline tell."""
    bench.script.hellos = BOTH
    bench.script.run_seconds = {
        "reference": 3e-3, "untuned-relay": 2e-3, "untuned-relax": 1.8e-3, "tuned": 2.2e-3,
        "tuned-rewritten-relay": 2.2e-3, "tuned-rewritten-relax": 2.2e-3,
    }  # fmt: skip


@pytest.mark.usefixtures("two_engines")
def test_the_untuned_build_of_another_engine_may_win(bench: Bench) -> None:
    job_id = run(bench, tuner=Tuner.AUTO)
    found = bench.report(job_id)
    assert (found.published, found.engines[Variant.UNTUNED].split("/")[0]) == (Variant.UNTUNED, "relax")
    assert told(found)["untuned relax"] == "published"
    assert told(found)["untuned relay"] == "1.11× the time of untuned relax"
    assert (
        bundle.open_bundle(bench.blobs.path(bench.artifact(job_id).digest), bench.home / "opened").toolchain["engine"]
        == "relax"
    )
    assert bench.artifact(job_id).toolchain == found.engines[Variant.UNTUNED]


@pytest.mark.usefixtures("two_engines")
def test_another_engines_untuned_build_that_crashes_costs_itself(bench: Bench) -> None:
    timed: list[str] = []

    def refuse(asked: str, params: dict[str, Any]) -> None:
        if asked == "time" and params.get("bundle", "").endswith("untuned-relax"):
            timed.append(asked)
            # The baseline's passes are over.
            if len(timed) > 2:
                raise errors.EngineCrashed("relax engine: it was killed by SIGSEGV")

    bench.script.refuse = refuse
    found = bench.report(run(bench))
    assert found.engines[Variant.UNTUNED].split("/")[0] == "relay"
    assert told(found)["untuned relax"] == "crashed in the benchmark: relax engine: it was killed by SIGSEGV"
    assert told(found)["untuned relay"] == "published"


def test_an_arm_far_behind_is_not_built(bench: Bench) -> None:
    bench.script.speed = {"ansor": 5.0}
    found = bench.report(run(bench))
    assert told(found)["ansor"].endswith("is too slow")
    assert "tuned-ansor" not in str(bench.script.asked("compile"))


def test_a_small_budget_makes_one_build(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "SAVED_SECONDS", 100.0)
    found = bench.report(run(bench, tuner=Tuner.AUTOTVM))
    assert told(found)["rewritten relay"] == "not built: the budget is too small for another build"
    assert len(bench.script.asked("compile")) == 2


def test_another_choice_of_records_is_another_build(bench: Bench) -> None:
    hello = bench.script.hellos["relay"]
    bench.script.hellos = {**bench.script.hellos, "relay": {**hello, "methods": ["choose"]}}
    found = bench.report(run(bench, tuner=Tuner.AUTOTVM))
    assert "autotvm, operators alone" not in told(found)
    bench.script.choices = {"none": ["other"]}
    found = bench.report(run(bench, tuner=Tuner.AUTOTVM, content=b"another model"))
    assert "autotvm, operators alone" in told(found)
    layouts = [params["options"].get("graph_layout") for params in bench.script.asked("compile")]
    assert layouts.count("none") == 1


def test_a_job_killed_while_it_compiles_keeps_its_builds(bench: Bench) -> None:
    made: list[str] = []

    def die(method: str, params: dict[str, Any]) -> None:
        if method == "compile":
            made.append(Path(params["out_dir"]).name)
            if len(made) == 3:
                raise Killed

    bench.script.refuse = die
    job_id = bench.job(trials=32)
    bench.lose_worker(job_id)
    bench.runtime().run_job(job_id)
    assert told(bench.report(job_id))["ansor"] == "published"
    assert [name for name in made if made.count(name) > 1] == [made[2]] * 2


def test_a_job_killed_while_it_verifies_builds_nothing_again(bench: Bench) -> None:
    left = [True]

    def die(method: str, params: dict[str, Any]) -> None:
        if method == "run" and "tuned-ansor" in params.get("bundle", "") and left.pop():
            raise Killed

    bench.script.refuse = lambda method, params: die(method, params) if left else None
    job_id = bench.job(trials=32)
    bench.lose_worker(job_id)
    built = len(bench.script.asked("compile"))
    bench.runtime().run_job(job_id)
    assert told(bench.report(job_id))["ansor"] == "published"
    assert len(bench.script.asked("compile")) == built


def test_without_a_runner_one_build_is_made_and_nothing_raced(bench: Bench) -> None:
    run(bench, tuner=Tuner.AUTOTVM)
    found = bench.report(run(bench, tuner=Tuner.AUTOTVM, runner=RunnerKind.NONE))
    assert told(found) == {"autotvm": "published"}
