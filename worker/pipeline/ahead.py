"""Extraction of the leading tuner's tasks while the untuned builds are made.

Both keep one core busy for seconds to minutes, neither measures anything, and the search needs both. So they run side
by side, in two processes of the engine.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from domain import errors
from domain.ports import Canceled
from worker.engines import MAIN
from worker.pipeline import reuse
from worker.pipeline.context import EXTRACT_SECONDS, JobContext

AHEAD = "ahead"
"""Role of the process that extracts."""
_SHARE = 0.5
"""Of what is left of the job's total limit: stage ``plan``, which knows what the other stages need, may try again."""


@contextmanager
def extracted(context: JobContext) -> Iterator[threading.Event]:
    """Extract during the block, unless the tasks are known, and end when both are done.

    Stage ``plan`` finds the tasks in the store, or raises the extraction's error. The block sets the event if nobody
    needs the tasks: the extraction then ends, as it does if the block raises.
    """
    unneeded = threading.Event()
    is_needed = context.measures and reuse.known(context) is None
    for engine in context.toolchains:
        # Stage import may have started a process of this role, even of an engine that does not lead.
        if not (is_needed and engine == context.engine):
            context.engines.close(engine, role=AHEAD)
    if not is_needed:
        yield unneeded
        return
    left = context.limit.left
    seconds = EXTRACT_SECONDS if left is None else min(EXTRACT_SECONDS, _SHARE * left)
    extract = partial(
        reuse.tasks_of,
        replace(context, compilers=AHEAD),
        seconds=seconds,
        canceled=lambda: unneeded.is_set() or context.canceled(),
    )
    with ThreadPoolExecutor(1, thread_name_prefix="extract") as executor:
        extraction = executor.submit(contextvars.copy_context().run, extract)
        try:
            yield unneeded
        except BaseException:
            unneeded.set()
            raise
    _settle(context, extraction)


def _settle(context: JobContext, extraction: Future[Any]) -> None:
    error = extraction.exception()
    if error is None and context.engines.is_alive(context.engine, role=AHEAD):
        # It has the network that will be searched in its caches.
        context.engines.close(context.engine, role=MAIN)
        context.engines.change_role(context.engine, AHEAD, MAIN)
        return
    context.engines.close(context.engine, role=AHEAD)
    if error is None:
        # Another job had stored the same tasks in the meantime, so no process was needed.
        return
    if isinstance(error, Canceled):
        context.heartbeat.check()
        return
    if not isinstance(error, errors.TunesmithError):
        raise error
    if not isinstance(error, errors.EngineTimeout | errors.TimeLimit):
        context.extraction_errors[context.tuner] = error
