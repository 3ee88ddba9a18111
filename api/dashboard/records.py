"""The page of the records: what has been measured where, and the best of each workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from api.auth import Reader
from api.dashboard import devices, rendering
from api.dashboard.record_overview import Overview, RecordOverview
from api.services import ServicesDep
from storage.record_summaries import PlaceKey, WorkloadSummary

router = APIRouter(include_in_schema=False)

_PAGE = 25
_Text = Annotated[str, Field(max_length=1000)]


class Filter(BaseModel):
    """What the address says after its question mark; empty is any."""

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
        """Of the page with this filter, from its first page on, and ``changes``."""
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
        told = f"{summary.title} {name} {summary.workload_key}".casefold()
        return all(word in told for word in self.text.casefold().split())


def _overview(request: Request, services: ServicesDep) -> Overview | None:
    kept: RecordOverview = request.app.state.record_overview
    return kept.get(services.database)


@router.get("/records")
def listing(
    request: Request,
    services: ServicesDep,
    _principal: Reader,
    overview: Annotated[Overview | None, Depends(_overview)],
    wanted: Annotated[Filter, Query()],
) -> HTMLResponse:
    """Of a large store that nobody has counted yet, that it is being counted."""
    if overview is None:
        return rendering.page(request, "records_counting.html", address=wanted.address(page=wanted.page))
    found = (
        [summary for summary in overview.workloads if wanted.takes(summary)] if wanted.is_set else overview.workloads
    )
    start = (wanted.page - 1) * _PAGE
    with services.database.reading() as session:
        device_name = devices.names(session)
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
        device_name=device_name,
    )


def export(place: PlaceKey) -> str:
    """Address of all records of a place in their tuner's own form."""
    names = {
        "tuner": place.tuner,
        "target": place.target,
        "device": place.device_key,
        "toolchain": place.toolchain,
        "format": "native",
    }
    return "/v1/records?" + urlencode(names)


def _choices(overview: Overview) -> dict[str, Sequence[str]]:
    """What there is of each, by the name of its field."""
    places = [summary.place for summary in overview.places]
    return {
        "tuner": sorted({place.tuner for place in places}),
        "target": sorted({place.target for place in places}),
        "device": sorted({place.device_key for place in places}),
        "toolchain": sorted({place.toolchain for place in places}),
    }
