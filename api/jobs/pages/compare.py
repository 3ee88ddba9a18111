"""The page that compares jobs, or the builds of a model by several toolchains.

A side is a job with its artifact, or an artifact, whose job may belong to another owner. The rows are timings, options,
tuning tasks and builds, compared with the first side.
"""

from __future__ import annotations

import string
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from api.auth import Reader
from api.dashboard import formats, rendering
from api.fleet import device_names
from api.services import Services, ServicesDep
from domain import errors
from domain.artifacts import Artifact, Report, Timing, Variant
from domain.digests import ModelDigest
from domain.jobs import Job, JobState
from domain.tokens import Principal
from domain.tuning_tasks import TuningTask
from storage import artifacts, jobs, model_overviews, owners, tuning_tasks
from storage.model_overviews import ModelName

router = APIRouter(include_in_schema=False)

_MOST_SIDES = 6
_OFFERED = 40
MOST_TASKS = 200
_ROOM = 1.04

Verdict = Literal["faster", "slower", "alike", "unknown"]
_LEFT_OUT = ("model_digest", "labels", "group", "priority")
"""Fields of a request that do not affect the build."""
_Ids = Annotated[list[Annotated[str, Query(max_length=200)]], Query(max_length=100)]


@dataclass(frozen=True, kw_only=True)
class Side:
    name: str
    """The query parameter: ``job`` or ``artifact``."""
    id: str
    model: ModelName
    job: Job | None
    artifact: Artifact | None
    tasks: list[TuningTask] = field(default_factory=list)
    """With the best times that the job itself could use, without later records."""

    @property
    def report(self) -> Report | None:
        return self.artifact.report if self.artifact else None

    @property
    def published(self) -> Timing | None:
        return self.timing(self.report.published) if self.report else None

    def timing(self, variant: Variant) -> Timing | None:
        return self.report.timings.get(variant) if self.report else None

    @property
    def device_key(self) -> str | None:
        if self.artifact:
            return self.artifact.device_key
        return self.job.placement.device.key if self.job and self.job.placement else None

    @property
    def toolchain(self) -> str | None:
        if self.artifact:
            return self.artifact.toolchain
        return self.job.placement.toolchain.identity if self.job and self.job.placement else None

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        if self.artifact:
            return self.artifact.input_shapes
        return self.job.request.input_shapes if self.job else {}

    @property
    def options(self) -> dict[str, str]:
        """Options of the request by name; for an artifact without a visible job, those that it stores."""
        if self.job:
            request = {name: value for name, value in asdict(self.job.request).items() if name not in _LEFT_OUT}
            return dict(_flat(request))
        assert self.artifact is not None  # noqa: S101 - a side has one or the other
        stored = {"target": self.artifact.target, "precision": self.artifact.precision}
        return dict(_flat(stored | {"input_shapes": dict(self.artifact.input_shapes)}))


@router.get("/compare")
def compare(
    request: Request,
    services: ServicesDep,
    principal: Reader,
    job: _Ids = [],  # noqa: B006 - FastAPI copies it
    artifact: _Ids = [],  # noqa: B006 - likewise
    model: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """Show the comparison; with fewer than two sides, the jobs to choose from, of ``model`` if given."""
    wanted = list(dict.fromkeys([*(("job", one) for one in job), *(("artifact", one) for one in artifact)]))
    if len(wanted) > _MOST_SIDES:
        raise errors.InvalidRequest(f"cannot compare {len(wanted)} jobs at once", hint=f"Choose up to {_MOST_SIDES}.")
    with services.database.reading() as session:
        found = [
            of_job(session, one, principal) if name == "job" else of_artifact(session, one, principal)
            for name, one in wanted
        ]
        placed = [side.job.placement.device for side in found if side.job and side.job.placement]
        device_name = device_names.names(session, *placed)
    if len(found) < 2:
        return _chooser(request, services, principal, found, model)
    letters = string.ascii_uppercase
    return rendering.page(
        request,
        "compare.html",
        sides=found,
        letters=letters,
        caveats=caveats(found, letters),
        timings=timings(found),
        scale=scale(found),
        options=options(found),
        tasks=tasks(found),
        builds=builds(found),
        addresses=[_first(found, side) for side in found],
        without=[_address([other for other in found if other is not side]) for side in found],
        device_name=device_name,
    )


def _chooser(
    request: Request, services: Services, principal: Principal, chosen: list[Side], model: str
) -> HTMLResponse:
    """List jobs with an artifact; with one side chosen, those of its model."""
    wanted = model or (chosen[0].model.id if chosen else "")
    with services.database.reading() as session:
        of = owners.model(session, wanted, principal) if wanted else None
        found, _ = jobs.page(
            session,
            owner=owners.visible(principal),
            state=JobState.SUCCEEDED,
            model_digest=of.digest if of else None,
            limit=_OFFERED,
        )
        names = model_overviews.model_names(session, [job.request.model_digest for job in found])
        gains = model_overviews.gains(session, [job.artifact_id for job in found if job.artifact_id])
    return rendering.page(
        request,
        "compare_choose.html",
        jobs=found,
        names=names,
        gains=gains,
        model=of,
        chosen={side.id for side in chosen},
        most=_MOST_SIDES,
    )


def _first(found: list[Side], side: Side) -> str:
    """Return the address of the same comparison with ``side`` first."""
    return _address([side, *(other for other in found if other is not side)])


def _address(wanted: list[Side]) -> str:
    return "/compare?" + urlencode([(side.name, side.id) for side in wanted])


def of_job(session: Session, job_id: str, principal: Principal) -> Side:
    """Return the side of a job. Raises JobNotFound."""
    job = owners.job(session, job_id, principal)
    artifact = artifacts.of_job(session, job_id)
    return _side(session, "job", job_id, job.request.model_digest, job=job, artifact=artifact)


def of_artifact(session: Session, artifact_id: str, principal: Principal) -> Side:
    """Return the side of an artifact. Raises ArtifactNotFound."""
    artifact = owners.artifact(session, artifact_id, principal)
    own = owners.jobs_of(session, [artifact.job_id], principal)
    job = jobs.get(session, artifact.job_id) if own else None
    return _side(session, "artifact", artifact_id, artifact.model_digest, job=job, artifact=artifact)


def _side(
    session: Session, name: str, side_id: str, digest: ModelDigest, *, job: Job | None, artifact: Artifact | None
) -> Side:
    return Side(
        name=name,
        id=side_id,
        model=model_overviews.model_names(session, [digest])[digest],
        job=job,
        artifact=artifact,
        tasks=_tasks(session, job.id) if job else [],
    )


def _tasks(session: Session, job_id: str) -> list[TuningTask]:
    bests = tuning_tasks.bests_of_job(session, job_id)
    found = tuning_tasks.of_job(session, job_id)
    return [replace(task, best_latency=bests.get(task.extracted.workload_key)) for task in found]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", _text(value)


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        return formats.shape(tuple(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, kw_only=True)
class Against:
    """A time compared with that of the first side."""

    ratio: float
    """Speedup over the first side."""
    low: float | None = None
    high: float | None = None
    """Bounds of the ratio, from the confidence intervals of both medians."""

    @property
    def verdict(self) -> Verdict:
        if self.low is None or self.high is None:
            return "unknown"
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "alike"


@dataclass(frozen=True, kw_only=True)
class TimingCell:
    timing: Timing | None
    against: Against | None = None
    variant: Variant | None = None


@dataclass(frozen=True, kw_only=True)
class ComparedTiming:
    name: str
    cells: list[TimingCell]


@dataclass(frozen=True, kw_only=True)
class Option:
    name: str
    values: list[str | None]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


@dataclass(frozen=True, kw_only=True)
class TaskRow:
    title: str
    tasks: list[TuningTask | None]
    ratios: list[float | None]
    """Speedups over the first side's best; None for the first side and without a best time."""


@dataclass(frozen=True, kw_only=True)
class BuildRow:
    name: str
    seconds: list[float | None]


def is_same_work(sides: Sequence[Side]) -> bool:
    """Return whether times are comparable: the same model and input shapes."""
    return len({(side.model.id, repr(sorted(side.shapes.items()))) for side in sides}) == 1


def timings(sides: Sequence[Side]) -> list[ComparedTiming]:
    """Return rows for the published variant and each timed variant; ratios only for comparable sides."""
    ratios = is_same_work(sides)
    published = [(side.published, side.report.published if side.report else None) for side in sides]
    rows = [
        _timing_row("Published", published, ratios=ratios),
        *(
            _timing_row(variant.capitalize(), [(side.timing(variant), None) for side in sides], ratios=ratios)
            for variant in (Variant.TUNED, Variant.UNTUNED, Variant.REFERENCE)
        ),
    ]
    return [row for row in rows if any(cell.timing for cell in row.cells)]


def scale(sides: Sequence[Side]) -> float:
    """Return the seconds at the right edge of a chart of all medians."""
    found = [timing for side in sides if side.report for timing in side.report.timings.values()]
    return _ROOM * max((max(timing.median, timing.ci_high or 0.0) for timing in found), default=1.0)


def options(sides: Sequence[Side]) -> list[Option]:
    values = [side.options for side in sides]
    names = list(dict.fromkeys(name for one in values for name in one))
    return [Option(name=name, values=[one.get(name) for one in values]) for name in names]


def tasks(sides: Sequence[Side]) -> list[TaskRow]:
    """Return one row per operator, longest time in the model first.

    Workload keys differ between tuners, so tasks are matched by description, and by order if descriptions repeat.
    """
    columns = [_titled(side.tasks) for side in sides]
    titles = list(dict.fromkeys(key for column in columns for key in column))
    found = [[column.get(key) for column in columns] for key in titles]
    rows = [
        TaskRow(title=title, tasks=row, ratios=[None, *(_task_ratio(row[0], task) for task in row[1:])])
        for (title, _), row in zip(titles, found, strict=True)
    ]
    return sorted(rows, key=lambda row: -max(map(_seconds, row.tasks)))[:MOST_TASKS]


def builds(sides: Sequence[Side]) -> list[BuildRow]:
    """Return the timed candidate builds of all sides, fastest first."""
    columns = [
        {each.name: each.seconds for each in side.report.portfolio if each.seconds is not None} if side.report else {}
        for side in sides
    ]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [BuildRow(name=name, seconds=[column.get(name) for column in columns]) for name in names]
    return sorted(rows, key=lambda row: min(seconds for seconds in row.seconds if seconds is not None))


def caveats(sides: Sequence[Side], letters: str) -> list[str]:
    """Return reasons why the comparison may be misleading."""
    found = []
    if len({side.model.id for side in sides}) > 1:
        found.append("The models differ, so their times are not compared.")
    elif not is_same_work(sides):
        found.append("The input shapes differ, so their times are not compared.")
    if len({side.device_key for side in sides if side.device_key}) > 1:
        found.append("The devices differ: the times are from different machines.")
    for letter, side in zip(letters, sides, strict=False):
        if side.report and side.report.conditions and side.report.conditions.noisy:
            found.append(f"{letter} was measured on a busy machine, so its times and ratios are imprecise.")
    return found


def against(base: Timing, other: Timing) -> Against:
    if None in (base.ci_low, base.ci_high, other.ci_low, other.ci_high):
        return Against(ratio=base.median / other.median)
    assert base.ci_low and base.ci_high and other.ci_low and other.ci_high  # noqa: S101, PT018 - times, none missing
    return Against(ratio=base.median / other.median, low=base.ci_low / other.ci_high, high=base.ci_high / other.ci_low)


def _timing_row(name: str, found: Sequence[tuple[Timing | None, Variant | None]], *, ratios: bool) -> ComparedTiming:
    first = TimingCell(timing=found[0][0], variant=found[0][1])
    base = first.timing if ratios else None
    rest = [
        TimingCell(timing=timing, variant=variant, against=against(base, timing) if base and timing else None)
        for timing, variant in found[1:]
    ]
    return ComparedTiming(name=name, cells=[first, *rest])


def _titled(found: Sequence[TuningTask]) -> dict[tuple[str, int], TuningTask]:
    count: defaultdict[str, int] = defaultdict(int)
    titled = {}
    for task in found:
        title = task.extracted.description
        titled[title, count[title]] = task
        count[title] += 1
    return titled


def _task_ratio(base: TuningTask | None, other: TuningTask | None) -> float | None:
    if not (base and other and base.best_latency and other.best_latency):
        return None
    return base.best_latency / other.best_latency


def _seconds(task: TuningTask | None) -> float:
    """Return the task's seconds in one run of the model."""
    return task.extracted.weight * (task.best_latency or 0.0) if task else 0.0
