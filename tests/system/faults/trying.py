"""Doing a fault to a job in the middle of its search, and holding the outcome against what was promised."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from domain.jobs import JobState
from tests.support.topology.engines import Engines
from tests.support.topology.running import Topology
from tests.system.faults.ledger import Ledger
from tests.system.faults.scene import Scene

_LEAVE_SECONDS = 20.0
_BACK_SECONDS = 120.0


class NotHere(Exception):
    """This machine cannot do such a fault; the message says what it lacks."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    title: str
    strike: Callable[[Scene], None]
    """Does the fault, and returns once it is over; raises NotHere."""
    engines: Engines = Engines.SCRIPTED
    back: Callable[[Scene], bool] | None = None
    """What tells that the service has recovered; by default that the job's next trial is stored."""
    fails: str | None = None
    """The code with which the job is to fail; by default it is to succeed."""
    size: int | None = None
    silences_host: bool = False
    """Whether a host may die with trials that it finished and could not tell: they are counted by themselves then."""
    mid_tune: bool = True
    """Whether the fault is done in the middle of the search; otherwise as soon as the job is queued."""
    prepare: Callable[[Topology], None] | None = None
    """What is done before the job is submitted; raises NotHere."""


@dataclass(kw_only=True)
class Try:
    """What came of one."""

    recovered: float
    """Seconds from the fault's end."""
    seconds: float
    """From the submission to the job's end."""
    before: int
    """Trials that were stored when it was struck."""
    trials: int
    lost: int
    """Trials that were stored before the fault, or finished where the job ended, and are not there in the end."""
    unreported: int
    """Trials that a host finished and could not store before it died; on its disk, measured again elsewhere or not."""
    twice: int
    """Other trials that were measured again."""
    attempts: int
    wrong: list[str] = field(default_factory=list)
    """Promises that were not kept."""
    notes: list[str] = field(default_factory=list)


def attempt(fault: Fault, topology: Topology, number: int) -> Try:
    """Leaves the topology whole. Raises NotHere, and AssertionError when something does not come to an end."""
    try:
        return _attempt(fault, topology, number)
    finally:
        topology.heal()


def _attempt(fault: Fault, topology: Topology, number: int) -> Try:
    homes = [host.home for host in topology.hosts.values()]
    if fault.prepare:
        fault.prepare(topology)
    two_before = topology.two_at_once()
    with Ledger(homes) as ledger:
        scene = Scene(topology=topology, ledger=ledger, number=number)
        started = time.monotonic()
        scene.job_id = scene.submit(size=fault.size)
        if fault.mid_tune:
            scene.wait_until_tuning()
        before = scene.stored()
        fault.strike(scene)
        known = scene.stored()
        struck = len(known)
        back = fault.back or (lambda scene: len(scene.stored()) > struck or scene.job().state.is_final)
        recovered = scene.wait(lambda: back(scene), f"{fault.title}: recovered", seconds=_BACK_SECONDS)
        job = scene.wait_until_done()
        seconds = time.monotonic() - started
        after, paid = scene.stored(), ledger.paid(scene.job_id)
        lost = (before | set(ledger.paid(scene.job_id, home=scene.home))) - after
        again = {trial for trial, times in paid.items() if times > 1}
        elsewhere = {trial for home in homes if home != scene.home for trial in ledger.paid(scene.job_id, home=home)}
        silent = (again & elsewhere) - known if fault.silences_host else set()
        tried = Try(
            recovered=recovered,
            seconds=seconds,
            before=len(before),
            trials=len(after),
            lost=len(lost),
            unreported=len(set(paid) - after - lost) + len(silent),
            twice=paid.total() - len(paid) - len(silent),
            attempts=job.attempts,
            notes=scene.notes,
        )
        tried.wrong += _wrong_result(fault, scene, len(after))
        tried.wrong += [
            f"job {other} ended as {scene.wait_until_done(other).state}"
            for other in scene.others
            if scene.wait_until_done(other).state is not JobState.SUCCEEDED
        ]
    if fault.mid_tune and tried.before >= tried.trials:
        tried.wrong.append("the search had ended before the fault")
    tried.wrong += _left_behind(topology, two_before)
    tried.wrong += _wrong_trials(fault, tried)
    return tried


def _wrong_trials(fault: Fault, tried: Try) -> list[str]:
    found = {
        "finished trials lost": tried.lost,
        "finished trials never reported": 0 if fault.silences_host else tried.unreported,
        "trials paid twice": tried.twice,
    }
    return [f"{number} {what}" for what, number in found.items() if number]


def _wrong_result(fault: Fault, scene: Scene, stored: int) -> list[str]:
    job = scene.job()
    code = job.failure.code if job.failure else None
    if fault.fails:
        return [] if code == fault.fails else [f"it ended as {job.state} with {code}, not with {fault.fails}"]
    if job.state is not JobState.SUCCEEDED:
        return [f"it ended as {job.state}: {job.failure}"]
    wrong = []
    if not job.trials_done == job.trials_planned == stored:
        wrong.append(f"{job.trials_planned} trials were planned, {job.trials_done} reported, {stored} are stored")
    report = scene.report()
    if not all(each["passed"] for each in report["verifications"].values()):
        wrong.append("a build was not verified")
    if not set(report["timings"]) >= {"reference", "untuned", "tuned"}:
        wrong.append(f"only {sorted(report['timings'])} were timed")
    return wrong + _wrong_bundle(scene)


def _wrong_bundle(scene: Scene) -> list[str]:
    client, artifact_id = scene.topology.client, scene.job().artifact_id
    artifact = client.get(f"/v1/artifacts/{artifact_id}").json()
    bundle = client.get(f"/v1/artifacts/{artifact_id}/download")
    digest = hashlib.sha256(bundle.content).hexdigest()
    return (
        [] if bundle.status_code == 200 and digest == artifact["digest"] else [f"the bundle is not there: {artifact}"]
    )


def _left_behind(topology: Topology, two_before: int) -> list[str]:
    wrong = []
    deadline = time.monotonic() + _LEAVE_SECONDS
    while (left := topology.engines_alive()) and time.monotonic() < deadline:
        topology.tend()
        time.sleep(0.1)
    if left:
        wrong.append(f"engine processes left behind: {left}")
    two = topology.two_at_once() - two_before
    if two:
        wrong.append(f"{two} measurements beside another one")
    if not topology.measured():
        wrong.append("no measurement was witnessed at all")
    return wrong
