"""Coverage of the record store and the best of each workload."""

from __future__ import annotations

import re
import threading
from functools import partial
from html import unescape
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from api.records.page import RecordOverview
from storage import counts, records
from storage.database import Database
from tests.integration.dashboard.test_models_page import jobs_in, rows
from tests.support.api.factories import Service
from tests.support.dashboard.variety import Various
from tests.support.dashboard.visitors import visitor
from tests.support.storage.factories import record


def test_coverage_is_told_by_place(looking: TestClient, varied: tuple[Service, Various]) -> None:
    with varied[0].database.reading() as session:
        trials = counts.newest_record(session)
    page = looking.get("/records").text
    here, there = rows(page)[:2]
    assert f"{trials} trials measured by workers" in page
    assert here.startswith("AMD EPYC 7R13, 2 threads llvm -mcpu=znver3 -num-cores=2 autotvm relay, TVM 0.19.0")
    assert there.startswith("NVIDIA H200 cuda -arch=sm_90 -num-cores=1 metaschedule relax, TVM 0.27.0")
    assert " 30 90 33 % " in there
    for address in re.findall(r'href="(/v1/records[^"]+)"', page):
        answer = looking.get(unescape(address))
        assert answer.status_code == 200
        assert "attachment" in answer.headers["content-disposition"]


def test_workloads_are_searched_and_paged(looking: TestClient) -> None:
    first = looking.get("/records?tuner=metaschedule").text
    second = looking.get("/records?tuner=metaschedule&page=2").text
    assert "Page 1 of 2" in first
    found = [[row for row in rows(page) if row.startswith("matmul")] for page in (first, second)]
    assert [len(each) for each in found] == [25, 5]
    assert not set(found[0]) & set(found[1])
    assert "<i>" not in first
    dense = [row for row in rows(looking.get("/records?text=DENSE+512").text) if row.startswith("dense")]
    assert len(dense) == 1
    assert "GFLOPS" not in dense[0]
    assert "No workload matches all filters" in looking.get("/records?text=nothing+like+this").text
    assert "There are no more workloads" in looking.get("/records?page=99").text
    assert looking.get("/records?page=0").status_code == 400


def test_records_are_everybodys_and_jobs_are_not(varied: tuple[Service, Various]) -> None:
    page = visitor(varied[0], "ada").get("/records").text
    assert "metaschedule" in page
    assert jobs_in(page) == set()


def test_imports_are_told_apart_to_their_owner(looking: TestClient, varied: tuple[Service, Various]) -> None:
    (row,) = [row for row in rows(looking.get("/records").text) if "Export imported records" in row]
    assert "NVIDIA H200" in row
    assert " local 5 0 0 0 2 " in row
    assert "Export imported records" not in visitor(varied[0], "ada").get("/records").text


def test_the_store_is_counted_once_for_a_while(service: Service) -> None:
    now = [0.0]
    kept = RecordOverview(clock=lambda: now[0])

    def trials() -> int:
        found = kept.get(service.database, patience=60)
        assert found is not None
        return found.trials

    add(service, "a")
    assert trials() == 1
    add(service, "b")
    assert trials() == 1
    now[0] = 11.0
    assert trials() == 2


def test_a_store_that_is_being_counted_is_waited_for_in_the_browser(client: TestClient, service: Service) -> None:
    go_on = threading.Event()
    overview = service.app.state.record_overview
    count = overview._count
    overview._count = lambda database: (go_on.wait(20), count(database))
    kept = partial(overview.get, service.database, patience=0.01)
    service.app.state.record_overview = SimpleNamespace(get=lambda _database: kept())
    add(service, "a")
    page = client.get("/records?text=den").text
    assert "Counting records" in page
    assert 'hx-get="/records?text=den&amp;page=1"' in page
    go_on.set()
    assert overview.get(service.database, patience=60) is not None
    assert "1 trial measured by workers, 0 failed" in client.get("/records").text


def test_a_count_that_fails_is_made_again(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    kept = RecordOverview()
    broken = Database(f"sqlite:///{service.home / 'no tables.sqlite3'}")
    assert kept.get(broken, patience=60) is None
    broken.close()
    assert "could not be counted" in caplog.text
    assert kept.get(service.database, patience=60) is not None


def add(service: Service, schedule: str) -> None:
    with service.database.transaction() as session:
        records.add(session, [record("dense", 1e-3, schedule=schedule)])
