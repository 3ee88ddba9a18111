"""What jobs can be searched by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypedDict

from sqlalchemy import ColumnElement, or_, select

from domain.jobs import JobState, Tuner
from storage.tables import JobLabelRow, JobRow, ModelRow


class JobFilter(TypedDict, total=False):
    """What is given and not None must hold."""

    owner: str | None
    state: JobState | None
    model_digest: str | None
    label: tuple[str, str] | None
    """Name and value."""
    group: str | None
    target: str | None
    """As it was asked for, or as a worker resolved it, with its thread count or without."""
    tuner: Tuner | None
    created_after: datetime | None
    """Then or later."""
    created_before: datetime | None
    text: str | None
    """Part of the model's name, the group or a label's value, or the beginning of the id."""


def conditions(wanted: JobFilter) -> Iterator[ColumnElement[bool]]:
    for name, value in wanted.items():
        if value is not None:
            yield _CONDITIONS[name](value)


def _has_label(label: tuple[str, str]) -> ColumnElement[bool]:
    name, value = label
    return JobRow.id.in_(select(JobLabelRow.job_id).where(JobLabelRow.name == name, JobLabelRow.value == value))


def _is_for(target: str) -> ColumnElement[bool]:
    return or_(
        JobRow.request["target"].as_string() == target,
        JobRow.target == target,
        JobRow.target.startswith(f"{target} -num-cores=", autoescape=True),
    )


def _mentions(text: str) -> ColumnElement[bool]:
    named = select(ModelRow.digest).where(ModelRow.name.icontains(text, autoescape=True))
    labelled = select(JobLabelRow.job_id).where(JobLabelRow.value.icontains(text, autoescape=True))
    return or_(
        JobRow.model_digest.in_(named),
        JobRow.group_name.icontains(text, autoescape=True),
        JobRow.id.in_(labelled),
        JobRow.id.startswith(text, autoescape=True),
    )


_CONDITIONS: dict[str, Callable[[Any], ColumnElement[bool]]] = {
    "owner": lambda owner: JobRow.owner == owner,
    "state": lambda state: JobRow.state == state,
    "model_digest": lambda digest: JobRow.model_digest == digest,
    "label": _has_label,
    "group": lambda group: JobRow.group_name == group,
    "target": _is_for,
    "tuner": lambda tuner: JobRow.request["tuner"].as_string() == tuner.value,
    "created_after": lambda at: JobRow.created_at >= at,
    "created_before": lambda at: JobRow.created_at < at,
    "text": _mentions,
}
