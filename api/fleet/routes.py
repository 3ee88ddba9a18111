"""Workers, devices, targets and engines."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Literal

from fastapi import APIRouter

from api import schemas as shared
from api.auth import Reader
from api.fleet import schemas
from api.jobs import schemas as job_schemas
from api.paging import MOST_ENTRIES, LimitParam, PageTokenParam
from api.services import ServicesDep
from domain import release, targets
from domain.targets import Device
from domain.workers import fleet_warnings
from storage import owners, statements, workers

router = APIRouter(prefix="/v1", tags=["fleet"])


@router.get("/workers", operation_id="list_workers", response_model=schemas.Workers)
def list_workers(
    services: ServicesDep, principal: Reader, limit: LimitParam = MOST_ENTRIES, page_token: PageTokenParam = None
) -> schemas.Workers:
    """List the workers. Those that are not alive sent no recent heartbeat, and are removed after a while."""
    with services.database.reading() as session:
        known, following = workers.page(session, limit=limit, page_token=page_token)
        own = owners.jobs_of(session, [worker.current_job for worker in known if worker.current_job], principal)
        since = workers.living_since(session, services.settings.worker_alive_seconds)
        living = workers.known(session, seen_since=since)
    return schemas.Workers(
        workers=[schemas.worker(worker, alive=worker.last_seen_at >= since, jobs=own) for worker in known],
        warnings=[job_schemas.warning(one) for one in fleet_warnings(living, version=release.VERSION)],
        next_page_token=following,
    )


@router.get("/devices", operation_id="list_devices", response_model=schemas.Devices)
def list_devices(services: ServicesDep, principal: Reader) -> schemas.Devices:
    """List the live workers' devices, and the quarantined devices behind RPC trackers."""
    kinds: dict[str, Literal["cpu", "gpu"]] = {}
    devices: dict[str, Device] = {}
    count: Counter[str] = Counter()
    for worker in services.living_workers():
        # A worker with a GPU measures only on that.
        for device in worker.accelerators or (worker.device,):
            kinds[device.key] = "gpu" if worker.accelerators else "cpu"
            devices[device.key] = device
            count[device.key] += 1
    with services.database.reading() as session:
        aside = workers.quarantined(session, statements.now(session))
        own = owners.jobs_of(session, [one.job_id for one in aside], principal)
    return schemas.Devices(
        devices=[
            schemas.Device(key=key, name=device.name, kind=kinds[key], threads=device.threads, workers=count[key])
            for key, device in sorted(devices.items())
        ],
        quarantined=[
            shared.fill(schemas.QuarantinedDevice, one, job=one.job_id if one.job_id in own else None) for one in aside
        ],
    )


@router.get("/targets", operation_id="list_targets", response_model=schemas.Targets)
def list_targets(services: ServicesDep, _principal: Reader) -> schemas.Targets:
    """List the possible targets of a job."""
    living = services.living_workers()
    natives = {worker.native_target.text for worker in living}
    gpus = {_cuda_target(gpu) for worker in living for gpu in worker.accelerators}
    return schemas.Targets(
        targets=[targets.NATIVE, *sorted(natives), *sorted(filter(None, gpus))], kinds=list(targets.KINDS)
    )


def _cuda_target(gpu: Device) -> str | None:
    """Return the target of a GPU from its key, which ends in the architecture; None for an unknown one."""
    architecture = gpu.key.rpartition("/")[2]
    return f"cuda -arch={architecture}" if architecture in targets.GPU_ARCHITECTURES else None


@router.get("/engines", operation_id="list_engines", response_model=schemas.Engines)
def list_engines(services: ServicesDep, _principal: Reader) -> schemas.Engines:
    """List the live workers' engines and their toolchains."""
    toolchains: dict[str, set[str]] = defaultdict(set)
    count: Counter[str] = Counter()
    for worker in services.living_workers():
        for toolchain in worker.toolchains:
            toolchains[toolchain.engine].add(toolchain.identity)
        count.update({toolchain.engine for toolchain in worker.toolchains})
    return schemas.Engines(
        engines=[
            schemas.Engine(name=name, toolchains=sorted(found), workers=count[name])
            for name, found in sorted(toolchains.items())
        ]
    )
