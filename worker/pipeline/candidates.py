"""Tuners and engines that may still serve a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain import errors
from domain.jobs import Stage, Tuner
from worker.pipeline.work import Work


def engines_of(tuner: Tuner) -> list[str]:
    """Names of the engines that a request for this tuner may use, the preferred one first."""
    return list(dict.fromkeys(each.engine for each in tuner.considered))


def tuners(asked: Tuner, hellos: Mapping[str, Mapping[str, Any]]) -> tuple[Tuner, ...]:
    """Those of the request that the engines have. Raises EngineNotInstalled when an engine lacks the one asked for."""
    found = tuple(each for each in asked.considered if each.engine in hellos and each in hellos[each.engine]["tuners"])
    if not found:
        raise errors.EngineNotInstalled(
            f"the installed engines have no tuner {str(asked)!r}", hint="Update them: tunesmith engines install."
        )
    return found


def engines(work: Work) -> list[str]:
    """Those that import the model."""
    return list(work.outcomes[Stage.IMPORT]["engines"])


def of_engine(work: Work, engine: str) -> Tuner:
    """The tuner to prefer if ``engine`` is the best; the one asked for, where one was."""
    return next((tuner for tuner in work.candidates if tuner.engine == engine), work.tuner)


def usable(work: Work) -> list[Tuner]:
    """Tuners of engines whose untuned builds are right, the leading one first."""
    right = work.outcomes[Stage.BASELINE]["engines"]
    found = [tuner for tuner in work.candidates if tuner.engine in right]
    return sorted(found, key=lambda tuner: tuner is not work.tuner)
