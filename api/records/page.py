"""The page of records: counts by device, target and tuner, the best record of each workload, and imports."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from api.auth import Reader
from api.dashboard import rendering
from api.fleet import device_names
from api.services import ServicesDep
from domain.records import Provenance
from storage import imports, owners, record_pages
from storage.database import Database
from storage.imports import ImportSummary
from storage.record_pages import PlaceKey, PlaceSummary, WorkloadSummary

logger = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False)

_PAGE = 25
_LEAST_SECONDS = 10.0
_TIMES_AS_LONG = 60
"""A count is cached for this many times its duration, so that counting takes less than 2 % of one core."""
_Text = Annotated[str, Field(max_length=1000)]


class RecordFilter(BaseModel):
    """Query parameters of the page; empty means any."""

    text: Annotated[str, Field(max_length=200)] = ""
    tuner: _Text = ""
    target: _Text = ""
    device: _Text = ""
    toolchain: _Text = ""
    page: int = Field(default=1, ge=1, le=1_000_000)

    @property
    def is_set(self) -> bool:
        return bool(self.text or self.is_placed)

    @property
    def is_placed(self) -> bool:
        return bool(self.tuner or self.target or self.device or self.toolchain)

    def address(self, **changes: str | int) -> str:
        """Return the address of the first page with this filter and ``changes``."""
        given = self.model_dump(exclude={"page"}) | changes
        query = urlencode({name: value for name, value in given.items() if value})
        return f"/records?{query}" if query else "/records"

    def takes(self, summary: WorkloadSummary) -> bool:
        place = summary.place
        wanted = (
            (self.tuner, place.tuner),
            (self.target, place.target),
            (self.device, place.device_key),
            (self.toolchain, place.toolchain),
        )
        return all(not want or want == have for want, have in wanted) and self._says(summary)

    def _says(self, summary: WorkloadSummary) -> bool:
        if not self.text:
            return True
        name = summary.facts.name if summary.facts else ""
        text = f"{summary.title} {name} {summary.workload_key}".casefold()
        return all(word in text for word in self.text.casefold().split())


@dataclass(frozen=True, kw_only=True)
class Overview:
    workloads: list[WorkloadSummary]
    """By place, most trials first."""
    places: list[PlaceSummary]
    at: datetime

    @property
    def trials(self) -> int:
        return sum(place.trials for place in self.places)

    @property
    def failures(self) -> int:
        return sum(place.failures for place in self.places)


class RecordOverview:
    """Cached counts of all records, computed by a single background thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counting: threading.Thread | None = None
        self._known: Overview | None = None
        self._good_until = clock()

    def get(self, database: Database, *, patience: float = 1.0) -> Overview | None:
        """Return current counts; if counting takes longer than ``patience`` seconds, the last ones, or None."""
        with self._lock:
            if self._counting is None and self._clock() >= self._good_until:
                self._counting = threading.Thread(target=self._count, args=[database], name="records", daemon=True)
                self._counting.start()
            counting = self._counting
        if counting is not None:
            counting.join(patience)
        return self._known

    def _count(self, database: Database) -> None:
        started = self._clock()
        try:
            with database.reading() as session:
                workloads = record_pages.read(session)
            places = record_pages.by_place(workloads)
            self._known = Overview(workloads=workloads, places=places, at=datetime.now(UTC))
            ended = self._clock()
            self._good_until = ended + max(_LEAST_SECONDS, _TIMES_AS_LONG * (ended - started))
        except Exception:  # the next request starts a new count
            logger.exception("the records could not be counted")
        finally:
            with self._lock:
                self._counting = None


def _overview(request: Request, services: ServicesDep) -> Overview | None:
    kept: RecordOverview = request.app.state.record_overview
    return kept.get(services.database)


@router.get("/records")
def listing(
    request: Request,
    services: ServicesDep,
    principal: Reader,
    overview: Annotated[Overview | None, Depends(_overview)],
    wanted: Annotated[RecordFilter, Query()],
) -> HTMLResponse:
    """Show the page, or a notice while the records are being counted for the first time."""
    if overview is None:
        return rendering.page(request, "records_counting.html", address=wanted.address(page=wanted.page))
    found = (
        [summary for summary in overview.workloads if wanted.takes(summary)] if wanted.is_set else overview.workloads
    )
    start = (wanted.page - 1) * _PAGE
    with services.database.reading() as session:
        device_name = device_names.names(session)
        imported = imports.summaries(session, owner=owners.visible(principal))
    return rendering.page(
        request,
        "records.html",
        overview=overview,
        filter=wanted,
        found=len(found),
        workloads=found[start : start + _PAGE],
        pages=-(-len(found) // _PAGE),
        choices=_choices(overview),
        export=export,
        imported=imported,
        export_imported=export_imported,
        device_name=device_name,
    )


def export(place: PlaceKey | ImportSummary, **more: str) -> str:
    """Return the address of the export of the measured records of a place, in the tuner's native format."""
    names = {
        "tuner": place.tuner,
        "target": place.target,
        "device": place.device_key,
        "toolchain": place.toolchain,
        "format": "native",
    }
    return "/v1/records?" + urlencode(names | more)


def export_imported(summary: ImportSummary) -> str:
    return export(summary, provenance=Provenance.IMPORTED, owner=summary.owner)


def _choices(overview: Overview) -> dict[str, Sequence[str]]:
    """Return the existing values of each filter."""
    places = [summary.place for summary in overview.places]
    return {
        "tuner": sorted({place.tuner for place in places}),
        "target": sorted({place.target for place in places}),
        "device": sorted({place.device_key for place in places}),
        "toolchain": sorted({place.toolchain for place in places}),
    }
