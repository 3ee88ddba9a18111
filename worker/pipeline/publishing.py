"""Stage ``publish``: bundle the fastest correct variant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sqlalchemy.orm import Session

from domain import ids, release
from domain.artifacts import Artifact, Report, Runtime, Variant
from domain.digests import ArtifactDigest
from domain.jobs import JobState, RunnerKind
from domain.stage_results import PublishResult
from domain.targets import Toolchain
from storage import artifacts, jobs
from tuner.results import bundle
from tuner.results.bundle import Manifest
from tuner.results.manifest import OtherRuntime
from worker import clock
from worker.pipeline import builds, runtimes
from worker.pipeline.context import JobContext

_CHUNK_BYTES = 1024 * 1024
_CREATED_BY = f"tunesmith {release.VERSION}"


def run(context: JobContext) -> PublishResult:
    report = context.results.benchmark.report
    path = context.folder / "bundle.tar"
    bundle.write(
        path,
        compiled=builds.folder(context, report.published),
        manifest=_manifest(context, report),
        report=report,
        profile=context.results.benchmark.profile,
        records=_records(context, report),
        model=runtimes.model(context, report.runtime_model),
        ran_with_tvm=context.request.runner is RunnerKind.RPC,
    )
    return put(context, path)


def put(context: JobContext, path: Path) -> PublishResult:
    """Store the bundle. Raises BlobStoreUnavailable."""
    blob = context.blobs.put(_chunks(path))
    return PublishResult(digest=ArtifactDigest(blob.digest), size_bytes=blob.size_bytes)


def artifact(context: JobContext, result: PublishResult) -> Artifact:
    report = context.results.benchmark.report
    return Artifact(
        id=ids.artifact(result.digest),
        digest=result.digest,
        size_bytes=result.size_bytes,
        job_id=context.job.id,
        model_digest=context.model.digest,
        input_shapes=context.input_shapes,
        target=context.placement.target.identity,
        device_key=context.placement.device.key,
        toolchain=_toolchain(context, report).identity,
        precision=report.narrowest,
        bundle_format=_format(context),
        verified=report.is_verified,
        report=report,
        created_at=clock.now(),
    )


def finish(session: Session, context: JobContext, made: Artifact) -> None:
    """Publish the artifact and end the job in one transaction. Raises LeaseLost."""
    kept = artifacts.add(session, made)
    won = jobs.finish(
        session, context.job.id, context.lease, state=JobState.SUCCEEDED, artifact_id=kept.id, now=clock.now()
    )
    context.heartbeat.require(won)


def _format(context: JobContext) -> str:
    return bundle.PART_FORMAT if context.job.part_of else str(context.request.bundle_format)


def _manifest(context: JobContext, report: Report) -> Manifest:
    placement, tuned = context.placement, builds.chosen(context)
    return Manifest(
        model_digest=context.model.digest,
        model_name=context.model.name,
        variant=str(report.published),
        target=placement.target.text,
        threads=placement.target.threads,
        device_key=placement.device.key,
        toolchain=_facts(_toolchain(context, report)),
        precision=report.precision,
        inputs=context.inputs,
        outputs=context.outputs,
        created_by=_CREATED_BY,
        format=_format(context),
        tuner=(tuned.tuner or "") if tuned and report.published is Variant.TUNED else "",
        runtime=_runtime(context, report),
    )


def _runtime(context: JobContext, report: Report) -> OtherRuntime | None:
    if report.runtime is Runtime.TVM:
        return None
    return OtherRuntime(
        name=str(report.runtime),
        version=report.runtime_version,
        model=report.runtime_model,
        threads=context.threads,
        precision=report.runtime_precision,
        options=report.runtime_options,
    )


def _toolchain(context: JobContext, report: Report) -> Toolchain:
    return context.toolchains[builds.engine_name(context, report.published)]


def _facts(toolchain: Toolchain) -> dict[str, str]:
    return {"engine": toolchain.engine, "tvm": toolchain.tvm, "llvm": toolchain.llvm}


def _records(context: JobContext, report: Report) -> list[str]:
    tuned = builds.chosen(context)
    if report.published is not Variant.TUNED or tuned is None:
        return []
    return (context.folder / tuned.records_file).read_text().splitlines()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
