"""What to do about a tuned build that is wrong: find the records to blame, and build again without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from domain import errors
from domain.artifacts import Verification
from domain.jobs import Precision
from domain.records import Record, TrialError
from storage import records
from tuner import precisions
from tuner.native import lines
from worker.pipeline import builds, compiling, recovery
from worker.pipeline.builds import Build
from worker.pipeline.work import COMPILE_SECONDS, Work

_ROUNDS = 4
"""Of blaming what comes next for the same operators, before all of their records are left out."""
_NAMED = 3


@dataclass(kw_only=True)
class _Blamed:
    wrong: dict[tuple[str, str], float] = field(default_factory=dict)
    """Share of its largest output by which the operator is off, by workload key and digest of the schedule."""
    failed: set[tuple[str, str]] = field(default_factory=set)

    def __contains__(self, record: Record) -> bool:
        return _identity(record) in self.wrong or _identity(record) in self.failed


def rebuild(work: Work, build: Build, found: Verification) -> Build | None:
    """Compile again without the records whose operators compute something else; None where there is no such build.

    ``found``: how the build is wrong. Nobody gets those records again. Raises EngineError and the caller's errors when
    the second build fails.
    """
    candidates = compiling.candidate_records(work, build)
    if not candidates:
        work.note(_refusal(work, build, found) or f"the build without records is wrong ({build.name})")
        return None
    try:
        blamed, kept = _audit(work, build, candidates)
    except errors.EngineError as error:
        recovery.forgive(work, error, "the tuned build is wrong, and its records could not be audited")
        return None
    if not blamed.wrong and not blamed.failed:
        refusal = _refusal(work, build, found)
        work.note(
            f"{refusal} Each of its operators is right alone"
            if refusal
            else "the tuned build is wrong, though each of its operators is right alone; the untuned one is left"
        )
        return None
    _condemn(work, candidates, blamed)
    if not kept:
        work.note("no record is left: the untuned build is the only one")
        return None
    return compiling.rebuild(work, build, kept)


def _refusal(work: Work, build: Build, found: Verification) -> str | None:
    """Of a narrower precision: its limits are there to be missed by networks that do not bear it. None of f32."""
    precision = Precision(build.precision)
    if precision is Precision.F32 or not found.outputs:
        return None
    said = precisions.passes(found, precisions.gate_of(work.request, precision), precision)[1]
    return f"{build.name}: {said}"


def _audit(work: Work, build: Build, candidates: Sequence[Record]) -> tuple[_Blamed, list[Record]]:
    """What is to blame, and the records that are left. Raises EngineError."""
    blamed = _Blamed()
    kept = suspects = list(candidates)
    for _ in range(_ROUNDS):
        found = _ask(work, build, suspects, blamed)
        if not found:
            return blamed, kept
        kept = [record for record in kept if record not in blamed]
        suspects = [record for record in kept if record.key.workload_key in found]
        if not suspects:
            return blamed, kept
    return blamed, [record for record in kept if record not in suspects]


def _ask(work: Work, build: Build, suspects: Sequence[Record], blamed: _Blamed) -> set[str]:
    """Add what the engine blames of what it would choose; returns the workloads concerned."""
    path = work.folder / "suspects.jsonl"
    builds.write(path, [record.schedule for record in suspects])
    params = {**build.params(work), "records": str(path), "runner": work.runner}
    answer = work.ask(work.compiler(build.engine), "audit", params, timeout=COMPILE_SECONDS)
    by_line = {record.schedule.strip(): _identity(record) for record in suspects}
    wrong = {by_line[each["line"].strip()]: float(each["max_rel"]) for each in answer["wrong"]}
    failed = {by_line[each["line"].strip()] for each in answer["failed"]}
    blamed.wrong.update(wrong)
    blamed.failed.update(failed)
    return {workload for workload, _ in (*wrong, *failed)}


def _condemn(work: Work, candidates: Sequence[Record], blamed: _Blamed) -> None:
    """Make failures of the wrong records, in the store; those that only failed alone are not used for this build."""
    condemned = {_identity(record): record for record in candidates if _identity(record) in blamed.wrong}
    with work.database.transaction() as session:
        for identity, record in condemned.items():
            message = f"off by {blamed.wrong[identity]:.3g} of the largest output, against TVM's default schedule"
            records.condemn(
                session,
                record.key,
                record.schedule_digest,
                error=TrialError.WRONG_RESULT,
                message=message,
                rewrite=partial(lines.as_wrong, record.tuner),
            )
    work.note(_told(condemned, blamed))


def _told(condemned: dict[tuple[str, str], Record], blamed: _Blamed) -> str:
    parts = []
    if condemned:
        names = [record.key.workload_key[:100] for record in condemned.values()]
        named = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
        parts.append(
            f"records whose operators compute something else are not used any more: {len(condemned)}, of {named}"
        )
    if blamed.failed:
        parts.append(f"records that cannot be built or run alone are left out: {len(blamed.failed)}")
    return f"the tuned build is wrong; {'; '.join(parts)}"


def _identity(record: Record) -> tuple[str, str]:
    return record.key.workload_key, record.schedule_digest
