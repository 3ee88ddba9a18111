"""A job's events as they come, read from the database in short looks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
from fastapi.sse import ServerSentEvent

from api.services import Services
from domain.events import JobEvent
from storage import events, jobs

_BATCH = 500


async def stream(services: Services, job_id: str, last_id: int) -> AsyncIterator[ServerSentEvent]:
    """Everything after ``last_id``; ends behind the event that tells of the final state, or when the server stops."""
    with services.metrics.watching():
        while not services.stopping.is_set():
            batch, ended = await anyio.to_thread.run_sync(_look, services, job_id, last_id)
            for event in batch:
                last_id = event.id
                yield ServerSentEvent(
                    id=str(event.id), event=event.kind.value, data={**event.data, "at": event.at.isoformat()}
                )
            if ended:
                return
            if len(batch) < _BATCH:
                await anyio.sleep(services.settings.events_poll_seconds)


def _look(services: Services, job_id: str, last_id: int) -> tuple[list[JobEvent], bool]:
    """One consistent view: a final state is seen together with all the events that led to it."""
    with services.database.reading() as session:
        batch = events.after(session, job_id, last_id, _BATCH)
        ended = len(batch) < _BATCH and jobs.get(session, job_id).state.is_final
    return batch, ended
