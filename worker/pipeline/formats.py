"""Bundle formats for TVM: the file that TVM loads is verified apart from the library, for the published build alone.

It holds the code of the build, but is linked otherwise, and another runtime calls that code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from domain import errors
from domain.artifacts import FormatVerification, Report, Variant, Verification
from domain.jobs import BundleFormat, Precision
from tuner.results import bundle
from worker.engines import ONNX
from worker.pipeline import builds, recovery, verifying
from worker.pipeline.context import JobContext

_FILES = {
    BundleFormat.TVM: bundle.LIBRARY,
    BundleFormat.OBJECT: bundle.OBJECTS,
    BundleFormat.SYSTEM_LIB: bundle.ARCHIVE,
}
_ROLE = "format"
"""Role of the process that loads the file."""
Judge = Callable[[Mapping[Variant, Verification]], Report]


def judge(context: JobContext, judged: Judge, verifications: Mapping[Variant, Verification]) -> Report:
    """Return the report on a build whose file for TVM is right, too; one whose file is wrong is left out.

    ``judged`` makes the report from the verifications of all variants. Raises VerificationFailed if no build is right.
    """
    wrong: dict[Variant, Verification] = {}
    while True:
        report = judged({**verifications, **wrong})
        found = verify(context, report)
        if found is None or found.verification is None or found.verification.passed:
            return replace(report, format_verification=found)
        wrong[report.published] = found.verification
        context.note(f"the {report.published} build gives wrong results as TVM loads it from {found.file}")
        if not any(
            {**verifications, **wrong}[each].passed for each in builds.compiled(context) if each in report.timings
        ):
            raise _nothing_right(found.file, wrong)


def verify(context: JobContext, report: Report) -> FormatVerification | None:
    """Verify the published build as TVM loads it; None for formats without a file for TVM.

    Raises EngineError and the caller's errors if the reference fails.
    """
    file = _FILES.get(context.request.bundle_format)
    if file is None:
        return None
    hindrance = _hindrance(context, file)
    if hindrance:
        return FormatVerification(file=file, not_run=hindrance)
    known = report.verifications[report.published]
    if file == bundle.LIBRARY and not builds.process_of(context, report.published).is_library:
        # That is what was run.
        return FormatVerification(file=file, verification=known)
    return FormatVerification(file=file, verification=_verified(context, known, file))


def _hindrance(context: JobContext, file: str) -> str:
    if not context.verifies:
        return "nothing was run"
    if context.emulation.emulator:
        return f"TVM does not run under {context.emulation.emulator}"
    if context.runner is not None and file != bundle.LIBRARY:
        return f"the device ran {bundle.LIBRARY}, which is made of the same object files"
    return ""


def _verified(context: JobContext, known: Verification, file: str) -> Verification:
    """Verify a build, of which the verification is ``known``, as TVM runs it from the file."""
    variant, reference = known.variant, context.engines.get(ONNX)
    engine = builds.engine_name(context, variant)
    try:
        return verifying.compare(
            context, context.engines.get(engine, role=_ROLE), variant, builds.folder(context, variant),
            context.seeded_inputs, context.expected_outputs, kinds=known.inputs, rows=context.rows,
            precision=Precision(known.precision), place={**context.place, "file": file},
        )  # fmt: skip
    except (errors.EngineError, errors.InvalidRequest) as error:
        recovery.tolerate(context, error)
        if not reference.alive:
            raise
        context.note(f"TVM does not run the {variant} build from {file}: {error.message[:500]}")
        return replace(known, outputs=())
    finally:
        # The next build needs a new process: TVM finds functions of a system library by their names alone.
        context.engines.close(engine, role=_ROLE)


def _nothing_right(file: str, wrong: Mapping[Variant, Verification]) -> errors.VerificationFailed:
    found = {str(variant): [asdict(error) for error in each.outputs] for variant, each in wrong.items()}
    return errors.VerificationFailed(
        f"the builds give the model's results, but not as TVM loads them from {file}",
        hint="Use the bundle format shared.",
        details={"verifications": found},
    )
