"""Results of stages, to be changed where a test is about something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from domain.artifacts import Contender, FailedTask, OutputError, Report, Variant, Verification
from domain.digests import ArtifactDigest, BlobDigest, FileDigest
from domain.jobs import Precision, Stage, Tuner
from domain.models import TensorSpec
from domain.profiles import Bandwidth, Bound, OperatorTime, Peak, Profile
from domain.stage_results import (
    BaselineResult,
    BenchmarkResult,
    Build,
    CompileResult,
    ImportFailure,
    ImportResult,
    PlanResult,
    PublishResult,
    SearchedStrategy,
    SkippedBuild,
    StageResult,
    Strategy,
    TuneResult,
    VerifyResult,
)

_OUTPUT = OutputError(output="y", dtype="float32", max_abs=1e-6, max_rel=1e-6, atol=1e-4, rtol=1e-4, passed=True)
_VERIFICATION = Verification(variant=Variant.UNTUNED, seeds=(0, 1), outputs=(_OUTPUT,), inputs={"x": "image"})
_BUILD = Build(name="autotvm", engine="relay", precision=Precision.F32, tuner=Tuner.AUTOTVM, estimate=1e-3, records=4)
_CONTENDER = Contender(name="autotvm", tuner="autotvm", engine="relay", verified=True, verdict="published")
_REPORT = Report(
    timings={},
    verifications={Variant.UNTUNED: _VERIFICATION},
    published=Variant.TUNED,
    speedup_over_untuned=1.5,
    speedup_over_reference=None,
    summary="1.5 times as fast",
    portfolio=(_CONTENDER,),
)
_PROFILE = Profile(
    variant="tuned",
    compared_with="ONNX Runtime",
    threads=2,
    seconds=1.1e-3,
    reference_seconds=0.9e-3,
    outside=0.1e-3,
    reference_outside=0.05e-3,
    operators=(
        OperatorTime(
            name="/stem/Conv",
            kernels=("fused_nn_contrib_conv2d_NCHWc_nn_relu",),
            nodes=("Conv /stem/Conv", "Relu /stem/Relu"),
            seconds=0.7e-3,
            reference_seconds=0.5e-3,
            alone_seconds=0.4e-3,
            task=0,
            flop=1.99e6,
            bytes=40_000,
            share=0.25,
            bound=Bound.COMPUTE,
            layers=("Convolution /stem/Conv",),
            openvino_seconds=0.45e-3,
        ),
        OperatorTime(
            name="layout_transform",
            kernels=("a_1", "a_2"),
            nodes=(),
            seconds=0.3e-3,
            reference_seconds=0.0,
            openvino_seconds=0.0,
        ),
        OperatorTime(
            name="Reorder",
            kernels=(),
            nodes=(),
            seconds=0.0,
            reference_seconds=0.0,
            layers=("Reorder a", "Reorder b"),
            openvino_seconds=0.2e-3,
        ),
        OperatorTime(
            name="ReorderInput",
            kernels=(),
            nodes=("ReorderInput r",),
            seconds=0.0,
            reference_seconds=0.35e-3,
            openvino_seconds=0.0,
        ),
    ),
    openvino_seconds=0.75e-3,
    openvino_outside=0.1e-3,
    peak=Peak(flops=260e9, bandwidths=(Bandwidth(size=2**20, speed=90e9),)),
)
_RESULTS: tuple[StageResult, ...] = (
    ImportResult(
        files=("prepared.onnx",),
        inputs=(TensorSpec(name="x", dtype="float32", shape=(1, 3, 48, 192)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=(1, 2)),),
        operators={"Conv": 3},
        folded=True,
        engines=("relay",),
        refused={"relax": ImportFailure(code="unsupported_operators", message="no Foo", operators={"Foo": 1})},
        precisions=(Precision.F32, Precision.INT8),
        rewritings={"aligned": 2},
        rewritten=("relay",),
    ),
    BaselineResult(
        inputs=("inputs/0.npz",),
        expected=("expected/0.npz",),
        kinds={"x": "image"},
        seconds={Variant.UNTUNED: 2e-3, Variant.REFERENCE: 1e-3},
        engine="relay",
        engines={"relay": 2e-3, "relax": None},
        ranges={"relay": (1.9e-3, 2.5e-3)},
        verifications={"relay": _VERIFICATION},
        tuner=Tuner.AUTOTVM,
    ),
    PlanResult(
        tuner=Tuner.AUTOTVM,
        strategies=(
            Strategy(tuner=Tuner.AUTOTVM),
            Strategy(tuner=Tuner.METASCHEDULE, layout="NCHW"),
            Strategy(tuner=Tuner.METASCHEDULE, precision=Precision.INT8),
        ),
        reserves=(Strategy(tuner=Tuner.AUTOTVM, free_layout=True),),
        tasks=4,
        covered=1,
        trials_planned=16,
        trials_on_record=32,
        passed_over={"toolchain": 5},
        elsewhere={},
        budget_seconds=None,
        estimated_seconds=12.5,
    ),
    TuneResult(
        tuner=Tuner.AUTOTVM,
        strategies=(SearchedStrategy(tuner=Tuner.AUTOTVM, trials=16, seconds=12.0, estimate=1e-3, verdict=""),),
        helpers={"host:1:2": 3},
        trials=16,
        seconds=12.0,
        ended_by="trials",
        unused_seconds=48.0,
        failed_tasks=(FailedTask(position=1, name="dense", failures={"build_error": 4}, hint="See the log."),),
    ),
    CompileResult(builds=(_BUILD,), skipped=(SkippedBuild(build=_BUILD, verdict="too far behind"),)),
    VerifyResult(verifications={Variant.UNTUNED: _VERIFICATION}, tuned=_BUILD, portfolio=(_CONTENDER,)),
    BenchmarkResult(report=_REPORT, profile=_PROFILE, unprofiled="with a profile, empty"),
    PublishResult(digest=ArtifactDigest(BlobDigest(FileDigest("0" * 64))), size_bytes=1024),
)
_BY_STAGE = {each.stage: each for each in _RESULTS}

R = TypeVar("R", bound=StageResult)


def of(stage: Stage) -> StageResult:
    """A result of that stage with every field set."""
    return _BY_STAGE[stage]


def made(kind: type[R], **changes: Any) -> R:
    """A result of that kind with these fields changed."""
    found = _BY_STAGE[kind.stage]
    assert isinstance(found, kind)
    return replace(found, **changes)
