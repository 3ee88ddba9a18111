"""What the plots of a search are drawn from, against the records that it left."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.jobs.pages.convergence import Plot, read
from domain.artifacts import Variant
from domain.digests import WorkloadDigest
from domain.jobs import EventKind
from domain.tuning_tasks import ExtractedTask, TuningTask
from storage import artifacts, convergence, events, jobs, records, tuning_tasks
from storage.convergence import Estimator, Level, Point, TrialRow
from storage.tables import digest_of
from tests.support.api.factories import Service
from tests.support.dashboard.networks import CLASSIFIER, MOBILENET, RESNET
from tests.support.dashboard.seeding import Seeder

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def curve(client: TestClient, job_id: str) -> dict[str, Any]:
    answer = client.get(f"/jobs/{job_id}/curve.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_the_estimate_is_what_the_records_say(service: Service, client: TestClient) -> None:
    job_id = Seeder(service).succeeded(RESNET, age=timedelta(hours=1), trials=5)
    with service.database.reading() as session:
        found = records.of_job(session, job_id)
        tasks = {task.extracted.workload_key: task.extracted for task in tuning_tasks.of_job(session, job_id)}
    default: dict[str, float] = {}
    best: dict[str, float] = {}
    told = curve(client, job_id)
    untuned = told["untuned"]
    expected = [(0, untuned)]
    for number, record in enumerate(found, 1):
        key, latency = record.key.workload_key, record.latency
        if latency is None:
            continue
        default.setdefault(key, latency)
        best[key] = min(latency, best.get(key, latency))
        gained = sum(tasks[each].weight * (default[each] - best[each]) for each in best)
        if untuned - gained != pytest.approx(expected[-1][1], abs=1e-12):
            expected.append((number, untuned - gained))
    estimate = told["estimate"] if told["estimate"][-1][0] == expected[-1][0] else told["estimate"][:-1]
    assert [trials for trials, _, _ in estimate] == [trials for trials, _ in expected]
    assert [value for _, _, value in estimate] == pytest.approx([value for _, value in expected])
    assert told["trials"] == len(found) == 60


def test_levels_are_the_benchmarks_once_it_has_ended(service: Service, client: TestClient) -> None:
    seeder = Seeder(service)
    ended = seeder.succeeded(CLASSIFIER, age=timedelta(hours=1), trials=2)
    with service.database.reading() as session:
        artifact = artifacts.of_job(session, ended)
    assert artifact is not None
    timings = artifact.report.timings
    told = curve(client, ended)
    assert told["untuned"] == timings[Variant.UNTUNED].median != pytest.approx(CLASSIFIER.untuned, rel=1e-9)
    assert told["reference"] == timings[Variant.REFERENCE].median
    assert told["tuned"] == timings[Variant.TUNED].median
    assert (told["reference_name"], told["is_final"]) == ("ONNX Runtime", True)
    assert told["estimate"][0][2] == told["untuned"]


def test_levels_are_the_baselines_before(service: Service, client: TestClient) -> None:
    running = Seeder(service).running(MOBILENET, share=0.5, age=timedelta(minutes=1), trials=2)
    told = curve(client, running)
    assert told["untuned"] == pytest.approx(MOBILENET.untuned)
    assert told["reference"] == pytest.approx(MOBILENET.reference)
    assert (told["reference_name"], told["is_final"], told["tuned"]) == ("Reference", False, None)


def test_a_plot_from_before_the_end_has_another_basis(service: Service, client: TestClient) -> None:
    with Seeder(service).story(CLASSIFIER, age=timedelta(hours=1), trials=2) as story:
        lease = story.claim()
        story.prepare(lease)
        story.tune(lease)
    before = curve(client, story.job_id)
    with service.database.transaction() as session:
        story.session = session
        story.publish(lease, service.blobs)
    after = curve(client, story.job_id)
    assert after["basis"] != before["basis"]
    assert after["is_final"]


def test_tasks_have_their_best_gflops(service: Service, client: TestClient) -> None:
    job_id = Seeder(service).succeeded(CLASSIFIER, age=timedelta(hours=1), trials=6)
    told = curve(client, job_id)
    with service.database.reading() as session:
        tasks = tuning_tasks.of_job(session, job_id)
    for task in tasks:
        points = told["tasks"][str(task.extracted.position)]
        values = [value for _, _, value in points]
        assert values == sorted(values)
        assert task.best_latency is not None
        assert values[-1] == pytest.approx(task.extracted.flop / task.best_latency / 1e9)
        assert told["names"][str(task.extracted.position)] == task.extracted.description


def test_seconds_count_from_the_begin_of_tuning(service: Service, client: TestClient) -> None:
    job_id = Seeder(service).succeeded(CLASSIFIER, age=timedelta(hours=1), trials=6)
    times = [seconds for _, seconds, _ in curve(client, job_id)["estimate"]]
    assert times[0] == 0
    assert times == sorted(times)
    tune = next(stage for stage in client.get(f"/v1/jobs/{job_id}").json()["timeline"] if stage["stage"] == "tune")
    assert times[-1] == pytest.approx(tune["seconds"], abs=0.1)


def test_what_others_found_before_counts_from_the_start(service: Service, client: TestClient) -> None:
    seeder = Seeder(service)
    earlier = seeder.succeeded(CLASSIFIER, age=timedelta(hours=2), trials=6)
    later = seeder.succeeded(CLASSIFIER, age=timedelta(hours=1), trials=2)
    first, second = curve(client, earlier), curve(client, later)
    assert first["estimate"][0][2] == first["untuned"]
    gained = first["untuned"] - first["estimate"][-1][2]
    assert gained > 0
    assert second["untuned"] - second["estimate"][0][2] == pytest.approx(gained)


def test_a_job_without_trials_has_an_empty_curve(service: Service, client: TestClient) -> None:
    with Seeder(service).story(MOBILENET, age=timedelta(minutes=1)) as story:
        pass
    told = curve(client, story.job_id)
    assert (told["trials"], told["estimate"], told["tasks"]) == (0, [], {})


def test_without_defaults_the_estimate_is_the_sum_of_the_best() -> None:
    search = _search(untuned=10.0, flops=(3.0, 1.0))
    found = search.follow([_trial(1, 0, 2.0), _trial(2, 1, None), _trial(3, 1, 4.0), _trial(4, 1, 1.0)])
    # Until task 1 is measured, nothing is known to be faster than the untuned build.
    assert found.estimate == [(0, 0.0, 10.0), (3, 3.0, 6.0), (4, 4.0, 3.0)]
    assert search.estimate == 3.0


def test_an_operator_without_planned_trials_counts_with_its_share() -> None:
    search = _search(untuned=10.0, flops=(3.0, 1.0), planned=(8, 0))
    # A quarter of the FLOPs, and so of ten seconds.
    assert search.follow([_trial(1, 0, 2.0)]).estimate == [(0, 0.0, 10.0), (1, 1.0, 4.5)]


def test_nothing_is_ever_slower_than_untuned() -> None:
    found = _search(untuned=10.0, flops=(3.0, 1.0)).follow([_trial(1, 0, 50.0)])
    assert found.estimate == [(0, 0.0, 10.0), (1, 1.0, 10.0)]


def test_without_an_untuned_time_the_curve_begins_when_all_are_known() -> None:
    found = _search(untuned=None, flops=(1.0, 1.0)).follow([_trial(1, 0, 2.0), _trial(2, 1, 4.0)])
    assert found.estimate == [(2, 2.0, 6.0)]


def test_alternatives_count_once_with_the_fastest() -> None:
    search = _search(untuned=None, flops=(1.0, 1.0), alternatives=7)
    assert search.follow([_trial(1, 0, 3.0), _trial(2, 1, 2.0)]).estimate[-1][2] == 2.0


def test_trials_beside_the_plan_count_but_change_nothing() -> None:
    found = _search(untuned=10.0, flops=(1.0,)).follow([_trial(1, 9, 0.1)])
    assert (found.trials, found.estimate) == (1, [(0, 0.0, 10.0), (1, 1.0, 10.0)])


def test_only_autotvms_first_trials_are_of_defaults() -> None:
    firsts = {"a": _trial(1, 0, 2.0), "b": _trial(2, 1, None, "autotvm"), "c": _trial(3, 1, 4.0, "autotvm")}
    assert convergence.defaults(firsts) == {"c": 4.0}


def test_long_lines_keep_their_ends() -> None:
    points: list[Point] = [(number, float(number), 1.0) for number in range(5000)]
    thin = convergence.thinned(points)
    assert len(thin) == convergence.MOST_POINTS
    assert (thin[0], thin[-1]) == (points[0], points[-1])
    assert thin == sorted(thin)


@pytest.mark.parametrize("seed", range(8))
def test_the_number_never_rises_and_the_curve_has_what_it_was(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - schedules
    tuner, alternatives = ("autotvm", "ansor")[seed % 2], (None, 7)[seed // 2 % 2]
    untuned = None if seed == 7 else chance.uniform(5.0, 20.0)
    latencies = [None if chance.random() < 0.4 else chance.uniform(0.5, 5) for _ in range(60)]
    trials = [_trial(n, chance.randrange(4), latency, tuner) for n, latency in enumerate(latencies, 1)]
    shown = []
    for count in range(len(trials) + 1):
        firsts: dict[WorkloadDigest, TrialRow] = {}
        for trial in trials[:count]:
            firsts.setdefault(trial.workload_digest, trial)
        search = _search(untuned, (3.0, 1.0, 0.2, 5.0), alternatives, defaults=convergence.defaults(firsts))
        curve = search.follow(trials[:count]).estimate
        shown.append(search.estimate)
    known = [number for number in shown if number is not None]
    assert known == sorted(known, reverse=True)
    assert known[-1] < known[0]
    assert [value for _, _, value in curve] == pytest.approx([shown[number] for number, _, _ in curve])


def test_the_number_does_not_rise_when_another_strategy_leads(service: Service, client: TestClient) -> None:
    job_id = Seeder(service).running(MOBILENET, share=0.5, age=timedelta(minutes=1), trials=2)
    told = curve(client, job_id)
    now, before = told["estimate"][-1][2], told["estimate"][-1][2] / 2

    def show(untuned: float) -> float | None:
        with service.database.transaction() as session:
            data = {"trials_done": 1, "estimate": before, "untuned": untuned, "tasks": []}
            events.append(session, job_id, EventKind.PROGRESS, data, now=datetime.now(UTC))
        with service.database.reading() as session:
            return read(session, jobs.get(session, job_id)).best_so_far

    assert show(told["untuned"]) == before
    assert show(told["untuned"] + 1.0) == now, "of another measurement"


def test_measured_times_are_points_of_a_still_picture() -> None:
    points: list[Point] = [(0, 0.0, 4.0), (10, 2.0, 2.0)]
    plot = Plot(points, {"ONNX Runtime": 3.0, "Untuned": 4.0, "Tuned": 5.0})
    assert plot.line == "0.0,80.0 1000.0,80.0 1000.0,240.0"
    assert plot.marks == [("ONNX Runtime", 1000.0, 160.0), ("Untuned", 1000.0, 80.0), ("Tuned", 1000.0, 0.0)]
    assert Plot(points, {"Untuned": 4.0}, is_final=False).marks == [("Untuned", 0.0, 0.0)]


def test_a_still_picture_has_the_curves_steps() -> None:
    plot = Plot([(0, 0.0, 4.0), (5, 1.0, 2.0), (10, 2.0, 3.0)])
    assert plot.line == "0.0,0.0 500.0,0.0 500.0,240.0 1000.0,240.0 1000.0,120.0"
    assert Plot([(0, 0.0, 4.0)]).line == ""
    assert len(Plot([(n, 0.0, 1.0) for n in range(100)]).rows) == 9


def _search(
    untuned: float | None,
    flops: tuple[float, ...],
    alternatives: int | None = None,
    *,
    planned: tuple[int, ...] | None = None,
    defaults: Mapping[WorkloadDigest, float] | None = None,
) -> Estimator:
    tasks = [
        TuningTask(
            job_id="j",
            extracted=ExtractedTask(
                position=position,
                name="conv2d",
                workload_key=f"key {position}",
                description="",
                weight=1,
                flop=flop * 1e9,
                space_size=10,
                # The first two are alternatives, if any are.
                alternatives=alternatives if position < 2 else None,
            ),
            trials_planned=planned[position] if planned else 8,
        )
        for position, flop in enumerate(flops)
    ]
    level = Level(untuned=untuned, reference=None, reference_name="Reference", is_final=False)
    return Estimator(tasks, level=level, known={}, defaults=defaults or {}, began_at=_NOW)


def _trial(record_id: int, position: int, latency: float | None, tuner: str = "ansor") -> TrialRow:
    return TrialRow(
        record_id=record_id,
        workload_digest=digest_of(f"key {position}"),
        tuner=tuner,
        latency=latency,
        at=_NOW + timedelta(seconds=record_id),
    )
