"""What a worker counts of its own work: read as Prometheus reads it."""

from __future__ import annotations

import logging
import re
import socket
import urllib.request
from pathlib import Path

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from domain import errors
from process import logs
from worker import metrics, observing
from worker.settings import WorkerSettings

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def value(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


class Counted:
    """How much a number has grown since."""

    def __init__(self, name: str, **labels: str) -> None:
        self._name, self._labels = name, labels
        self._before = value(name, **labels)

    @property
    def more(self) -> float:
        return value(self._name, **self._labels) - self._before


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_a_worker_answers_on_the_port_that_is_set(port: int) -> None:
    metrics.serve(WorkerSettings(worker_metrics_port=port))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    families = {family.name for family in text_string_to_metric_families(text)}
    assert {"tunesmith_worker_lease_losses", "tunesmith_worker_attempts", "process_resident_memory_bytes"} <= families


def test_every_metric_is_documented() -> None:
    families = text_string_to_metric_families(prometheus_client.generate_latest(metrics.REGISTRY).decode())
    documented = dict(re.findall(r"^\| `(tunesmith_worker_\w+)` \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE))
    kinds = {name.removesuffix("_total"): kind for name, kind in documented.items()}
    assert kinds == {family.name: family.type for family in families if family.name.startswith("tunesmith_")}


def test_without_a_port_nothing_listens_and_a_taken_one_keeps_nobody_from_working(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(prometheus_client, "start_http_server", lambda *_, **__: pytest.fail("it listens"))
        metrics.serve(WorkerSettings())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics.serve(WorkerSettings(worker_metrics_port=taken.getsockname()[1]))
    assert "cannot serve metrics" in caplog.text


def test_an_attempt_ends_in_one_way() -> None:
    failed = Counted("tunesmith_worker_attempts_total", outcome="failed")
    code = Counted("tunesmith_worker_job_failures_total", code="no_valid_trial")
    lost = Counted("tunesmith_worker_lease_losses_total")
    metrics.attempt_ended("failed", code="no_valid_trial")
    metrics.attempt_ended(metrics.LOST)
    assert (failed.more, code.more, lost.more) == (1, 1, 1)


def test_engines_are_counted_with_what_ended_them() -> None:
    starts = Counted("tunesmith_worker_engine_starts_total", engine="relay")
    restarts = Counted("tunesmith_worker_engine_restarts_total", engine="relay")
    crashes = Counted("tunesmith_worker_engine_failures_total", engine="relay", code="engine_crashed")
    seconds = Counted("tunesmith_worker_engine_start_seconds_count", engine="relay")
    with observing.engine_starting("relay", again=False):
        pass
    with pytest.raises(errors.EngineCrashed), observing.engine_asked("relay", 17, "tune"):
        raise errors.EngineCrashed("it ended")
    with observing.engine_starting("relay", again=True):
        pass
    with pytest.raises(errors.EngineRequestFailed), observing.engine_asked("relay", 18, "tune"):
        raise errors.EngineRequestFailed("unsupported_operators", "no")
    assert (starts.more, restarts.more, crashes.more, seconds.more) == (2, 1, 1, 2)


def test_what_is_logged_while_an_engine_works_names_it() -> None:
    with logs.bound(job_id="j-1"), observing.stage("tune"), observing.engine_asked("relax", 4711, "tune"):
        assert logs.ids() == {"job_id": "j-1", "stage": "tune", "engine": "relax", "engine_pid": 4711}


def test_a_stage_is_timed_when_it_is_done() -> None:
    done = Counted("tunesmith_worker_stage_seconds_count", stage="verify")
    with pytest.raises(errors.VerificationFailed), observing.stage("verify"):
        raise errors.VerificationFailed("wrong")
    with observing.stage("verify"):
        logging.getLogger("x").info("at work")
    assert done.more == 1
