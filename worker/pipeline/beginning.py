"""Which engines and tuners may serve a job, and where it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from domain import errors
from domain.jobs import JobRequest, Placement, Tuner
from domain.targets import Toolchain
from storage import jobs
from worker.engines import EnginePool
from worker.pipeline import candidates, placing
from worker.pipeline.placing import Place
from worker.pipeline.work import Work


@dataclass(frozen=True, kw_only=True)
class Started:
    place: Place
    toolchains: dict[str, Toolchain]
    """Of the engines that compile for the target, by name, the preferred one first."""
    candidates: tuple[Tuner, ...]
    unavailable: tuple[str, ...]
    """One sentence for each engine that cannot be used."""
    plugins: dict[str, tuple[str, ...]]

    @property
    def placement(self) -> Placement:
        return self.placements[0]

    @property
    def placements(self) -> list[Placement]:
        """One for each toolchain."""
        return [
            Placement(target=self.place.target, device=self.place.device, toolchain=toolchain)
            for toolchain in self.toolchains.values()
        ]


def start(request: JobRequest, pool: EnginePool) -> Started:
    """Raises EngineError when no engine starts, UnknownTarget, UnsupportedTarget, InvalidOption."""
    hellos: dict[str, dict[str, Any]] = {}
    unavailable = []
    failures: list[errors.EngineError] = []
    for name in candidates.engines_of(request.tuner):
        try:
            hellos[name] = pool.get(name).hello
        except errors.EngineError as error:
            failures.append(error)
            unavailable.append(f"The {name} engine cannot be used: {error.message[:300].rstrip('.')}.")
    if not hellos:
        raise failures[0]
    place = placing.resolve(request, hellos)
    usable = {name: hellos[name] for name in place.engines}
    found = candidates.tuners(request.tuner, usable)
    names = dict.fromkeys(tuner.engine for tuner in found)
    return Started(
        place=place,
        toolchains={name: placing.toolchain(usable[name]) for name in names},
        candidates=found,
        unavailable=tuple(unavailable),
        plugins={name: tuple(map(str, usable[name].get("plugins", ()))) for name in names},
    )


def lead(work: Work, tuner: Tuner) -> Work:
    """The job with another leading tuner, for whoever looks up its records too. Raises LeaseLost."""
    led = replace(work, tuner=tuner)
    with work.database.transaction() as session:
        work.keeper.require(jobs.set_placement(session, work.job.id, work.lease, led.placement))
    return led
