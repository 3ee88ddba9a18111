"""The real thing: ``serve`` with Valkey, Celery and engines, driven over HTTP, and killed in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from domain.models import TensorSpec
from storage import records
from storage.database import Database
from tests.support import models, serving
from tests.support.tuner.engines.onnx import inside
from tests.support.worker.receivers import receiving
from tuner.host import orphans
from tunesmith.cli import arrays

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


@dataclass(kw_only=True)
class Served:
    home: Path
    process: subprocess.Popen[bytes]
    client: httpx.Client

    def submit(self, *, size: int, **request: Any) -> str:
        """A job for images of ``size``: each size has tuning tasks of its own, which no other job has covered."""
        model = self.client.put("/v1/models", params={"name": "small"}, content=models.small_network()).json()["id"]
        # By default the tuner with the quickest trials.
        body = {"model": model, "input_shapes": {"image": [1, 3, size, size]}, "tuner": "autotvm", **request}
        answer = self.client.post("/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/v1/jobs/{job_id}").json()
        return found

    def wait(self, job_id: str, until: Callable[[dict[str, Any]], bool], seconds: float = 150) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            job = self.job(job_id)
            if until(job):
                return job
            assert job["state"] not in ("failed", "canceled", "succeeded"), job
            time.sleep(0.1)
        raise AssertionError(
            f"not within {seconds} s: {job}, {(self.home / 'logs' / 'worker.log').read_text()[-3000:]}"
        )

    def finish(self, job_id: str) -> dict[str, Any]:
        return self.wait(job_id, lambda job: job["state"] == "succeeded")

    def child(self, module: str) -> int:
        """The pid of ``python -m module``."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for pid in _descendants(self.process.pid):
                if f"-m\0{module}" in _command(pid):
                    return pid
            time.sleep(0.05)
        raise AssertionError(f"no {module} runs")

    def kill(self, module: str) -> int:
        pid = self.child(module)
        os.kill(pid, signal.SIGKILL)
        return pid


@contextlib.contextmanager
def _serve(home: Path) -> Iterator[Served]:
    environment = serving.environment(home, TUNESMITH_WEBHOOK_HOSTS="127.0.0.1")
    log = home / f"serve-{time.time_ns()}.log"
    with serving.serving(environment, log=log) as process, serving.client(home) as client:
        yield Served(home=home, process=process, client=client)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    with _serve(home) as served:
        yield served
        assert served.process.poll() is None
        left = _descendants(served.process.pid)
        started = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(20) == 0
        assert time.monotonic() - started < 12
        assert not [pid for pid in left if orphans.start_time(pid) is not None]
        assert not (home / "server.json").exists()


@pytest.fixture(scope="module")
def tuned(served: Served) -> dict[str, Any]:
    """A job that has succeeded."""
    return served.finish(served.submit(size=16, budget={"trials": 16}))


@pytest.mark.smoke
def test_a_model_is_tuned_over_http(served: Served, tuned: dict[str, Any]) -> None:
    job, job_id = tuned, tuned["id"]
    assert (job["trials_done"], job["trials_planned"], job["attempts"]) == (16, 16, 1)
    report = served.client.get(f"/v1/jobs/{job_id}/report").json()
    assert set(report["timings"]) == {"reference", "untuned", "tuned"}
    assert all(verification["passed"] for verification in report["verifications"].values())
    assert report["speedup_over_untuned"] >= 1.0
    profile = served.client.get(f"/v1/jobs/{job_id}/profile").json()
    matched = [each for each in profile["operators"] if each["kernels"] and each["nodes"]]
    assert {"Conv", "Gemm"} <= {
        node.partition(" ")[0].removeprefix("Fused") for each in matched for node in each["nodes"]
    }
    bundle = served.client.get(f"/v1/artifacts/{job['artifact_id']}/download")
    assert bundle.status_code == 200
    assert len(bundle.content) > 10_000
    _await(lambda: not (served.home / "work" / job_id).exists(), 10)
    worker = served.client.get("/v1/workers").json()["workers"][0]
    assert worker["toolchains"][0].startswith("relay/tvm-0.19")


def test_auto_says_what_it_chose_and_the_same_job_again_needs_no_trials(served: Served, tuned: dict[str, Any]) -> None:
    size = tuned["input_shapes"]["image"][2]
    again = served.finish(served.submit(size=size, budget={"trials": 16}))
    assert (again["trials_done"], again["trials_planned"]) == (0, 0)
    job = served.finish(served.submit(size=size, budget={"trials": 16}, tuner="auto"))
    assert job["trials_done"] == 0
    report = served.client.get(f"/v1/jobs/{job['id']}/report").json()
    assert any(line.startswith("autotvm leads") for line in report["choice"])
    # Records lead the search; the fastest build may be the rewritten network of the other engine.
    assert any(line.startswith("relax gives correct results") and "rewritten in" in line for line in report["choice"])
    assert {"autotvm", "rewritten relax"} <= {each["name"] for each in report["portfolio"]}


@pytest.mark.smoke
def test_the_bundle_of_a_job_runs_from_the_command_line(served: Served, tuned: dict[str, Any], tmp_path: Path) -> None:
    bundle = tmp_path / "model.tar"
    bundle.write_bytes(served.client.get(f"/v1/artifacts/{tuned['artifact_id']}/download").content)
    image = TensorSpec(name="image", dtype="float32", shape=tuple(tuned["input_shapes"]["image"]))
    outputs = []
    for value in (0, 1):
        arrays.write_constant(tmp_path / "x.npz", [image], value)
        files = ["--inputs", tmp_path / "x.npz", "--output", tmp_path / "y.npz"]
        printed = _cli(served.home, "run", bundle, *files, "--print-time", "--repeat", "7")
        for word in ("scores  float32  1×5", "Execution time summary", "mean", "median", "max", "min", "std"):
            assert word in printed
        with zipfile.ZipFile(tmp_path / "y.npz") as archive:
            assert archive.namelist() == ["scores.npy"]
            outputs.append(archive.read("scores.npy"))
    assert outputs[0] != outputs[1]
    samples = json.loads(_cli(served.home, "run", bundle, "--repeat", "7", "--json"))["samples"]
    assert len(samples) == 7
    assert all(0 < sample < 1 for sample in samples)


_ROWS = """
import numpy as np
random = np.random.default_rng(0)
images = random.random((24, 3, 16, 16), dtype=np.float32)
np.savez(sys.argv[1], image=images, labels=random.integers(0, 5, 24))
told = None
"""


def test_rows_of_ones_own_judge_and_time_the_builds(served: Served, tuned: dict[str, Any], tmp_path: Path) -> None:
    inside.run(_ROWS, tmp_path / "val.npz")
    told = json.loads(_cli(served.home, "data", "add", tmp_path / "val.npz", "--json"))
    assert (told["name"], told["rows"], told["created"]) == ("val", 24, True)
    size = tuned["input_shapes"]["image"][2]
    job = served.finish(served.submit(size=size, budget={"trials": 16}, data="val"))
    report = served.client.get(f"/v1/jobs/{job['id']}/report").json()
    assert (report["data"]["id"], report["data"]["judging_rows"]) == (told["id"], 24)
    for found in report["verifications"].values():
        rows = found["rows"]
        assert found["passed"]
        assert (rows["rows"], rows["elements"], rows["labelled"]["count"]) == (24, 24 * 5, 24)
        assert rows["labelled"]["build"] == rows["labelled"]["reference"]
        assert {worst["row"] for worst in rows["worst"]} <= set(range(24))
        assert all(0 <= worst["max_rel"] < 1e-3 for worst in rows["worst"])
    assert "24 rows of your data" in " ".join(_cli(served.home, "status", job["id"]).split())
    _cli(served.home, "data", "rm", "val")
    assert json.loads(_cli(served.home, "data", "list", "--json")) == []


def test_no_process_of_the_service_holds_tvm(served: Served) -> None:
    for module in ("api", "worker"):
        mapped = Path(f"/proc/{served.child(module)}/maps").read_text()
        assert not [name for name in ("libtvm", "onnxruntime", "numpy") if name in mapped]


@pytest.mark.smoke
def test_a_killed_worker_costs_no_trial(served: Served) -> None:
    job_id = served.submit(size=20, budget={"trials": 32})
    served.wait(job_id, lambda job: job["stage"] == "tune" and job["trials_done"] >= 6)
    engines = [pid for pid in _descendants(served.process.pid) if "tuner.engines" in _command(pid)]
    assert engines
    dead = served.kill("worker")
    _await(lambda: not any(orphans.start_time(pid) for pid in engines), 10)
    assert served.child("worker") != dead
    spool: dict[str, dict[str, Any]] = {}

    def ended(job: dict[str, Any]) -> bool:
        spool.update(_spool(served.home / "work" / job_id))
        return bool(job["state"] == "succeeded")

    job = served.wait(job_id, ended)
    planned = job["trials_planned"]
    assert (job["attempts"], job["trials_done"]) == (2, planned)
    # The files are gone when the job has ended: the last lines may have been missed.
    assert len(spool) >= planned // 2
    measured = [(line["workload_key"], line["schedule_digest"]) for line in spool.values()]
    assert len(measured) == len(set(measured)), "a trial was measured twice"
    database = Database(f"sqlite:///{served.home / 'db.sqlite3'}")
    with database.reading() as session:
        stored = {(each.key.workload_key, each.schedule_digest) for each in records.of_job(session, job_id)}
    database.close()
    assert len(stored) == planned
    assert set(measured) <= stored


def test_a_killed_api_costs_nothing(served: Served) -> None:
    job_id = served.submit(size=24, budget={"trials": 16})
    served.wait(job_id, lambda job: job["stage"] == "tune")
    dead = served.kill("api")
    job = _patiently(lambda: served.finish(job_id))
    assert (job["attempts"], job["trials_done"]) == (1, job["trials_planned"])
    assert served.child("api") != dead


def test_an_end_is_told(served: Served) -> None:
    with receiving(503) as receiver:
        job_id = served.submit(size=8, webhook={"url": receiver.url})
        served.client.post(f"/v1/jobs/{job_id}:cancel")
        _await(lambda: served.job(job_id)["state"] == "canceled" and receiver.received, 20)
        again = served.client.post(f"/v1/jobs/{job_id}/deliveries:resend").json()
        assert (again["url"], again["deliveries"][0]["last_status"]) == (receiver.url, 503)
        _await(lambda: len(receiver.received) == 2, 20)
    first, second = (json.loads(received.body) for received in receiver.received)
    assert first == second
    assert (first["type"], first["data"]["job"], first["data"]["model_name"]) == ("job.canceled", job_id, "small")


@pytest.mark.smoke
def test_a_running_job_is_canceled_soon(served: Served) -> None:
    job_id = served.submit(size=28, budget={"trials": 400})
    served.wait(job_id, lambda job: job["stage"] == "tune" and job["trials_done"] >= 1)
    served.client.post(f"/v1/jobs/{job_id}:cancel")
    _await(lambda: served.job(job_id)["state"] == "canceled", 10)
    assert not [pid for pid in _descendants(served.process.pid) if "tuner.engines" in _command(pid)]


def test_a_second_service_on_the_same_home_is_refused(served: Served) -> None:
    second = subprocess.run(
        serving.SERVE,
        env=serving.environment(served.home), capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert second.returncode == 3
    assert "a service already runs" in second.stderr
    assert str(served.process.pid) in second.stderr


def test_the_address_is_private(served: Served) -> None:
    assert (served.home / "server.json").stat().st_mode & 0o777 == 0o600
    assert served.client.get("/v1/jobs", headers={"Authorization": "Bearer no"}).status_code == 401


def test_the_link_that_serve_prints_lets_a_browser_in(served: Served) -> None:
    (printed,) = served.home.glob("serve-*.log")
    _await(lambda: b"Dashboard: " in printed.read_bytes(), 10)
    found = re.search(r"Dashboard: (\S+)", printed.read_text())
    assert found
    with httpx.Client(follow_redirects=True, trust_env=False) as browser:
        page = browser.get(found[1], headers={"Accept": "text/html"})
        assert (page.status_code, page.url.path) == (200, "/")
        assert browser.get(f"{served.client.base_url}/v1/tokens/self").json()["owner"] == "local"
        secrets = [browser.cookies["tunesmith_session"], found[1].partition("code=")[2]]
    secrets.append(served.client.headers["Authorization"].removeprefix("Bearer "))
    logged = "".join(path.read_text() for path in (served.home / "logs").glob("*.log"))
    assert not [secret for secret in secrets if secret in logged]


def test_a_killed_service_leaves_nothing_and_its_successor_goes_on(tmp_path: Path) -> None:
    with _serve(tmp_path) as first:
        workers = first.client.get("/v1/workers").json()["workers"]
        assert [worker["alive"] for worker in workers] == [True], "once it is ready a worker is there"
        job_id = first.submit(size=32, budget={"trials": 48})
        assert first.job(job_id)["warnings"] == []
        first.wait(job_id, lambda job: job["stage"] == "tune" and job["trials_done"] >= 3)
        left = _descendants(first.process.pid)
        first.process.kill()
        _await(lambda: not [pid for pid in left if orphans.start_time(pid) is not None], 15)
    with _serve(tmp_path) as second:
        job = second.finish(job_id)
    assert job["trials_done"] == job["trials_planned"]
    database = Database(f"sqlite:///{tmp_path / 'db.sqlite3'}")
    with database.reading() as session:
        assert records.count_of_job(session, job_id) == job["trials_planned"]
    database.close()


def _cli(home: Path, *arguments: str | Path) -> str:
    """What the command printed."""
    ran = subprocess.run(
        [serving.PYTHON, "-m", "tunesmith", *map(str, arguments)],
        env=serving.environment(home),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _spool(work: Path) -> dict[str, dict[str, Any]]:
    """Every finished line by the place where it stands."""
    found = {}
    for path in work.rglob("spool/**/*.jsonl"):
        with contextlib.suppress(FileNotFoundError):
            for number, line in enumerate(path.read_text().splitlines(keepends=True)):
                if line.endswith("\n"):
                    found[f"{path}:{number}"] = json.loads(line)
    return found


def _patiently(action: Callable[[], Any]) -> Any:
    """Once more, as a connection that was open when the server died is lost."""
    try:
        return action()
    except httpx.TransportError:
        return action()


def _await(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def _descendants(pid: int) -> list[int]:
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
