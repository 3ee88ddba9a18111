"""Bundle formats for TVM, whose files are verified apart, with scripted engines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from domain import errors
from domain.artifacts import Artifact, Variant
from domain.jobs import BundleFormat, RpcOptions, RunnerKind, Tuner
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO, refusing
from tuner.results import bundle

FILES = {BundleFormat.TVM: "mod.so", BundleFormat.OBJECT: "mod.tar", BundleFormat.SYSTEM_LIB: "mod.a"}
BOARD = RpcOptions(tracker="board:9190", key="rasp4b")
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"


@pytest.fixture(autouse=True)
def _libraries(bench: Bench) -> None:
    bench.script.hellos = {"relay": HELLO, "onnx": HELLO, "library": HELLO}
    bench.script.standalone = True


def run(bench: Bench, form: BundleFormat, **request: Any) -> str:
    return bench.run(**{"trials": 16, "tuner": Tuner.AUTOTVM, "bundle_format": form, **request})


def opened(bench: Bench, artifact: Artifact) -> dict[str, Any]:
    """The evidence of a bundle, with the names of its files."""
    folder = bench.home / "opened"
    manifest = bundle.open_bundle(bench.blobs.path(artifact.digest), folder)
    return {**json.loads((folder / "evidence.json").read_text()), "names": manifest.files.keys()}


def run_by_tvm(bench: Bench) -> list[tuple[str, str]]:
    """Which build's outputs were computed from which file."""
    asked = [params for params in bench.script.asked("run") if params.get("file")]
    assert {params["engine"] for params in asked} <= {"relay"}
    return sorted({(params["outputs"].split("/")[-1].split("-")[0], params["file"]) for params in asked})


@pytest.mark.parametrize("form", list(FILES))
def test_the_published_build_is_verified_as_tvm_loads_it(bench: Bench, form: BundleFormat) -> None:
    job_id = run(bench, form)
    found = bench.artifact(job_id)
    assert (found.bundle_format, found.report.published) == (str(form), Variant.TUNED)
    assert run_by_tvm(bench) == [("tuned", FILES[form])]
    checked = found.report.format_verification
    assert checked is not None
    assert (checked.file, checked.not_run) == (FILES[form], "")
    assert checked.verification is not None
    assert (checked.verification.variant, checked.verification.passed) == (Variant.TUNED, True)
    evidence = opened(bench, found)
    assert evidence["format_verification"]["verification"]["passed"] is True
    assert evidence["names"] >= {"libmodel.so", "mod.so", "mod.json", "mod.params", FILES[form]}
    readme = (bench.home / "opened" / "README.md").read_text()
    assert f"{FILES[form]}, run by TVM, is verified." in readme


@pytest.mark.parametrize("form", [each for each in BundleFormat if each not in (*FILES, BundleFormat.WHEEL)])
def test_other_formats_have_nothing_for_tvm_to_load(bench: Bench, form: BundleFormat) -> None:
    found = bench.artifact(run(bench, form))
    assert found.report.format_verification is None
    assert run_by_tvm(bench) == []
    evidence = opened(bench, found)
    assert evidence["format_verification"] is None
    assert "libmodel.so" in evidence["names"]
    assert not any(name.startswith("mod.") for name in evidence["names"])
    bench.script.standalone = False
    if form is BundleFormat.SHARED:
        assert opened(bench, bench.artifact(run(bench, form)))["names"] >= {"mod.so", "mod.json", "mod.params"}


@pytest.mark.parametrize("form", list(FILES))
def test_a_tuned_build_that_is_wrong_in_tvm_is_not_published(bench: Bench, form: BundleFormat) -> None:
    bench.script.wrong_files = frozenset({f"tuned-{FILES[form]}"})
    job_id = run(bench, form)
    report = bench.report(job_id)
    assert report.published is Variant.UNTUNED
    assert not report.verifications[Variant.TUNED].passed
    assert report.summary.startswith("Tuning gained nothing: the tuned variant gives wrong results")
    assert run_by_tvm(bench) == [("tuned", FILES[form]), ("untuned", FILES[form])]
    told = f"the tuned build gives wrong results as TVM loads it from {FILES[form]}"
    assert told in bench.notes(job_id)
    verdicts = {each.name: (each.verdict, each.verified) for each in report.portfolio}
    assert verdicts["autotvm"] == ("wrong results as TVM loads it", False)
    assert verdicts["untuned relay"] == ("published", True)


def test_a_job_whose_builds_are_wrong_in_tvm_fails_and_says_so(bench: Bench) -> None:
    bench.script.wrong_files = frozenset({"mod.tar"})
    job_id = run(bench, BundleFormat.OBJECT)
    failure = bench.failure(job_id)
    assert failure.code == "verification_failed"
    assert failure.message.endswith("not as TVM loads them from mod.tar")
    assert failure.hint == "Use the bundle format shared."
    assert failure.details["verifications"].keys() == {"tuned", "untuned"}


def test_a_build_that_tvm_cannot_load_is_not_published(bench: Bench) -> None:
    error = errors.EngineCrashed("relay engine: it was killed by SIGSEGV")
    bench.script.refuse = refusing("run", error, file="mod.so", bundle="tuned-autotvm")
    job_id = run(bench, BundleFormat.TVM)
    assert bench.report(job_id).published is Variant.UNTUNED
    assert any(note.startswith("TVM does not run the tuned build from mod.so: ") for note in bench.notes(job_id))


def test_a_build_that_tvm_ran_already_is_not_run_again(bench: Bench) -> None:
    bench.script.standalone = False
    report = bench.report(run(bench, BundleFormat.TVM))
    assert run_by_tvm(bench) == []
    assert report.format_verification is not None
    assert report.format_verification.verification == report.verifications[Variant.TUNED]
    run(bench, BundleFormat.OBJECT)
    assert run_by_tvm(bench) == [("tuned", "mod.tar")]


def test_what_was_not_run_says_why(bench: Bench) -> None:
    board = {"target": ARM, "threads": 4, "runner": RunnerKind.RPC, "rpc": BOARD}
    checked = bench.report(run(bench, BundleFormat.TVM, **board)).format_verification
    assert checked is not None
    assert (checked.verification is not None, checked.not_run) == (True, "")
    measured = bench.artifact(run(bench, BundleFormat.SHARED, **board))
    assert opened(bench, measured)["names"] >= {"libmodel.so", "mod.so", "mod.json", "mod.params"}
    checked = bench.report(run(bench, BundleFormat.OBJECT, **board)).format_verification
    assert checked is not None
    told = "the device ran mod.so, which is made of the same object files"
    assert (checked.verification, checked.not_run) == (None, told)
    here = bench.artifact(run(bench, BundleFormat.OBJECT, runner=RunnerKind.NONE))
    assert opened(bench, here)["format_verification"] == {
        "file": "mod.tar", "verification": None, "not_run": "nothing was run"
    }  # fmt: skip
    assert "mod.tar was not run: nothing was run." in (bench.home / "opened" / "README.md").read_text()
    library = {**HELLO, "emulators": {"aarch64": {"name": "qemu-aarch64", "lacks": None}}}
    bench.script.hellos["library"] = library
    emulated = bench.artifact(run(bench, BundleFormat.OBJECT, runner=RunnerKind.NONE, target=ARM))
    assert emulated.verified
    assert emulated.report.format_verification is not None
    assert emulated.report.format_verification.not_run == "TVM does not run under qemu-aarch64"
    assert run_by_tvm(bench) == []
