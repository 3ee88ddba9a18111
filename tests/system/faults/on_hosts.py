"""Faults of the hosts that workers run on: their disks, their clocks, what is installed there."""

from __future__ import annotations

import shutil

from domain import release
from storage.migrations import running
from tests.support.topology.parts import Part
from tests.support.topology.running import Topology
from tests.system.faults.scene import Scene
from tests.system.faults.trying import Fault, NotHere
from tuner.host.catalogue import ROOT

SMALL = "host-2"
"""The host with a small disk."""
_HOUR = 3600
_SECONDS = 5.0


def leave_to_the_small_disk(topology: Topology) -> None:
    """The next job is worked on there: the other workers are stopped meanwhile."""
    if topology.host(SMALL).disk is None:
        raise NotHere("it takes the right to mount a small file system")
    for part in topology.workers.values():
        if part.home != topology.host(SMALL).home:
            part.stop()


def fill_disk(scene: Scene) -> None:
    """Nobody else is there to go on with the job until there is room again."""
    topology = scene.topology
    disk = topology.host(SMALL).disk
    assert disk
    disk.fill()
    assert disk.is_full()
    scene.pass_time(_SECONDS)
    disk.free()
    for part in topology.workers.values():
        part.wanted = True


def jump_clocks(scene: Scene) -> None:
    """The job's host goes an hour ahead and all others an hour back, then the other way round, then all are right."""
    held = scene.holder().home
    hosts = scene.topology.hosts.values()
    for hours in (1, -1, 0):
        for host in hosts:
            host.clock.jump(hours * _HOUR if host.home == held else -hours * _HOUR)
        scene.pass_time(_SECONDS)


def join_with_an_older_release(scene: Scene) -> None:
    """A worker whose release knows neither the newest tables nor its own name beside the others'."""
    part = _older_worker(scene.topology)
    part.start()
    scene.wait(lambda: not part.runs, "the older worker says that it cannot work", seconds=60)
    status = part.stop()
    log = part.log.read_text(errors="replace")
    assert "newer" in log, f"the older worker says nothing of a newer release: {log[-1000:]}"
    scene.notes.append(f"the older worker ended with status {status}")


def _older_worker(topology: Topology) -> Part:
    """From a copy of this checkout whose newest revision is an earlier one."""
    copy = topology.folder / "older"
    if not copy.exists():
        packages = [path.parent for path in ROOT.glob("*/__init__.py")]
        for package in (*packages, ROOT / "tests"):
            shutil.copytree(package, copy / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        newest = sorted((copy / "storage" / "migrations" / "versions").glob("r*.py"))[-1]
        newest.write_text(newest.read_text().replace(f'revision = "{running.newest()}"', 'revision = "0099"'))
        source = copy / "domain" / "release.py"
        source.write_text(source.read_text().replace(release.VERSION, "0.0.1"))
    part = topology.add_worker("older-worker", "host-3")
    del topology.workers["older-worker"]
    part.wanted, part.folder = False, copy
    part.environment["PYTHONPATH"] = str(copy)
    return part


FAULTS = (
    Fault(name="disk", title="disk full in the home folder", strike=fill_disk, prepare=leave_to_the_small_disk),
    Fault(name="clock", title="clocks jump by an hour, both ways", strike=jump_clocks),
    Fault(name="older", title="a worker of an older release joins", strike=join_with_an_older_release),
)
