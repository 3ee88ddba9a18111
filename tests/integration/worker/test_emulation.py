"""Jobs for machines that only an emulator runs, with scripted engines."""

from __future__ import annotations

import json
import platform
from typing import Any

import pytest

from domain import errors
from domain.artifacts import Artifact, Variant
from domain.jobs import RpcOptions, RunnerKind, Tuner
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO, RELAX, refusing
from tuner.results import bundle

ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
BOARD = RpcOptions(tracker="board:9190", key="rasp4b")
UNDER = "verified under qemu-aarch64, not timed."


def emulating(lacks: str | None = None) -> dict[str, dict[str, Any]]:
    library = {**HELLO, "emulators": {"aarch64": {"name": "qemu-aarch64", "lacks": lacks}}}
    return {"relay": HELLO, "onnx": HELLO, "library": library}


@pytest.fixture(autouse=True)
def _elsewhere(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    bench.script.hellos, bench.script.standalone = emulating(), True


def build(bench: Bench, *, target: str = ARM, **request: Any) -> Artifact:
    return bench.artifact(bench.run(target=target, runner=RunnerKind.NONE, threads=4, **request))


def with_records(bench: Bench) -> str:
    """Tune on a board; return a build of its records, which an emulator runs."""
    bench.run(target=ARM, tuner=Tuner.AUTOTVM, threads=4, runner=RunnerKind.RPC, rpc=BOARD, trials=16)
    assert not any("emulated" in asked for asked in bench.script.asked("run")), "a board runs them"
    return bench.run(target=ARM, tuner=Tuner.AUTOTVM, runner=RunnerKind.NONE, device="rpc/rasp4b/t4")


def test_a_build_is_verified_and_not_timed(bench: Bench) -> None:
    found = build(bench)
    assert (found.verified, found.report.emulator) == (True, "qemu-aarch64")
    assert (found.report.timings, list(found.report.verifications)) == ({}, [Variant.UNTUNED])
    assert found.report.summary == f"Built for {ARM} untuned, without records; {UNDER}"
    asked = [params for params in bench.script.asked("run") if "bundle" in params]
    assert {(params["engine"], params["emulated"]) for params in asked} == {("library", "aarch64")}
    assert not bench.script.asked("time") + bench.script.asked("tune") + bench.script.asked("audit")


def test_the_bundle_says_so(bench: Bench) -> None:
    found = build(bench)
    folder = bench.home / "opened"
    bundle.open_bundle(bench.blobs.path(found.digest), folder)
    texts = {name: (folder / name).read_text() for name in ("README.md", "evidence.json")}
    assert "| measured on | nothing; verified under qemu-aarch64 |" in texts["README.md"]
    assert "Verified under qemu-aarch64, not timed.\n\nLargest errors against ONNX Runtime" in texts["README.md"]
    assert "Milliseconds" not in texts["README.md"]
    evidence = json.loads(texts["evidence.json"])
    assert (evidence["emulator"], evidence["benchmark"]) == ("qemu-aarch64", {})
    assert evidence["verification"]["untuned"]["passed"]


def test_a_build_with_a_boards_records_is_verified(bench: Bench) -> None:
    found = bench.artifact(with_records(bench))
    assert (found.verified, found.report.published) == (True, Variant.TUNED)
    assert found.report.summary == f"Built for {ARM} with 2 records; {UNDER}"
    assert {each.name: each.verdict for each in found.report.portfolio} == {
        "autotvm": "published",
        "untuned relay": "not timed",
    }


def test_a_wrong_tuned_build_is_not_published(bench: Bench) -> None:
    bench.script.refuse = lambda method, params: (
        setattr(bench.script, "wrong", frozenset({"tuned"})) if "emulated" in params else None
    )
    found = bench.artifact(with_records(bench))
    assert (found.verified, found.report.published) == (True, Variant.UNTUNED)
    assert found.report.summary == f"Built for {ARM} untuned, without records; {UNDER}"
    assert not found.report.verifications[Variant.TUNED].passed
    assert not [asked for asked in bench.script.asked("audit") if not asked["runner"]], "nothing here runs operators"


def test_a_wrong_untuned_build_fails_the_job(bench: Bench) -> None:
    bench.script.wrong = frozenset({"untuned"})
    job_id = bench.run(target=ARM, runner=RunnerKind.NONE, threads=4)
    assert bench.failure(job_id).code == "verification_failed"


def test_a_build_that_crashes_fails_the_job(bench: Bench) -> None:
    message = "the library crashes under qemu-aarch64: Segmentation fault"
    error = errors.EngineRequestFailed("emulation_failed", message)
    bench.script.refuse = refusing("run", error, emulated="aarch64")
    job_id = bench.run(target=ARM, runner=RunnerKind.NONE, threads=4)
    assert bench.failure(job_id).message == message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.EngineTimeout("run took too long"), "it takes too long"),
        (errors.EngineRequestFailed("not_emulated", "under qemu-aarch64: the CPU lacks sme"), "the CPU lacks sme"),
    ],
)
def test_what_the_emulator_cannot_tell_is_published_unverified(
    bench: Bench, error: errors.TunesmithError, reason: str
) -> None:
    bench.script.refuse = refusing("run", error, emulated="aarch64")
    job_id = bench.run(target=ARM, runner=RunnerKind.NONE, threads=4)
    found = bench.artifact(job_id)
    assert (found.verified, found.report.verifications, found.report.emulator) == (False, {}, "")
    [note] = [note for note in bench.notes(job_id) if "not verified" in note]
    assert note.startswith("relay is not verified under qemu-aarch64: ")
    assert reason in note
    assert note in found.report.choice
    assert "it was not run, so neither" in found.report.summary


def test_a_build_that_needs_tvm_is_not_run(bench: Bench) -> None:
    bench.script.standalone = False
    found = build(bench)
    assert not found.verified
    assert "relay is not verified under qemu-aarch64: it needs TVM." in found.report.choice
    assert not [params for params in bench.script.asked("run") if "bundle" in params]


def test_an_engine_whose_build_is_verified_is_preferred(bench: Bench) -> None:
    bench.script.hellos = {**emulating(), "relax": RELAX}
    bench.script.refuse = lambda method, params: (
        setattr(bench.script, "standalone", params["engine"] == "relax") if method == "compile" else None
    )
    found = build(bench)
    assert (found.verified, found.toolchain.partition("/")[0]) == (True, "relax")


def test_a_worker_without_the_emulator_says_what_it_lacks(bench: Bench) -> None:
    bench.script.hellos = emulating("qemu-aarch64 is not installed (Debian: apt install qemu-user)")
    found = build(bench)
    assert (found.verified, found.report.verifications) == (False, {})
    assert found.report.summary == (
        f"Built for {ARM} untuned, without records; it was not run because qemu-aarch64 is not installed (Debian: apt "
        "install qemu-user), so neither results nor speed are verified."
    )


@pytest.mark.parametrize("target", ["llvm -mtriple=riscv64-linux-gnu", "llvm -mtriple=aarch64-linux-musl"])
def test_other_machines_are_not_emulated(bench: Bench, target: str) -> None:
    found = build(bench, target=target)
    assert not found.verified
    assert "it was not run, so neither results nor speed are verified" in found.report.summary
    assert not any("qemu" in note for note in bench.notes(found.job_id))


def test_a_worker_of_that_machine_emulates_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not build(bench).verified


def test_a_model_without_numbers_is_built_all_the_same(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("domain.artifacts.Verification.proves", False)
    found = build(bench)
    assert not found.verified
    assert any("computes no finite number" in sentence for sentence in found.report.choice)
