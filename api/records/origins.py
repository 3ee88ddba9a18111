"""Target, device and toolchain of imported records, with defaults from the live workers."""

from __future__ import annotations

import re

from api.services import Services
from domain import errors, targets
from domain.jobs import Tuner
from domain.targets import Device, Toolchain
from domain.workers import Worker
from tuner.native.importing import RecordOrigin

_TOOLCHAIN = re.compile(r"(?P<engine>[a-z]+)/tvm-(?P<tvm>[^/\s]+)/llvm-(?P<llvm>[^/\s]+)")
_THREADS_OF_DEVICE = re.compile(r".*/t([0-9]+)")


def tuner(text: str) -> Tuner:
    """Parse the name of a tuner that has records. Raises UnknownTuner."""
    known = [known for known in Tuner if known is not Tuner.AUTO]
    if text not in known:
        names = ", ".join(known)
        raise errors.UnknownTuner(
            f"no records of tuner {text[:80]!r}; the tuners are {names}", hint=f"Use one of {names}."
        )
    return Tuner(text)


def wanted_target(services: Services, text: str | None) -> str | None:
    """Return the target of a filter in canonical form. Raises UnknownTarget, and InvalidRequest if it is ambiguous."""
    found = None if text is None else targets.canonical(text)
    return _native(services) if found == targets.NATIVE else found


def _native(services: Services) -> str:
    """Return the native target of the live workers. Raises InvalidRequest if it is not the same for all."""
    found = {worker.native_target.identity for worker in services.living_workers()}
    if len(found) != 1:
        which = "the live workers have several targets" if found else "no worker is alive"
        raise errors.InvalidRequest(
            f"'native' is ambiguous: {which}",
            hint="Set the target; GET /v1/targets lists the workers' targets.",
        )
    return found.pop()


def of_import(
    services: Services,
    chosen: Tuner,
    *,
    target: str | None,
    threads: int | None,
    device: str | None,
    toolchain: str | None,
) -> RecordOrigin:
    """Return the origin of an import; missing parts are those of the only live worker with the tuner's engine.

    Raises UnknownTarget, InvalidOption, and InvalidRequest if a missing part is ambiguous.
    """
    text, cores = targets.split_threads(target) if target else (None, "")
    if cores:
        named = int(cores.rpartition("=")[2])
        if threads not in (None, named):
            raise errors.InvalidOption(f"the target has {named} threads, but threads is {threads}")
        threads = named
    text = targets.check_text(text) if text else None
    needs_worker = not device or not toolchain or text == targets.NATIVE
    worker = _only_worker(services, chosen) if needs_worker else None
    if worker and text == targets.NATIVE:
        text, threads = worker.native_target.text, threads or worker.native_target.threads
    return RecordOrigin(
        tuner=chosen,
        toolchain=_toolchain(toolchain, chosen) if toolchain else _toolchain_of(worker, chosen),
        device=_named(device) if device else _device_of(worker, text),
        device_is_exact=bool(device),
        target=text,
        threads=threads,
    )


def _only_worker(services: Services, chosen: Tuner) -> Worker:
    able = [
        worker
        for worker in services.living_workers()
        if any(each.engine == chosen.engine for each in worker.toolchains)
    ]
    kinds = {
        (worker.native_target.identity, worker.device.key, worker.accelerators, _toolchain_of(worker, chosen))
        for worker in able
    }
    if len(kinds) != 1:
        known = sorted({worker.device.key for worker in able})
        which = "several different workers run" if able else "no live worker runs"
        raise errors.InvalidRequest(
            f"set device and toolchain: {which} the {chosen.engine} engine",
            hint="See GET /v1/devices and GET /v1/engines.",
            details={"devices": known, "toolchains": sorted({_toolchain_of(one, chosen).identity for one in able})},
        )
    return able[0]


def _toolchain_of(worker: Worker | None, chosen: Tuner) -> Toolchain:
    assert worker is not None  # noqa: S101 - there is one wherever a field is missing
    return next(each for each in worker.toolchains if each.engine == chosen.engine)


def _device_of(worker: Worker | None, text: str | None) -> Device:
    assert worker is not None  # noqa: S101 - as above
    if text is not None and targets.kind_of(text) == "cuda":
        if not worker.accelerators:
            raise errors.InvalidRequest("set the device: no live worker has a GPU", hint="See GET /v1/devices.")
        return worker.accelerators[0]
    return worker.device


def _named(key: str) -> Device:
    match = _THREADS_OF_DEVICE.fullmatch(key)
    return Device(key=key, name=key, threads=int(match[1][:6]) if match else 1)


def _toolchain(text: str, chosen: Tuner) -> Toolchain:
    match = _TOOLCHAIN.fullmatch(text)
    if match is None or match["engine"] != chosen.engine:
        raise errors.InvalidOption(
            f"{text[:80]!r} is not a toolchain of {chosen.value}",
            hint=f"Write {chosen.engine}/tvm-VERSION/llvm-VERSION; GET /v1/engines lists the workers' toolchains.",
        )
    return Toolchain(**match.groupdict())
