"""Placement: the target and device of a job, and the engines and tuners that may serve it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from domain import errors, placing
from domain.jobs import JobRequest, Placement, Tuner
from domain.placing import Host
from domain.targets import Device, Target, Toolchain, kind_of
from storage import jobs
from tuner.host import hardware
from worker.engines import EnginePool
from worker.pipeline import beside
from worker.pipeline.context import JobContext

Hello = Mapping[str, Any]


def _resolve(request: JobRequest, hellos: Mapping[str, Hello]) -> tuple[Target, Device, list[str]]:
    """Return the target, its device, and the names of the engines that compile for it.

    ``hellos`` by engine, the preferred one first. Raises UnknownTarget, UnsupportedTarget, InvalidOption.
    """
    host = _host(request, list(hellos.values()))
    text = placing.text_for(request, host)
    refusals = {name: _refusal(text, hello) for name, hello in hellos.items()}
    engines = [name for name, refusal in refusals.items() if refusal is None]
    for refusal in refusals.values():
        if refusal is not None and not engines:
            raise refusal
    # After the check of the engines: a target that none supports needs no device.
    return *placing.resolve(request, host), engines


def native_text(hello: Hello) -> str:
    return f"llvm -mcpu={hello['mcpu']}"


def foreign_cpus(hellos: Iterable[Hello]) -> tuple[str, ...]:
    return tuple(sorted({str(name) for hello in hellos for name in hello.get("foreign_cpus", ())}))


def _host(request: JobRequest, hellos: Sequence[Hello]) -> Host:
    """Describe this host; its GPUs only if the request needs one."""
    return Host(
        native=native_text(hellos[0]),
        cpu=hardware.device(),
        accelerators=hardware.accelerators() if kind_of(request.target) == "cuda" else (),
        foreign_cpus=foreign_cpus(hellos),
    )


def _refusal(text: str, hello: Hello) -> errors.TunesmithError | None:
    """The reason why that engine does not compile for the target, or None."""
    kind, *options = text.split()
    kinds = hello.get("kinds", ["llvm"])
    if kind not in kinds:
        name = hello["toolchain"]["engine"]
        return errors.UnsupportedTarget(f"the {name} engine compiles for {' and '.join(kinds)}, not for {kind!r}")
    for option in options:
        name, _, value = option.partition("=")
        # The list has the CPUs of this machine's architecture only.
        if name == "-mcpu" and "-mtriple=" not in text and value not in hello["cpus"]:
            near = difflib.get_close_matches(value, hello["cpus"], n=3, cutoff=0.4)
            hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else None
            return errors.UnknownTarget(
                f"LLVM {hello['toolchain']['llvm']} does not know CPU {value!r}",
                hint=hint,
                details={"near_matches": near},
            )
    return None


def tuners(request: JobRequest, hellos: Mapping[str, Mapping[str, Any]]) -> tuple[Tuner, ...]:
    """The request's tuners that the engines have. Raises EngineNotInstalled if there is none."""
    found = tuple(each for each in request.tuners if each.engine in hellos and each in hellos[each.engine]["tuners"])
    if not found:
        raise errors.EngineNotInstalled(
            f"no installed engine has tuner {str(request.tuner)!r}",
            hint="Update the engines: tunesmith engines install.",
        )
    return found


def of_engine(context: JobContext, engine: str) -> Tuner:
    """The preferred tuner of that engine; the leading one if no candidate belongs to it."""
    return next((tuner for tuner in context.candidates if tuner.engine == engine), context.tuner)


def usable(context: JobContext) -> list[Tuner]:
    """Tuners of engines whose untuned builds are correct, the leading one first."""
    right = context.results.baseline.engines
    found = [tuner for tuner in context.candidates if tuner.engine in right]
    return sorted(found, key=lambda tuner: tuner is not context.tuner)


@dataclass(frozen=True, kw_only=True)
class StartedEngines:
    target: Target
    device: Device
    toolchains: dict[str, Toolchain]
    """Toolchains of the engines that compile for the target, by name, the preferred one first."""
    candidates: tuple[Tuner, ...]
    unavailable: tuple[str, ...]
    """One sentence for each engine that cannot be used."""
    plugins: dict[str, tuple[str, ...]]

    @property
    def placement(self) -> Placement:
        return self.placements[0]

    @property
    def placements(self) -> list[Placement]:
        """One placement for each toolchain."""
        return [
            Placement(target=self.target, device=self.device, toolchain=toolchain)
            for toolchain in self.toolchains.values()
        ]


def start(request: JobRequest, pool: EnginePool) -> StartedEngines:
    """Raises EngineError when no engine starts, UnknownTarget, UnsupportedTarget, InvalidOption."""
    hellos: dict[str, dict[str, Any]] = {}
    unavailable = []
    failures: list[errors.EngineError] = []
    # Each imports TVM for a second or two.
    names = dict.fromkeys(tuner.engine for tuner in request.tuners)
    with beside.started({name: partial(pool.get, name) for name in names}) as started:
        for name, engine in started.items():
            try:
                hellos[name] = engine.result().hello
            except errors.EngineError as error:
                failures.append(error)
                unavailable.append(f"The {name} engine cannot be used: {error.message[:300].rstrip('.')}.")
    if not hellos:
        raise failures[0]
    target, device, able = _resolve(request, hellos)
    usable = {name: hellos[name] for name in able}
    found = tuners(request, usable)
    names = dict.fromkeys(tuner.engine for tuner in found)
    return StartedEngines(
        target=target,
        device=device,
        toolchains={name: Toolchain.of(usable[name]) for name in names},
        candidates=found,
        unavailable=tuple(unavailable),
        plugins={name: tuple(map(str, usable[name].get("plugins", ()))) for name in names},
    )


def lead(context: JobContext, tuner: Tuner) -> JobContext:
    """Make that tuner the leading one, also in the database, where records are looked up by it. Raises LeaseLost."""
    led = replace(context, tuner=tuner)
    with context.database.transaction() as session:
        context.heartbeat.require(jobs.set_placement(session, context.job.id, context.lease, led.placement))
    return led
