"""Every tuner on devices behind a real tracker, and what becomes of jobs whose devices die."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from domain.artifacts import Variant
from tests.support import models
from tests.support.rpc.boards import KEY, Rack, rack
from tests.support.tuner.engines.relax import networks
from tests.system.worker.routes.service import Service
from tuner.host import catalogue, environments
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

LASTING = {"number": 1, "repeat": 3, "min_repeat_ms": 100}
"""Long enough that a device is at work when it goes."""
SHAPES = {"image": [1, 3, 12, 12]}


@pytest.fixture(scope="module")
def racks(shared: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Rack]]:
    """Two devices with each engine's TVM."""
    made = {}
    with contextlib.ExitStack() as stack:
        for name in ("relay", "relax"):
            python = environments.interpreter(catalogue.get(name), shared.home)
            made[name] = stack.enter_context(rack(python, tmp_path_factory.mktemp("boards"), 2))
        yield made


def on(boards: Rack, service: Service, key: str = KEY) -> dict[str, Any]:
    """What a request says of where to measure."""
    rpc = {"tracker": boards.address, "key": key, "session_timeout": 30.0}
    return {"runner": "rpc", "rpc": rpc, "target": service.worker.native_target.text}


def ending(boards: Rack, count: int, ended: list[str]) -> Any:
    """Kill the first ``count`` devices that measure anything but the first candidate, which may have no successor."""

    def hear(_: EngineSession, kind: str, data: dict[str, Any]) -> None:
        if kind == "trial" and data["trial_number"] and len(ended) < count and data["device"] not in ended:
            ended.append(data["device"])
            boards.end(data["device"])

    return hear


def check(service: Service, job: dict[str, Any], trials: int) -> None:
    """All trials are stored as measured on that kind of device, and the artifact was proven there."""
    assert job["placement"]["device_key"] == f"rpc/{KEY}/t1"
    found = service.records(job["id"])
    assert len(found) == job["trials_done"] == trials
    assert len({(record.key.workload_key, record.schedule_digest) for record in found}) == trials
    assert {record.key.device_key for record in found} == {f"rpc/{KEY}/t1"}
    artifact = service.artifact(job["id"])
    assert (artifact.verified, artifact.device_key) == (True, f"rpc/{KEY}/t1")
    # What ONNX Runtime takes here says nothing about the device.
    assert set(artifact.report.timings) == {Variant.UNTUNED, Variant.TUNED}
    assert artifact.report.speedup_over_reference is None
    assert all(each.passed for each in artifact.report.verifications.values())


@pytest.mark.parametrize("tuner", ["autotvm", "ansor"])
def test_devices_measure_and_prove(service: Service, racks: dict[str, Rack], tuner: str) -> None:
    boards, devices = racks["relay"], set()

    def hear(_: EngineSession, kind: str, data: dict[str, Any]) -> None:
        devices.update([data["device"]] if kind == "trial" else [])

    service.hear = hear
    place = on(boards, service)
    # So long that no device can do all of them while the other one is at its first.
    job = service.finish(
        models.small_network(seed=1), input_shapes=SHAPES, tuner=tuner, trials=8, measure=LASTING, **place
    )
    check(service, job, 8)
    assert devices == boards.registered()


def test_a_job_goes_on_without_a_device_that_dies(service: Service, racks: dict[str, Rack]) -> None:
    boards, ended = racks["relax"], []
    service.hear = ending(boards, 1, ended)
    place = on(boards, service)
    job = service.finish(networks.matmul(rows=20), tuner="metaschedule", trials=10, measure=LASTING, **place)
    [dying] = ended
    check(service, job, 10)
    assert all(record.error not in ("device_lost", "run_timeout") for record in service.records(job["id"]))
    [lost] = service.client.get("/v1/devices").json()["quarantined"]
    assert (lost["id"], lost["job"]) == (f"{boards.address}/{KEY}/{dying}", job["id"])
    assert "no longer at the tracker" in lost["reason"]
    assert any(f"device {dying} lost" in note for note in service.notes(job["id"]))


def test_boards_with_another_release_of_tvm_are_told(service: Service, racks: dict[str, Rack]) -> None:
    boards = racks["relay"]
    job = service.work(service.submit(networks.matmul(rows=20), tuner="metaschedule", **on(boards, service)))
    assert (job["state"], job["failure"]["code"], job["stage"]) == ("failed", "no_device", "baseline")
    assert "its TVM release is incompatible" in job["failure"]["message"]
    assert "0.27 for metaschedule" in job["failure"]["hint"]
    # They are good for others.
    assert boards.address not in str(service.client.get("/v1/devices").json()["quarantined"])
    assert len(boards.registered()) == 2


def test_a_job_without_any_device_left_says_so(service: Service, racks: dict[str, Rack]) -> None:
    boards, ended = racks["relay"], []
    devices = boards.registered()
    service.hear = ending(boards, len(devices), ended)
    place = on(boards, service)
    more = {"input_shapes": {"image": [1, 3, 20, 20]}, "tuner": "autotvm", "measure": LASTING, **place}
    job = service.work(service.submit(models.small_network(seed=1), trials=16, **more))
    assert set(ended) == devices
    assert (job["state"], job["failure"]["code"], job["stage"]) == ("failed", "device_lost", "tune")
    assert set(job["failure"]["details"]["devices"]) == devices
    assert "finished trials are kept" in job["failure"]["hint"]
    kept = [record for record in service.records(job["id"]) if record.error is None]
    assert len(kept) >= 2
    # No device is left for the next job either.
    job = service.work(service.submit(models.small_network(seed=1), trials=16, **more))
    assert (job["state"], job["failure"]["code"]) == ("failed", "no_device")
