"""Imports that would stop the API if it read them itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.api.factories import AUTHORIZED, open_service
from tests.support.api.live import serving
from tests.support.hostile.tars import hostile
from tests.unit.tuner.native.test_formats import AUTOTVM
from tuner.host.record_reading import RecordReader
from tuner.host.settings import TunerSettings

PLACE = {"device": "a device/t2", "toolchain": "relax/tvm-0.27.0/llvm-22", "target": "llvm -mcpu=skylake-avx512"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    reader = RecordReader(home=tmp_path, settings=TunerSettings())
    with (
        open_service(tmp_path, read_records=reader.read) as service,
        serving(service) as url,
        httpx.Client(base_url=url, headers=AUTHORIZED, timeout=60, trust_env=False) as client,
    ):
        yield client


@pytest.mark.alone
@pytest.mark.parametrize("name", hostile())
def test_a_hostile_archive_is_refused_while_others_are_answered(client: httpx.Client, name: str) -> None:
    answers: list[httpx.Response] = []

    def send() -> None:
        answers.append(client.post("/v1/records", params={"tuner": "metaschedule", **PLACE}, content=hostile()[name]))

    sending = threading.Thread(target=send)
    started = time.monotonic()
    sending.start()
    waits = []
    while sending.is_alive():
        before = time.monotonic()
        assert client.get("/v1/models").status_code == 200
        waits.append(time.monotonic() - before)
    sending.join()
    assert time.monotonic() - started < 2
    assert max(waits) < 0.5
    (answer,) = answers
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert answer.json()["hint"]


def test_records_are_imported_by_the_process_that_reads_them(client: httpx.Client) -> None:
    place = {**PLACE, "toolchain": "relay/tvm-0.19.0/llvm-22"}
    answer = client.post("/v1/records", params={"tuner": "autotvm", **place}, content="\n".join(AUTOTVM))
    assert (answer.status_code, answer.json()["imported"]) == (200, len(AUTOTVM)), answer.text
