"""Jobs' ends are told: signed, at last, once by whoever comes first, and again when nobody knows."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from domain.destinations import AllowedHosts
from domain.jobs import Failure, JobState
from domain.webhooks import Delivery, Webhook
from storage import jobs, webhooks
from tests.support.waiting import until
from tests.support.worker.fixtures import Bench
from tests.support.worker.receivers import Received, Receiver, dripping, receiving
from worker import clock, periodic
from worker import webhooks as sending
from worker.http_client import HttpClient
from worker.webhooks import PAUSES, WebhookDispatcher

DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "webhooks.md"
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
LOCAL = AllowedHosts.parse("127.0.0.1")


class Clock:
    def __init__(self) -> None:
        self.now = clock.now() + timedelta(minutes=1)  # after whatever a test does first

    def __call__(self) -> datetime:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def time_of_day() -> Clock:
    return Clock()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def verify() -> Callable[[str, Mapping[str, str], bytes], bool]:
    """The function that the documentation shows."""
    (program,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102 - our own
    found: Callable[[str, Mapping[str, str], bytes], bool] = names["verify"]
    return found


def dispatcher(
    bench: Bench, now: Callable[[], datetime] = clock.now, *, chance: float = 0.0, **options: Any
) -> WebhookDispatcher:
    client = HttpClient(allowed=options.pop("allowed", LOCAL), **options)
    return WebhookDispatcher(database=bench.database, client=client, now=now, chance=lambda: chance)


def ended(bench: Bench, url: str, **request: Any) -> str:
    """A job that was canceled, and is to be told of."""
    job_id = bench.job(**request)
    with bench.database.transaction() as session:
        webhooks.attach(session, job_id, Webhook(url=url, secret=SECRET))
    bench.cancel(job_id)
    return job_id


def delivery(bench: Bench, job_id: str) -> Delivery:
    with bench.database.reading() as session:
        (found,) = webhooks.deliveries(session, job_id)
    return found


def attempt(bench: Bench, sender: WebhookDispatcher, job_id: str) -> Delivery:
    """Send the job's message if it is due, as a round would, and wait for what came of it."""
    claimed = sender._take()
    if claimed is not None:
        sender._send_all(claimed)
    return delivery(bench, job_id)


def test_a_canceled_job_is_told(bench: Bench, receiver: Receiver, verify: Callable[..., bool]) -> None:
    job_id = ended(bench, receiver.url, labels={"branch": "main"}, group="nightly")
    done = attempt(bench, dispatcher(bench), job_id)
    assert (done.attempts, done.last_status, done.last_error, done.next_attempt_at) == (1, 204, None, None)
    assert done.delivered_at is not None
    (received,) = receiver.received
    assert received.path == "/hooks?key=value"
    assert received.headers["webhook-id"] == done.id
    assert received.headers["content-type"] == "application/json"
    assert verify(SECRET, received.headers, received.body)
    assert not verify(SECRET, received.headers, received.body + b" ")
    assert not verify(SECRET, {**received.headers, "webhook-id": "w-other"}, received.body)
    assert not verify("whsec_" + base64.b64encode(b"x" * 32).decode(), received.headers, received.body)
    message = json.loads(received.body)
    job = bench.get(job_id)
    assert job.finished_at is not None
    assert message.pop("timestamp") == job.finished_at.isoformat().replace("+00:00", "Z")
    data = message["data"]
    assert data.pop("model").startswith("m-")
    assert message == {
        "type": "job.canceled",
        "data": {
            "job": job_id,
            "state": "canceled",
            "model_name": "m.onnx",
            "target": "native",
            "labels": {"branch": "main"},
            "group": "nightly",
            "artifact_id": None,
            "failure": None,
            "summary": None,
        },
    }


def test_a_job_that_succeeded_tells_what_it_gained(bench: Bench, receiver: Receiver) -> None:
    job_id = bench.job(trials=8)
    with bench.database.transaction() as session:
        webhooks.attach(session, job_id, Webhook(url=receiver.url, secret=SECRET))
    bench.runtime().run_job(job_id)
    attempt(bench, dispatcher(bench), job_id)
    message = json.loads(receiver.received[0].body)
    assert (message["type"], message["data"]["state"]) == ("job.succeeded", "succeeded")
    assert message["data"]["artifact_id"] == bench.get(job_id).artifact_id
    assert message["data"]["summary"]


def test_a_job_that_failed_tells_why_and_stays_small(bench: Bench, receiver: Receiver) -> None:
    job_id = bench.job()
    lease = bench.take(job_id, "w").lease
    assert lease is not None
    failure = Failure(code="no_valid_trial", message="m" * 10**6, hint="look", details={"all": "d" * 10**6})
    with bench.database.transaction() as session:
        webhooks.attach(session, job_id, Webhook(url=receiver.url, secret=SECRET))
        jobs.finish(session, job_id, lease, state=JobState.FAILED, failure=failure, now=clock.now())
    attempt(bench, dispatcher(bench), job_id)
    body = receiver.received[0].body
    failed = json.loads(body)["data"]["failure"]
    assert (failed["code"], failed["hint"], set(failed)) == ("no_valid_trial", "look", {"code", "message", "hint"})
    assert len(body) < 4096


def test_a_server_that_fails_is_asked_again_later(bench: Bench, time_of_day: Clock) -> None:
    with receiving(500, 200) as receiver:
        job_id = ended(bench, receiver.url)
        sender = dispatcher(bench, time_of_day)
        failed = attempt(bench, sender, job_id)
        assert (failed.last_status, failed.last_error, failed.delivered_at) == (500, "answered 500", None)
        time_of_day.wait(9.9)
        assert attempt(bench, sender, job_id).attempts == 1
        time_of_day.wait(0.1)
        assert attempt(bench, sender, job_id).delivered_at == time_of_day.now
    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert int(second.headers["webhook-timestamp"]) - int(first.headers["webhook-timestamp"]) == 10
    assert first.body == second.body


@pytest.mark.parametrize(
    ("chance", "asked", "expected"),
    [
        (0.0, None, [10, 60, 300, 1800, 7200, 21600]),
        (0.5, None, [11, 66, 330, 1980, 7920, 23760]),
        (0.0, "400", [400, 400, 400, 1800, 7200, 21600]),  # a longer pause of our own is kept
    ],
)
def test_pauses_grow_until_it_is_given_up(
    bench: Bench, time_of_day: Clock, chance: float, asked: str | None, expected: list[float]
) -> None:
    with receiving(*[503] * 20, retry_after=asked) as receiver:
        job_id = ended(bench, receiver.url)
        sender = dispatcher(bench, time_of_day, chance=chance)
        pauses = []
        while (found := attempt(bench, sender, job_id)).next_attempt_at is not None:
            pauses.append((found.next_attempt_at - time_of_day.now).total_seconds())
            time_of_day.wait(pauses[-1])
        assert pauses == pytest.approx(expected)
        assert (found.attempts, found.delivered_at, len(receiver.received)) == (len(PAUSES) + 1, None, 7)
        time_of_day.wait(10**6)
        attempt(bench, sender, job_id)
        assert len(receiver.received) == 7
        with bench.database.transaction() as session:
            webhooks.resend(session, job_id, now=time_of_day.now)
        assert attempt(bench, sender, job_id).next_attempt_at is None
        assert len(receiver.received) == 8


@pytest.mark.parametrize(
    ("status", "asked", "pause"),
    [
        (503, "120", 120),
        (429, "120", 120),
        (429, "1", 10),  # our own pause is the least
        (503, "86400", 3600),
        (503, "9" * 5000, 3600),
        (503, "", 10),
        (503, "soon", 10),
        (503, "-5", 10),
        (503, "1.5", 10),
        (503, "Mon, 32 Foo 99999 25:61:61 +9999", 10),
        (500, "120", 10),
        (302, "120", 10),
        (503, "Mon, 01 Jan 2026 00:00:00 +99999999999999999999", 10),
        (503, "Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 10),
    ],
)
def test_a_server_says_how_long_to_leave_it_alone(
    bench: Bench, time_of_day: Clock, status: int, asked: str, pause: float
) -> None:
    with receiving(status, retry_after=asked) as receiver:
        found = attempt(bench, dispatcher(bench, time_of_day), ended(bench, receiver.url))
    assert found.next_attempt_at is not None
    assert (found.next_attempt_at - time_of_day.now).total_seconds() == pytest.approx(pause)


@pytest.mark.parametrize(("away", "pause"), [(-3600, 10), (4, 10), (90, 90), (10**6, 3600), (10**10, 3600)])
@pytest.mark.parametrize("zone", ["GMT", "-0000"])
def test_a_server_names_the_time_to_come_back(
    bench: Bench, time_of_day: Clock, away: float, pause: float, zone: str
) -> None:
    time_of_day.now = time_of_day.now.replace(microsecond=0)
    at = (time_of_day.now + timedelta(seconds=away)).strftime("%a, %d %b %Y %H:%M:%S ") + zone
    with receiving(503, 204, retry_after=at) as receiver:
        job_id, sender = ended(bench, receiver.url), dispatcher(bench, time_of_day)
        found = attempt(bench, sender, job_id)
        assert found.next_attempt_at == time_of_day.now + timedelta(seconds=pause)
        time_of_day.wait(pause)
        assert attempt(bench, sender, job_id).delivered_at is not None


def test_a_server_that_is_gone_is_left_alone(bench: Bench) -> None:
    with receiving(410) as receiver:
        found = attempt(bench, dispatcher(bench), ended(bench, receiver.url))
    assert (found.last_status, found.next_attempt_at, found.delivered_at) == (410, None, None)


def test_a_redirect_is_no_delivery(bench: Bench) -> None:
    with receiving(302) as receiver:
        found = attempt(bench, dispatcher(bench), ended(bench, receiver.url))
        assert len(receiver.received) == 1
    assert (found.last_status, found.last_error) == (302, "responded 302; redirects are not followed")
    assert found.next_attempt_at is not None


def test_an_address_that_is_allowed_no_more_is_not_called(bench: Bench, receiver: Receiver) -> None:
    found = attempt(bench, dispatcher(bench, allowed=AllowedHosts()), ended(bench, receiver.url))
    assert receiver.received == []
    assert found.last_error == "the webhook's URL resolves to a private or reserved address"
    assert found.next_attempt_at is not None


def test_an_address_that_was_taken_once_and_is_none_now_holds_up_nobody(bench: Bench, receiver: Receiver) -> None:
    bad, good = ended(bench, "gopher://hooks.example/"), ended(bench, receiver.url)
    sender = dispatcher(bench)
    for _ in range(2):
        attempt(bench, sender, good)
    assert delivery(bench, good).delivered_at is not None
    assert delivery(bench, bad).last_error == "the webhook's URL is neither https:// nor http://"


def test_a_slow_server_holds_up_nobody_else(bench: Bench, receiver: Receiver) -> None:
    sender = dispatcher(bench, seconds=60.0)
    with dripping([b""], pause=0.05) as port:
        slow = [ended(bench, f"http://127.0.0.1:{port}/") for _ in range(3)]
        quick = [ended(bench, receiver.url) for _ in range(5)]
        sender.send_due()
        until(lambda: all(delivery(bench, job_id).delivered_at for job_id in quick))
        assert [delivery(bench, job_id).last_error for job_id in slow] == [None] * 3, "nobody waited for these"
    # The server hung up.
    until(lambda: all(delivery(bench, job_id).last_error for job_id in slow))


_DISPATCHER = """
import sys
from domain.destinations import AllowedHosts
from storage.database import Database
from worker.http_client import HttpClient
from worker.webhooks import WebhookDispatcher
client = HttpClient(allowed=AllowedHosts.parse("127.0.0.1"))
dispatcher = WebhookDispatcher(database=Database(sys.argv[1]), client=client)
dispatcher.send(dispatcher._take())
"""


@pytest.mark.contract
def test_a_worker_killed_before_it_notes_the_answer_sends_the_same_message_again(
    bench: Bench, receiver: Receiver, time_of_day: Clock, verify: Callable[..., bool]
) -> None:
    job_id = ended(bench, receiver.url)
    url = bench.database.url.render_as_string()
    worker = subprocess.Popen([sys.executable, "-c", _DISPATCHER, url], cwd=DOCUMENT.parents[1])
    receiver.on_request = worker.kill
    assert worker.wait(30) == -signal.SIGKILL
    receiver.on_request = lambda: None
    left = delivery(bench, job_id)
    assert (left.attempts, left.delivered_at, left.last_status) == (1, None, None)
    assert left.next_attempt_at is not None
    other = dispatcher(bench, time_of_day)
    time_of_day.now = left.next_attempt_at - timedelta(seconds=1)
    assert attempt(bench, other, job_id).attempts == 1
    time_of_day.wait(1)
    assert attempt(bench, other, job_id).delivered_at == time_of_day.now
    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert verify(SECRET, first.headers, first.body)


def test_two_workers_send_a_message_once(bench: Bench, receiver: Receiver) -> None:
    told = [ended(bench, receiver.url) for _ in range(12)]
    senders = [dispatcher(bench) for _ in range(3)]
    ready = threading.Barrier(len(senders))

    def work(sender: WebhookDispatcher) -> None:
        ready.wait()
        sender.send_due()

    threads = [threading.Thread(target=work, args=[sender]) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: all(delivery(bench, job_id).delivered_at for job_id in told))
    assert len(_ids(receiver.received)) == len(receiver.received) == 12


def _ids(received: list[Received]) -> set[str]:
    return {one.headers["webhook-id"] for one in received}


def test_what_cannot_be_put_together_is_tried_again_later(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "compose", lambda *_: 1 / 0)
    found = attempt(bench, dispatcher(bench), ended(bench, receiver.url))
    assert found.last_error == "cannot send it: ZeroDivisionError"
    assert found.next_attempt_at is not None


def test_a_worker_sends_beside_its_job(bench: Bench, receiver: Receiver) -> None:
    runtime = bench.runtime(look_seconds=0.02, heartbeat_seconds=60, webhook_hosts="127.0.0.1")
    runtime.id = "host:12:1"
    job_id = ended(bench, receiver.url)
    threads = periodic.start(runtime)
    until(lambda: delivery(bench, job_id).delivered_at is not None)
    runtime.shutdown.set()
    for thread in threads:
        thread.join(5)
    assert len(receiver.received) == 1
