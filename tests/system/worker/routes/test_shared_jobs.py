"""One job tuned by two workers with engines of their own: on one device in turns, and on devices behind a tracker."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from domain.artifacts import Variant
from domain.jobs import Tuner
from domain.records import Record
from domain.shared_rounds import SharedRound
from domain.stage_results import Build
from domain.workers import Worker
from storage import shared_rounds, workers
from tests.support import models
from tests.support.models import _floats, _node
from tests.support.rpc.boards import KEY, rack
from tests.support.worker.fixtures import OneJob
from tests.system.worker.routes.service import Service
from tuner.host import catalogue, devicelock, environments
from tuner.host.session import EngineSession
from tuner.host.settings import TunerSettings
from tuner.search import racing
from worker import clock, total_limit
from worker.engines import InstalledEngines
from worker.pipeline import builds
from worker.pipeline.context import JobContext
from worker.pipeline.search import helping

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

LEADER, HELPER = "MainThread", "another-host:1:1"


@dataclass(kw_only=True)
class Pair:
    """A worker that leads, and one with another home that comes when it is called, in a thread of its own."""

    service: Service
    there: Service
    """The same one as the helper sees it."""
    leader: OneJob
    helper: OneJob
    rounds: int = 0
    """That the helper ended."""
    trials: defaultdict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """As the engines of each worker tell them."""
    failed: list[BaseException] = field(default_factory=list)
    offered: list[str] = field(default_factory=list)
    """The tuners of the rounds that the leader offered."""
    came: defaultdict[str, threading.Event] = field(default_factory=lambda: defaultdict(threading.Event))
    """By tuner, set once the helper has claimed a round of it."""
    _thread: threading.Thread | None = None

    def hear(self, _: EngineSession, kind: str, data: dict[str, Any]) -> None:
        if kind == "trial":
            self.trials[threading.current_thread().name].append(data)
            # However long its engine takes to start, the leader leaves it something to do: it waits in its own round.
            tuner = self.offered[-1]
            assert self.came[tuner].wait(240), f"no round of {tuner} was claimed"

    def call(self, job_id: str, idle: Sequence[Worker]) -> None:
        assert [each.id for each in idle] == [self.helper.id]
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._help, args=[job_id], name=HELPER)
            self._thread.start()

    def _help(self, job_id: str) -> None:
        try:
            self.rounds += self.helper.help_job(job_id)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.failed.append(error)

    def run(self, content: bytes, **request: Any) -> dict[str, Any]:
        job_id = self.service.submit(content, **request)
        self.leader.run_job(job_id)
        self.join()
        for error in self.failed:
            raise error
        return self.service.job(job_id)

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(240)
            assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def another_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("another-home")


@pytest.fixture
def pair(service: Service, another_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(devicelock, "place", lambda: threading.current_thread().name)
    # Engines of the other home cannot read this one's files.
    engines = InstalledEngines(home=another_home, settings=TunerSettings())
    there = replace(service, home=another_home, engines=engines)
    made = Pair(service=service, there=there, leader=service.runtime(), helper=there.runtime())
    service.hear = there.hear = made.hear
    made.helper.id = HELPER
    made.leader.call_help = made.call
    claim, open_round = shared_rounds.claim, shared_rounds.open_round

    def claimed(*given: Any, **named: Any) -> SharedRound | None:
        if (found := claim(*given, **named)) is not None:
            made.came[found.offer.tuner].set()
        return found

    def opened(*given: Any, **named: Any) -> SharedRound:
        made.offered.append((found := open_round(*given, **named)).offer.tuner)
        return found

    # The leader may take long between two offers, as when it looks for another tuner's tasks.
    monkeypatch.setattr(helping, "_IDLE_SECONDS", 600.0)
    monkeypatch.setattr(shared_rounds, "claim", claimed)
    monkeypatch.setattr(shared_rounds, "open_round", opened)
    # Nobody beats for it meanwhile, and the job's first stages take as long as they take.
    alive_until = clock.now() + timedelta(hours=1)
    with service.database.transaction() as session:
        workers.beat(session, replace(made.helper.describe(), lock_place=HELPER, last_seen_at=alive_until))
    yield made
    made.helper.shutdown.set()
    made.join()
    with service.database.transaction() as session:
        workers.forget(session, [HELPER])


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who had the device, one after the other: both workers want the same, by its real lock."""
    hold, at_work, taken = devicelock.hold, threading.Lock(), []

    @contextlib.contextmanager
    def fairly(*given: Any, **named: Any) -> Iterator[None]:
        with hold(*given, **named):
            assert at_work.acquire(blocking=False)
            taken.append(threading.current_thread().name)
            try:
                yield
            finally:
                at_work.release()
        # Or whoever had it last would have it again: others look ten times a second.
        time.sleep(0.25)

    monkeypatch.setattr(devicelock, "hold", fairly)
    monkeypatch.setattr(helping, "_DEVICE_SECONDS", 600.0)
    return taken


def convolutions(channels: Sequence[int], size: int = 18) -> bytes:
    """One after the other, no two alike: ``image`` [1, 3, size, size] to what the last one makes of it.

    Nor like those of other tests, which have the same records.
    """
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes, tensors, last = [], [], "image"
    for number, (given, made) in enumerate(itertools.pairwise(channels)):
        nodes.append(_node("Conv", [last, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]))
        nodes.append(_node("Relu", [f"c{number}"], [f"r{number}"]))
        tensors.append(_floats(f"w{number}", (made, given, 3, 3), weights))
        last = f"r{number}"
    shape = (1, channels[0], size, size)
    return models.model(nodes, inputs={"image": shape}, outputs={last: (1, channels[-1], size, size)}, tensors=tensors)


def check(pair: Pair, job: dict[str, Any], trials: int) -> list[Record]:
    """Both measured, nothing twice, every trial is stored as its worker's, and what was published was proven."""
    assert job["trials_planned"] == trials, "other tests have left records of these workloads"
    assert (job["state"], job["trials_done"]) == ("succeeded", trials), (job, pair.service.notes(job["id"]))
    assert pair.failed == []
    stored = pair.service.records(job["id"])
    assert len({record.schedule_digest for record in stored}) == len(stored) == trials
    told = {name: [each["schedule_digest"] for each in found] for name, found in pair.trials.items()}
    for name, runtime in ((LEADER, pair.leader), (HELPER, pair.helper)):
        own = {record.schedule_digest for record in stored if record.worker_id == runtime.id}
        assert len(told[name]) == len(set(told[name])) > 0
        # What an engine has finished when it is ended is in its spool alone.
        assert own >= set(told[name])
        assert not own & {digest for other in told if other != name for digest in told[other]}
    report = pair.service.artifact(job["id"]).report
    assert Variant.UNTUNED in report.verifications
    assert all(each.passed for each in report.verifications.values())
    published, untuned = (report.timings[each].median for each in (report.published, Variant.UNTUNED))
    assert published <= untuned
    return stored


def test_two_workers_tune_one_job_on_one_device(pair: Pair, turns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    build, offered, chosen = builds.tuned, [], []

    def tuned(context: JobContext, of: Build, lines: Sequence[str]) -> builds.Compiled:
        compiled = build(context, of, lines)
        offered.extend(lines)
        chosen.extend(compiled.records)
        return compiled

    monkeypatch.setattr(builds, "tuned", tuned)
    job = pair.run(convolutions((3, 8, 16, 12)), tuner="autotvm", trials=32)
    stored = check(pair, job, 32)
    assert turns.count(HELPER) >= pair.rounds >= 1
    assert "1 other worker ran" in " ".join(pair.service.notes(job["id"]))
    # Builds had the records of both to choose from.
    owners = {record.schedule.rstrip("\n"): record.worker_id for record in stored}
    assert {owners[line.rstrip("\n")] for line in offered} == {pair.leader.id, HELPER}
    assert {line.rstrip("\n") for line in chosen} <= set(owners)
    assert chosen


def test_the_leader_goes_on_where_its_helper_left(pair: Pair, turns: list[str]) -> None:
    def leave(engine: EngineSession, kind: str, data: dict[str, Any]) -> None:
        pair.hear(engine, kind, data)
        if HELPER in pair.trials:
            pair.helper.shutdown.set()

    pair.service.hear = pair.there.hear = leave
    job = pair.run(models.dense_network(columns=40), tuner="metaschedule", trials=20)
    check(pair, job, 20)
    # Two operators with as many trials each, and no more than a round of one was the helper's.
    assert turns.count(HELPER) == 1
    assert {each["workload_key"] for each in pair.trials[HELPER]} < {
        each["workload_key"] for each in pair.trials[LEADER]
    }


def test_two_workers_run_a_race_of_three_tuners(pair: Pair, turns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    trials = 60
    # A small budget for three, each of whose slices holds more than a round.
    monkeypatch.setattr(racing, "has_rivals", lambda _budget: True)
    monkeypatch.setattr(racing, "entrants", lambda _budget: 3)
    monkeypatch.setattr(racing, "impression", lambda _budget: 20 / trials)
    monkeypatch.setattr(total_limit, "around_seconds", lambda _budget, **_: 600.0)
    job = pair.run(convolutions((3, 10, 14), size=20), tuner="auto", trials=trials)
    stored = check(pair, job, trials)
    by_tuner = Counter(record.tuner for record in stored)
    measured = {(record.tuner, record.worker_id) for record in stored}
    assert measured == set(itertools.product(Tuner.AUTO.considered, (pair.leader.id, HELPER)))
    assert turns.count(HELPER) >= pair.rounds >= len(by_tuner)
    # Each tuner's account has the trials of both.
    choice = pair.service.report(job["id"])["choice"]
    assert all(any(f"{tuner}: {by_tuner[tuner]} trials in" in line for line in choice) for tuner in by_tuner), choice


def test_two_workers_of_one_host_tune_one_job_on_a_device_behind_a_tracker(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits its turn in the tracker's queue, and no round is lost by that."""
    monkeypatch.setattr(devicelock, "place", lambda: "here")
    with pair.service.database.transaction() as session:
        alive_until = clock.now() + timedelta(hours=1)
        workers.beat(session, replace(pair.helper.describe(), lock_place="here", last_seen_at=alive_until))
    lost, give_back = [], shared_rounds.give_back
    monkeypatch.setattr(shared_rounds, "give_back", lambda *of, **given: lost.append(of) or give_back(*of, **given))
    python = environments.interpreter(catalogue.get("relay"), pair.service.home)
    with rack(python, tmp_path, 1) as boards:
        registered = boards.registered()
        place = {"tracker": boards.address, "key": KEY, "session_timeout": 30.0}
        target = pair.service.worker.native_target.text
        # Of a single task there would be no round for the helper.
        network = convolutions((3, 6, 14), size=11)
        job = pair.run(network, tuner="autotvm", trials=16, runner="rpc", rpc=place, target=target)
        devices = {each["device"] for found in pair.trials.values() for each in found}
        assert devices == registered
    assert lost == []
    stored = check(pair, job, 16)
    assert {record.key.device_key for record in stored} == {f"rpc/{KEY}/t1"}
