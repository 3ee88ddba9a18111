"""Whole jobs over real engines: fp16, rewritten models, and GPUs that nobody has."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from domain.artifacts import Artifact, Variant
from domain.jobs import AccuracyGate, Job, JobState, Precision, RunnerKind, Tuner
from tests.support import models
from tests.support.binaries import emulator
from tests.support.worker.fixtures import Bench
from tests.support.worker.real import run_job
from tuner.host import hardware

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("real_engines")]

NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def finish(bench: Bench, *, content: bytes | None = None, **request: Any) -> Job:
    shapes = {} if content else {"image": (1, 3, 16, 16)}
    job_id = bench.job(content=content or models.small_network(), **{"trials": 8, "input_shapes": shapes, **request})
    run_job(bench, job_id)
    return bench.get(job_id)


def run(bench: Bench, **request: Any) -> tuple[str, Artifact]:
    job = finish(bench, **request)
    assert job.state is JobState.SUCCEEDED, job.failure
    return job.id, bench.artifact(job.id)


def test_half_precision_is_verified_with_its_own_tolerances(bench: Bench) -> None:
    _, found = run(bench, tuner=Tuner.AUTOTVM, precision=Precision.FP16)
    assert found.precision == "fp16"
    for each in found.report.verifications.values():
        assert (each.passed, each.precision) == (True, "fp16")
        assert all(output.rtol == pytest.approx(2e-2) for output in each.outputs)


def test_a_padded_network_is_tuned_and_right(bench: Bench) -> None:
    # Of 8 lanes, whose tiles are two vectors wide: 40 columns become 48.
    network, target = models.dense_network(columns=40), "llvm -mcpu=haswell"
    job_id, found = run(bench, content=network, trials=4, tuner=Tuner.AUTOTVM, target=target)
    assert "rewritten for tuning: 1 layer padded to whole vectors" in bench.notes(job_id)
    assert found.report.verifications[Variant.TUNED].passed
    assert [record.key.workload_key for record in bench.records(job_id) if "48" in record.key.workload_key]


def test_a_model_of_which_nothing_can_be_proven(bench: Bench) -> None:
    job = finish(bench, content=models.without_numbers())
    assert job.failure is not None
    assert (job.state, job.failure.code) == (JobState.FAILED, "verification_failed")
    assert "no finite number from 3 seeded inputs (x: uniform): every element of y is NaN" in job.failure.message


def test_an_output_of_which_nothing_can_be_proven_is_named(bench: Bench) -> None:
    _, found = run(bench, content=models.without_numbers("z"))
    [told] = {
        tuple((each.output, each.not_compared) for each in checked.outputs)
        for checked in found.report.verifications.values()
    }
    assert told == (("y", True), ("z", False))
    assert not found.verified
    assert "Output y was not compared: ONNX Runtime computes no finite number there." in found.report.summary


@pytest.mark.skipif("avx512vnni" not in hardware.device().key, reason="this processor has no AVX512-VNNI")
def test_int8_is_verified_on_inputs_that_found_no_scales(bench: Bench) -> None:
    _, found = run(bench, precision=Precision.INT8)
    assert (found.precision, found.report.precision) == ("int8", "int8")
    for each in found.report.verifications.values():
        assert (each.passed, each.precision, each.inputs) == (True, "int8", {"image": "image"})
        assert len(each.seeds) == 16
        assert [(output.top1, output.least_top1) for output in each.outputs] == [(1.0, 0.99)]
    assert found.report.verifications[Variant.UNTUNED].outputs[0].max_rel > 1e-4


def test_a_gate_that_int8_cannot_keep(bench: Bench) -> None:
    failure = finish(bench, precision=Precision.INT8, accuracy=AccuracyGate(max_rel=1e-6)).failure
    assert failure is not None
    assert (failure.code, "the limit is 0.0001 %" in failure.message) == ("accuracy_not_met", True)


def test_a_gpus_build_needs_a_compiler_and_no_gpu(bench: Bench) -> None:
    request = {"target": "cuda -arch=sm_90", "threads": 4, "runner": RunnerKind.NONE}
    if NVCC:
        _, found = run(bench, **request)
        assert (found.verified, found.report.timings) == (False, {})
        assert found.size_bytes > 10_000
    else:
        failure = finish(bench, **request).failure
        assert failure is not None
        assert (failure.code, "nvcc" in str(failure.hint)) == ("compiler_missing", True)


@pytest.mark.parametrize("tuner", [Tuner.AUTOTVM, Tuner.METASCHEDULE])
def test_a_build_for_aarch64_is_verified_under_qemu(bench: Bench, tuner: Tuner) -> None:
    emulator()  # or skip
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
    _, found = run(bench, tuner=tuner, target=target, threads=2, runner=RunnerKind.NONE)
    assert found.verified, found.report.choice
    assert (found.report.timings, found.report.emulator) == ({}, "qemu-aarch64")
    assert found.report.summary.endswith("verified under qemu-aarch64, not timed.")
    [output] = found.report.verifications[Variant.UNTUNED].outputs
    assert (output.passed, output.output) == (True, "scores")
    assert 0 < output.max_rel < 5e-4, "other kernels than the reference's round differently"
