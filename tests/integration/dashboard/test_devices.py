"""What pages call devices: as workers do, wherever one has told."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from api.fleet import device_names
from api.fleet.device_names import DeviceNames
from domain.targets import Device
from tests.support.api.factories import Service
from tests.support.dashboard.stories import DEVICE
from tests.support.dashboard.variety import Various

_ZEN = Device(key="x86_64/authenticamd-26-2-amd-epyc/avx2+fma/t2", name="AMD EPYC", threads=2)
_OLDER = Device(key="x86_64/authenticamd-25-1-amd-epyc/avx2+fma/t2", name="AMD EPYC", threads=2)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (_ZEN.key, "amd-epyc, 2 threads"),
        ("x86_64/genuineintel-6-143-intel-xeon-platinum/avx512f/t1", "intel-xeon-platinum, 1 thread"),
        ("aarch64/cortex-a72/neon/t4", "cortex-a72, 4 threads"),
        ("cuda/nvidia-h200/sm_90", "nvidia-h200"),
        ("rpc/pi4/t4", "pi4, 4 threads"),
        ("none/t2", "none, 2 threads"),
    ],
)
def test_the_key_tells_of_those_that_no_worker_told_of(key: str, name: str) -> None:
    assert DeviceNames([])(key) == name


def test_workers_names_come_first() -> None:
    assert DeviceNames([_ZEN, _ZEN])(_ZEN.key) == "AMD EPYC, 2 threads"


def test_those_called_the_same_are_told_apart() -> None:
    found = DeviceNames([_ZEN, _OLDER])
    assert found(_ZEN.key) == f"AMD EPYC, 2 threads ({_ZEN.key})"
    assert found(_ZEN.key) != found(_OLDER.key)


def test_names_are_those_of_the_fleet(varied: tuple[Service, Various]) -> None:
    with varied[0].database.reading() as session:
        assert device_names.names(session)(DEVICE.key) == f"{DEVICE.name}, 2 threads"
        assert device_names.names(session)(_ZEN.key) == "amd-epyc, 2 threads"
        assert device_names.names(session, _ZEN)(_ZEN.key) == "AMD EPYC, 2 threads"


def test_every_page_says_the_same(looking: TestClient, various: Various) -> None:
    model = looking.get(f"/v1/jobs/{various.auto}").json()["model"]
    compared = f"/compare?job={various.auto}&job={various.ansor}"
    for path in ("/records", "/models", f"/models/{model}", compared):
        page = looking.get(path).text
        assert f"{DEVICE.name}, 2 threads" in page
        assert "amd-epyc-7r13, 2 threads" not in page
