"""Coverage of the record store and the best of each workload."""

from __future__ import annotations

import re
import threading
from html import unescape

from fastapi.testclient import TestClient

from api.dashboard.record_overview import RecordOverview
from storage import counts, records
from tests.api.factories import Service
from tests.dashboard.test_models_page import jobs_in, rows
from tests.dashboard.variety import Various
from tests.dashboard.visitors import visitor
from tests.storage.factories import record


def test_an_empty_store_says_what_fills_it(client: TestClient) -> None:
    page = client.get("/records")
    assert page.status_code == 200
    assert "No records yet" in page.text
    assert "tunesmith records import" in page.text


def test_coverage_is_told_by_place(looking: TestClient, varied: tuple[Service, Various]) -> None:
    with varied[0].database.reading() as session:
        trials = counts.newest_record(session)
    page = looking.get("/records").text
    here, there = rows(page)[:2]
    assert f"{trials} trials on record" in page
    assert here.startswith("amd-epyc-7r13, 2 threads llvm -mcpu=znver3 -num-cores=2 autotvm relay, TVM 0.19.0")
    assert there.startswith("nvidia-h200 cuda -arch=sm_90 -num-cores=1 metaschedule relax, TVM 0.27.0")
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
    assert "No workload on record" in looking.get("/records?text=nothing+like+this").text
    assert "There are no more workloads" in looking.get("/records?page=99").text
    assert looking.get("/records?page=0").status_code == 400


def test_records_are_everybodys_and_jobs_are_not(varied: tuple[Service, Various]) -> None:
    page = visitor(varied[0], "ada").get("/records").text
    assert "metaschedule" in page
    assert jobs_in(page) == set()


def test_the_store_is_counted_once_for_a_while(service: Service) -> None:
    now = [0.0]
    kept = RecordOverview(clock=lambda: now[0])

    def add(schedule: str) -> None:
        with service.database.transaction() as session:
            records.add(session, [record("dense", 1e-3, schedule=schedule)])

    add("a")
    assert kept.get(service.database).trials == 1
    add("b")
    assert kept.get(service.database).trials == 1
    now[0] = 11.0
    assert kept.get(service.database).trials == 2


def test_while_one_counts_others_get_what_was_counted_before(service: Service) -> None:
    ticks = iter([0.0] * 4)
    counting, go_on = threading.Event(), threading.Event()

    def clock() -> float:
        if threading.current_thread() is slow:
            counting.set()
            assert go_on.wait(10)
        return next(ticks, 100.0)

    kept = RecordOverview(clock=clock)
    slow = threading.Thread(target=lambda: None)
    first = kept.get(service.database)
    for _ in ticks:
        pass
    slow = threading.Thread(target=lambda: kept._count(service.database))
    with kept._counting:
        slow.start()
        assert counting.wait(10)
        assert kept.get(service.database) is first
        go_on.set()
        slow.join(10)
    assert kept.get(service.database) is not first
