"""The page that puts jobs, or one model's builds by several toolchains, side by side.

A side is a job with what it published, or an artifact whose job may be somebody else's. Timings, options, tuning tasks
and builds stand in rows, each against the first side.
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
"""Of a request: what decides nothing of how a build turns out."""
_Ids = Annotated[list[Annotated[str, Query(max_length=200)]], Query(max_length=100)]


@dataclass(frozen=True, kw_only=True)
class Side:
    name: str
    """How the address names it: ``job`` or ``artifact``."""
    id: str
    model: ModelName
    job: Job | None
    artifact: Artifact | None
    tasks: list[TuningTask] = field(default_factory=list)
    """With the best that the job itself could use, not what others found since."""

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
        """By name, as the API has them; of an artifact alone what it tells itself."""
        if self.job:
            request = {name: value for name, value in asdict(self.job.request).items() if name not in _LEFT_OUT}
            return dict(_flat(request))
        assert self.artifact is not None  # noqa: S101 - a side has one or the other
        told = {"target": self.artifact.target, "precision": self.artifact.precision}
        return dict(_flat(told | {"input_shapes": dict(self.artifact.input_shapes)}))


@router.get("/compare")
def compare(
    request: Request,
    services: ServicesDep,
    principal: Reader,
    job: _Ids = [],  # noqa: B006 - FastAPI copies it
    artifact: _Ids = [],  # noqa: B006 - likewise
    model: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """Of fewer than two sides, what there is to choose from; ``model`` narrows that."""
    wanted = list(dict.fromkeys([*(("job", one) for one in job), *(("artifact", one) for one in artifact)]))
    if len(wanted) > _MOST_SIDES:
        raise errors.InvalidRequest(
            f"{len(wanted)} sides are more than a page can compare", hint=f"Choose up to {_MOST_SIDES}."
        )
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
        doubts=doubts(found, letters),
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
    """Jobs that published something; with one side chosen, those of its model."""
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
    """Of the same comparison, against another side."""
    return _address([side, *(other for other in found if other is not side)])


def _address(wanted: list[Side]) -> str:
    return "/compare?" + urlencode([(side.name, side.id) for side in wanted])


def of_job(session: Session, job_id: str, principal: Principal) -> Side:
    """Raises JobNotFound."""
    job = owners.job(session, job_id, principal)
    artifact = artifacts.of_job(session, job_id)
    return _side(session, "job", job_id, job.request.model_digest, job=job, artifact=artifact)


def of_artifact(session: Session, artifact_id: str, principal: Principal) -> Side:
    """Raises ArtifactNotFound."""
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
    """A time against the first side's."""

    ratio: float
    """How many times as fast."""
    low: float | None = None
    high: float | None = None
    """Of the ratio, as the two intervals of the medians allow at most."""

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
    """Against the first side's best; None of the first itself and of what has no best."""


@dataclass(frozen=True, kw_only=True)
class BuildRow:
    name: str
    seconds: list[float | None]


def is_same_work(sides: Sequence[Side]) -> bool:
    """Whether times can be held against each other at all: one model, with inputs of one size."""
    return len({(side.model.id, repr(sorted(side.shapes.items()))) for side in sides}) == 1


def timings(sides: Sequence[Side]) -> list[ComparedTiming]:
    """What was published, then each variant that any side timed; ratios only of the same work."""
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
    """Seconds at the right edge of a chart of all medians."""
    found = [timing for side in sides if side.report for timing in side.report.timings.values()]
    return _ROOM * max((max(timing.median, timing.ci_high or 0.0) for timing in found), default=1.0)


def options(sides: Sequence[Side]) -> list[Option]:
    told = [side.options for side in sides]
    names = list(dict.fromkeys(name for one in told for name in one))
    return [Option(name=name, values=[one.get(name) for one in told]) for name in names]


def tasks(sides: Sequence[Side]) -> list[TaskRow]:
    """Of the same operator in one row, what takes longest in the model first.

    Tuners have workload keys of their own: tasks are matched by what they are, and by order where several are alike.
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
    """Every build that raced on any side, the fastest first; what was not timed is left out."""
    columns = [
        {each.name: each.seconds for each in side.report.portfolio if each.seconds is not None} if side.report else {}
        for side in sides
    ]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [BuildRow(name=name, seconds=[column.get(name) for column in columns]) for name in names]
    return sorted(rows, key=lambda row: min(seconds for seconds in row.seconds if seconds is not None))


def doubts(sides: Sequence[Side], letters: str) -> list[str]:
    """Why a comparison may say less than it seems to."""
    found = []
    if len({side.model.id for side in sides}) > 1:
        found.append("The models differ: their times are not held against each other.")
    elif not is_same_work(sides):
        found.append("The input shapes differ: their times are not held against each other.")
    if len({side.device_key for side in sides if side.device_key}) > 1:
        found.append("The devices differ: times are those of different machines.")
    for letter, side in zip(letters, sides, strict=False):
        if side.report and side.report.conditions and side.report.conditions.noisy:
            found.append(f"{letter} was measured on a busy machine: its milliseconds are rough.")
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
    """In one run of the model."""
    return task.extracted.weight * (task.best_latency or 0.0) if task else 0.0
