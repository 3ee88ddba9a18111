"""The page that compares jobs, or the builds of a model by several toolchains.

A side is a job with its artifact, or an artifact, whose job may belong to another owner. The rows are timings, options,
tuning tasks and builds, compared with the first side.
"""

from __future__ import annotations

import math
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
from api.jobs.pages.job_tables import ROOM
from api.services import Services, ServicesDep
from domain import errors, sizes
from domain.artifacts import Artifact, Report, Timing, Variant
from domain.digests import ModelDigest
from domain.jobs import Job, JobState
from domain.sizes import Choice
from domain.tokens import Principal
from domain.tuning_tasks import TuningTask
from storage import artifacts, jobs, model_overviews, owners, tuning_tasks
from storage.model_overviews import ModelName

router = APIRouter(include_in_schema=False)

_MOST_SIDES = 6
_OFFERED = 40
MOST_TASKS = 200
_DRIFT = 0.02
"""Differences of the reference's time that are pointed out."""

Verdict = Literal["faster", "slower", "alike", "unknown"]
_LEFT_OUT = ("model_digest", "labels", "group", "priority", "sizes")
"""Fields of a request that do not affect the build, and the sizes, which are shown as shapes."""
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
    def shapes(self) -> Mapping[str, Sequence[Choice]]:
        if self.artifact:
            return sizes.choices_of(self.artifact.sizes) or self.artifact.input_shapes
        return sizes.choices_of(self.job.request.sizes) or self.job.request.input_shapes if self.job else {}

    @property
    def options(self) -> dict[str, str]:
        """Options of the request by name; for an artifact without a visible job, those that it stores."""
        if self.job:
            request = {name: value for name, value in asdict(self.job.request).items() if name not in _LEFT_OUT}
            return dict(_flat(request | {"input_shapes": dict(self.shapes)}))
        assert self.artifact is not None  # noqa: S101 - a side has one or the other
        stored = {"target": self.artifact.target, "precision": self.artifact.precision}
        return dict(_flat(stored | {"input_shapes": dict(self.shapes)}))


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
        normalised=any(references(found[0], side) for side in found[1:]),
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
    """Bounds of the ratio, from the confidence intervals of the medians; None without them, and for references."""
    is_drift: bool = False
    """Whether it compares the references, by which the other ratios are divided."""

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
    published = [(side.published, side.report.published if side.report else None) for side in sides]
    rows = [
        _timing_row("Published", sides, published),
        *(
            _timing_row(variant.capitalize(), sides, [(side.timing(variant), None) for side in sides])
            for variant in (Variant.TUNED, Variant.UNTUNED, Variant.REFERENCE, Variant.ONNXRUNTIME, Variant.OPENVINO)
        ),
    ]
    return [row for row in rows if any(cell.timing for cell in row.cells)]


def references(first: Side, other: Side) -> tuple[Timing, Timing] | None:
    """Return the times of one reference in both runs, by which times are divided: the machine may have changed.

    None if a run has none, or if the references or devices differ.
    """
    found = first.timing(Variant.REFERENCE), other.timing(Variant.REFERENCE)
    if first.report is None or other.report is None or found[0] is None or found[1] is None:
        return None
    is_same = (first.report.compared_with, first.device_key) == (other.report.compared_with, other.device_key)
    return (found[0], found[1]) if is_same else None


def scale(sides: Sequence[Side]) -> float:
    """Return the seconds at the right edge of a chart of all medians."""
    found = [timing for side in sides if side.report for timing in side.report.timings.values()]
    return ROOM * max((max(timing.median, timing.ci_high or 0.0) for timing in found), default=1.0)


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
            found.append(
                f"{letter} was measured on a busy machine, so its times, and their ratios to others, are approximate."
            )
    return found + (_drifts(sides, letters) if is_same_work(sides) else [])


def _drifts(sides: Sequence[Side], letters: str) -> list[str]:
    """Return how the references differ, and which ratios do not allow for that."""
    found = []
    for letter, side in zip(letters[1:], sides[1:], strict=False):
        both = references(sides[0], side)
        if both is None:
            if side.published and sides[0].published:
                found.append(
                    f"{letters[0]} and {letter} have no reference in common, so their ratios are of the plain times."
                )
        elif abs(both[1].median / both[0].median - 1) > _DRIFT:
            found.append(
                f"The reference took {both[1].median / both[0].median:.2f}× as long in {letter} as in {letters[0]}: "
                "ratios are of times divided by each run's own reference."
            )
    return found


def against(base: Timing, other: Timing, both: tuple[Timing, Timing] | None = None) -> Against:
    """Compare two times, each divided by its own run's reference; ``both`` are the references, if there are any."""
    over, under = [base], [other]
    if both is not None:
        over.append(both[1])
        under.append(both[0])
    ratio = math.prod(each.median for each in over) / math.prod(each.median for each in under)
    lowest, highest = [_spread(each) for each in over], [_spread(each) for each in under]
    if None in lowest or None in highest:
        return Against(ratio=ratio)
    # Independent errors of logarithms add up by their squares.
    below = math.hypot(*(low for low, _ in filter(None, lowest)), *(high for _, high in filter(None, highest)))
    above = math.hypot(*(high for _, high in filter(None, lowest)), *(low for low, _ in filter(None, highest)))
    return Against(ratio=ratio, low=ratio * math.exp(-below), high=ratio * math.exp(above))


def _spread(timing: Timing) -> tuple[float, float] | None:
    """Return how far the confidence interval reaches below and above the median, in logarithms."""
    if not timing.ci_low or not timing.ci_high:
        return None
    return math.log(timing.median / timing.ci_low), math.log(timing.ci_high / timing.median)


def _timing_row(
    name: str, sides: Sequence[Side], found: Sequence[tuple[Timing | None, Variant | None]]
) -> ComparedTiming:
    first = TimingCell(timing=found[0][0], variant=found[0][1])
    rest = [
        TimingCell(timing=timing, variant=variant, against=_against_first(sides, side, first.timing, timing))
        for side, (timing, variant) in zip(sides[1:], found[1:], strict=True)
    ]
    return ComparedTiming(name=name, cells=[first, *rest])


def _against_first(sides: Sequence[Side], side: Side, base: Timing | None, timing: Timing | None) -> Against | None:
    if base is None or timing is None or not is_same_work(sides):
        return None
    both = references(sides[0], side)
    if both is not None and base is both[0]:
        return Against(ratio=base.median / timing.median, is_drift=True)
    return against(base, timing, both)


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
