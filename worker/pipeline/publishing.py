"""Stage ``publish``: the fastest correct variant as a bundle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sqlalchemy.orm import Session

from domain import ids, release
from domain.artifacts import Artifact, Report, Variant
from domain.digests import ArtifactDigest
from domain.jobs import JobState
from domain.stage_results import PublishResult
from domain.targets import Toolchain
from storage import artifacts, jobs
from tuner.results import bundle
from tuner.results.bundle import Manifest
from worker import clock
from worker.pipeline import builds
from worker.pipeline.context import Work

_CHUNK_BYTES = 1024 * 1024
_CREATED_BY = f"tunesmith {release.VERSION}"


def run(work: Work) -> PublishResult:
    report = work.results.benchmark.report
    path = work.folder / "bundle.tar"
    bundle.write(
        path,
        compiled=builds.folder(work, report.published),
        manifest=_manifest(work, report),
        report=report,
        records=_records(work, report),
    )
    blob = work.blobs.put(_chunks(path))
    return PublishResult(digest=ArtifactDigest(blob.digest), size_bytes=blob.size_bytes)


def finish(session: Session, work: Work, result: PublishResult) -> None:
    """Publish and end the job, both or neither. Raises LeaseLost."""
    report = work.results.benchmark.report
    artifact = artifacts.add(
        session,
        Artifact(
            id=ids.artifact(result.digest),
            digest=result.digest,
            size_bytes=result.size_bytes,
            job_id=work.job.id,
            model_digest=work.model.digest,
            input_shapes=work.input_shapes,
            target=work.placement.target.identity,
            device_key=work.placement.device.key,
            toolchain=_toolchain(work, report).identity,
            precision=report.precision,
            bundle_format=str(work.request.bundle_format),
            verified=work.measures,
            report=report,
            created_at=clock.now(),
        ),
    )
    won = jobs.finish(
        session, work.job.id, work.lease, state=JobState.SUCCEEDED, artifact_id=artifact.id, now=clock.now()
    )
    work.keeper.require(won)


def _manifest(work: Work, report: Report) -> Manifest:
    placement, tuned = work.placement, builds.chosen(work)
    return Manifest(
        model_digest=work.model.digest,
        model_name=work.model.name,
        variant=str(report.published),
        target=placement.target.text,
        threads=placement.target.threads,
        device_key=placement.device.key,
        toolchain=_facts(_toolchain(work, report)),
        precision=report.precision,
        inputs=work.inputs,
        outputs=work.outputs,
        created_by=_CREATED_BY,
        format=str(work.request.bundle_format),
        tuner=(tuned.tuner or "") if tuned and report.published is Variant.TUNED else "",
    )


def _toolchain(work: Work, report: Report) -> Toolchain:
    return work.toolchains[builds.engine_name(work, report.published)]


def _facts(toolchain: Toolchain) -> dict[str, str]:
    return {"engine": toolchain.engine, "tvm": toolchain.tvm, "llvm": toolchain.llvm}


def _records(work: Work, report: Report) -> list[str]:
    tuned = builds.chosen(work)
    if report.published is not Variant.TUNED or tuned is None:
        return []
    return (work.folder / tuned.records_file).read_text().splitlines()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
