from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from domain.jobs import Failure
from tests.support.api.factories import Service
from tests.support.api.scripted import ScriptedWorker
from tests.support.tunesmith.commands import parsed, run
from tuner.host.catalogue import ENGINES, OPTIONAL
from tunesmith.client import Client

ROOT = Path(__file__).parents[3]


@pytest.mark.usefixtures("worker", "url")
def test_one_command_tunes_a_model(capsys: pytest.CaptureFixture[str], onnx: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "net.tar"
    status, out, err = run(capsys, "tune", onnx, "--trials", 12, "--label", "a=b", "-o", bundle)
    assert status == 0, err
    for row in (
        r"ONNX Runtime +0\.", r"untuned +0\..*3\.60e-07", r"tuned +0\..*3\.60e-07  published",
        r"autotvm +0\.\d+ +64 +published", r"ansor +- +16 +too slow",
    ):  # fmt: skip
        assert re.search(row, out), out
    assert "Tuning made it 1.40× as fast: 0.571 ms against 0.800 ms untuned." in out
    assert str(bundle) in out
    assert bundle.read_bytes().startswith(b"bundle of j-")
    for line in (
        "job running",
        "import took",
        "tune  ",
        "depthwise" if "depthwise" in err else "conv2d",
        "job succeeded",
    ):
        assert line in err
    assert "\x1b" not in err, "no colours or cursor movements where there is no terminal"


@pytest.mark.usefixtures("worker", "url")
def test_programs_read_json(capsys: pytest.CaptureFixture[str], onnx: Path) -> None:
    tuned = parsed(capsys, "tune", onnx)
    assert (tuned["job"]["state"], tuned["report"]["published"]) == ("succeeded", "tuned")
    assert [job["id"] for job in parsed(capsys, "jobs")] == [tuned["job"]["id"]]
    assert parsed(capsys, "status", tuned["job"]["id"])["artifact_id"] == tuned["artifact"]["id"]
    assert parsed(capsys, "upload", onnx)["created"] is False
    assert parsed(capsys, "models")[0]["name"] == "net"
    module = onnx.with_suffix(".json")
    module.write_bytes(b"static module")
    assert parsed(capsys, "upload", module)["format"] == "irmodule"
    assert parsed(capsys, "tune", module)["job"]["tuner"] == "metaschedule"
    module.write_bytes(b"static model")
    assert parsed(capsys, "upload", module, "--format", "onnx")["format"] == "onnx"
    assert parsed(capsys, "workers")[0]["alive"] is True


@pytest.mark.usefixtures("url")
def test_an_upload_warns_of_operators_that_no_engine_imports(capsys: pytest.CaptureFixture[str], onnx: Path) -> None:
    onnx.write_bytes(b"matrix")
    status, _, err = run(capsys, "upload", onnx)
    assert status == 0
    assert "warning[unsupported_operators]: no engine imports Det (2×)" in err
    assert "docs/how-to/custom-operators.md" in err


@pytest.mark.usefixtures("worker", "url")
def test_explain_sorts_by_loss_and_adds_up(
    capsys: pytest.CaptureFixture[str], onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = parsed(capsys, "tune", onnx)["job"]["id"]
    monkeypatch.setenv("COLUMNS", "80")
    status, out, err = run(capsys, "explain", job, "--rows", 1)
    assert status == 0, err
    assert [re.split(r"  +", line) for line in out.splitlines()[:5]] == [
        ["", "LOSS", "MS", "ONNX RT", "OPENVINO", "ALONE", "OF PEAK"],
        ["Conv /stem/Conv", "+0.200", "0.700", "0.500", "0.450", "0.400", "25% compute"],
        ["3 others", "-0.050", "0.300", "0.350", "0.200", "-", "-"],
        ["outside of operators", "+0.050", "0.100", "0.050", "0.100", "-", "-"],
        ["whole network", "+0.200", "1.100", "0.900", "0.750", "-", "-"],
    ]
    assert "Measured peak: 260 GFLOPS, 90 GB/s from 1.0 MB." in out
    assert max(map(len, out.splitlines())) <= 80, out
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = run(capsys, "explain", job)
    assert re.search(r"layout_transform ×2 \(no node\) +\+0\.300", out)
    assert re.search(r"ReorderInput \(no kernel\) +-0\.350", out)
    assert re.search(r"Reorder ×2 \(OpenVINO alone\) +\+0\.000 +0\.000 +0\.000 +0\.200", out)
    assert max(map(len, out.splitlines())) <= 100, out
    assert parsed(capsys, "explain", job)["operators"][0]["name"] == "/stem/Conv"


@pytest.mark.usefixtures("worker", "url")
def test_listings_are_tables_that_fit(capsys: pytest.CaptureFixture[str], onnx: Path, monkeypatch: Any) -> None:
    run(capsys, "tune", onnx)
    for columns in ("120", "80", "50"):
        monkeypatch.setenv("COLUMNS", columns)
        for command in (["jobs"], ["models"], ["workers"]):
            status, out, _ = run(capsys, *command)
            assert status == 0
            assert len(out.splitlines()) == 2
            assert max(map(len, out.splitlines())) <= int(columns), out
    job = parsed(capsys, "jobs")[0]["id"]
    _, out, _ = run(capsys, "status", job)
    assert max(map(len, out.splitlines())) <= 80, out
    assert "4 run timeout" in out


@pytest.mark.usefixtures("worker", "url")
def test_a_bundle_is_pulled_by_job_model_file_and_digest(
    capsys: pytest.CaptureFixture[str], onnx: Path, tmp_path: Path
) -> None:
    job = parsed(capsys, "tune", onnx, "--input-shape", "x:1,3,8,8")["job"]["id"]
    digest = hashlib.sha256(onnx.read_bytes()).hexdigest()
    ways = ([job], ["--model", onnx, "--target", "native"], ["--model", digest, "--target", "llvm -mcpu=znver3"])
    pulled = []
    for number, way in enumerate(ways):
        path = tmp_path / f"{number}.tar"
        status, out, err = run(capsys, "pull", *way, "-o", path)
        assert (status, out.strip()) == (0, str(path)), err
        pulled.append(path.read_bytes())
    assert pulled[0] == pulled[1] == pulled[2]
    assert run(capsys, "pull", "--model", digest, "--input-shape", "x:1,3,8,8", "-o", tmp_path / "own.tar")[0] == 0
    status, _, err = run(capsys, "pull", "--model", digest, "--input-shape", "x:7,7,7,7")
    assert (status, "error[artifact_not_found]" in err) == (5, True)
    status, _, err = run(capsys, "pull", "--model", digest, "--target", "llvm -mcpu=other")
    assert status == 5
    assert "error[artifact_not_found]" in err


@pytest.mark.usefixtures("url")
def test_a_job_that_nobody_waits_for(capsys: pytest.CaptureFixture[str], onnx: Path) -> None:
    status, out, err = run(capsys, "tune", onnx, "--no-wait")
    job = out.strip()
    assert status == 0
    assert f"tunesmith status {job} --watch" in err
    status, _, err = run(capsys, "pull", job)
    assert (status, "error[job_not_finished]" in err, "hint: " in err) == (5, True, True)
    assert run(capsys, "cancel", job)[1].strip() == f"{job} is canceled"
    status, _, err = run(capsys, "status", job, "--watch")
    assert (status, "error[job_canceled]" in err) == (1, True)
    new = run(capsys, "retry", job)[1].strip()
    assert new.startswith("j-")
    assert new != job


@pytest.mark.usefixtures("url")
def test_a_failed_job_says_why(capsys: pytest.CaptureFixture[str], service: Service, onnx: Path) -> None:
    job = run(capsys, "tune", onnx, "--no-wait")[1].strip()
    error = {"output": "y", "max_abs": 0.1, "max_rel": 0.0017, "rtol": 5e-4, "top1": None, "not_finite": 0}
    wrong = {**error, "passed": False, "fault": None}
    part = {"rms": 1e-3, "rms_limit": 2e-4, "part": "index 3 of axis 1", "ties": 2}
    nan = {**wrong, "max_abs": 1e308, "max_rel": 1e308, "fault": "NaN", "not_finite": 3}
    details = {
        "verifications": {"untuned relay": [{**wrong, **part}], "untuned relax": [nan], "old": [{"output": "y"}]}
    }
    failure = Failure(
        code="unsupported_operators", message="relay cannot import Foo", hint="replace it", details=details
    )
    ScriptedWorker(service).fail(job, failure)
    status, out, err = run(capsys, "status", job, "--watch")
    assert status == 1
    assert "error[unsupported_operators]: relay cannot import Foo\nhint: replace it\n" in err
    assert "[unsupported_operators]" in out
    told = " ".join(out.split())
    assert "checked untuned relay: y: error 0.17 % of its largest value, 0.05 % allowed" in told
    assert "at index 3 of axis 1 0.1 %, 0.02 % allowed, 2 ties as the reference itself may decide them" in told
    assert "checked untuned relax: y: NaN, 3 elements not finite" in told
    assert "checked old" not in told


@pytest.mark.usefixtures("url")
def test_logs_are_followed_to_the_end(capsys: pytest.CaptureFixture[str], service: Service, onnx: Path) -> None:
    job = run(capsys, "tune", onnx, "--no-wait")[1].strip()
    service.logs.mkdir(parents=True)
    (service.logs / f"{job}.log").write_text("building\nmeasuring\n")
    assert run(capsys, "logs", job)[1] == "building\nmeasuring\n"
    run(capsys, "cancel", job)
    assert run(capsys, "logs", job, "--follow")[1] == "building\nmeasuring\n"


@pytest.mark.usefixtures("lasting_url")
@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["tune", "net.onnx", "--tuner", "autotvn"], 5, "unknown_tuner"),
        (["tune", "net.onnx", "--target", "lvm"], 5, "unknown_target"),
        (["tune", "net.onnx", "--trials", "0"], 5, "invalid_budget"),
        (["tune", "net.onnx", "--seconds=-1"], 5, "invalid_budget"),
        (["tune", "net.onnx", "--input-shape", "y:1,2"], 5, "shape_mismatch"),
        (["tune", "open.onnx"], 5, "shape_required"),
        (["tune", "bad.onnx"], 5, "invalid_model"),
        (["tune", "missing.onnx"], 5, "unreadable_file"),
        (["tune", "net.onnx", "--input-shape", "x=1,2"], 2, "usage"),
        (["tune", "net.onnx", "--label", "x"], 2, "usage"),
        (["tune", "net.onnx", "--trials", "many"], 2, "usage"),
        (["tune"], 2, "usage"),
        (["pull"], 2, "usage"),
        (["pull", "--model", "missing.onnx"], 5, "unreadable_file"),
        (["status", "j-none"], 5, "job_not_found"),
        (["cancel", "j-none"], 5, "job_not_found"),
        (["nonsense"], 2, "usage"),
        (["run", "missing.tar"], 5, "unreadable_file"),
        (["run", "net.onnx"], 5, "invalid_bundle"),
        (["engines", "install", "onednn"], 3, "engine_not_installed"),
    ],
)
def test_what_is_wrong(
    capsys: pytest.CaptureFixture[str], onnx: Path, arguments: list[str], status: int, code: str
) -> None:
    onnx.with_name("bad.onnx").write_bytes(b"bad bytes")
    onnx.with_name("open.onnx").write_bytes(b"open dimensions")
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (status, "")
    first, *rest = err.splitlines()
    assert first.startswith(f"error[{code}]: ")
    if code != "unreadable_file":
        assert rest[0].startswith("hint: ")


def test_no_server_at_all(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    monkeypatch.delenv("TUNESMITH_URL", raising=False)
    unknown = run(capsys, "jobs")
    (tmp_path / "server.json").write_text('{"url": "http://127.0.0.1:9", "token": "t"}')
    gone = run(capsys, "jobs")
    for status, _, err in (unknown, gone):
        assert status == 4
        assert "error[server_unreachable]" in err
        assert "./run serve" in err


@pytest.mark.usefixtures("lasting_url")
def test_a_wrong_token(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("TUNESMITH_TOKEN", "wrong")
    status, _, err = run(capsys, "jobs")
    assert (status, "error[unauthorized]" in err) == (3, True)
    assert "hint: Set TUNESMITH_TOKEN, or TUNESMITH_TOKEN_FILE to a file with a token of the server" in err
    assert "Bearer" not in err


@pytest.mark.contract
def test_ctrl_c_stops_the_waiting_only(url: str, client: Client, onnx: Path, service: Service) -> None:
    command = [sys.executable, "-m", "tunesmith", "tune", str(onnx)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "job queued" in line:
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    (job,) = (each.id for each in client.jobs())
    assert process.returncode == 130
    assert f"tunesmith status {job} --watch" in err
    assert "Traceback" not in err
    assert client.job(job).state == "queued"


def test_engines_that_are_not_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    for name in ("RELAY", "RELAX", "ONNX", "OPENVINO"):
        monkeypatch.delenv(f"TUNESMITH_ENGINE_{name}_PYTHON", raising=False)
    listed = parsed(capsys, "engines", "list")
    assert [(each["name"], each["installed"]) for each in listed] == [
        (name, False) for name in sorted(ENGINES | OPTIONAL)
    ]
    status, out, err = run(capsys, "engines", "doctor")
    assert (status, out.count("broken")) == (3, len(ENGINES))
    assert "error[engine_broken]" in err


def test_a_port_that_is_none(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_PORT", "http")
    status, _, err = run(capsys, "serve")
    assert status == 3
    assert "TUNESMITH_PORT is not a port: 'http'" in err


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["tune", "--like"], "tunesmith tune"),
        (["records", "export", "--tuner"], "tunesmith records export"),
        (["tune", "--lik"], "tunesmith tune"),
        (["nonsense"], "tunesmith"),
    ],
)
def test_usage_names_the_command(capsys: pytest.CaptureFixture[str], arguments: list[str], command: str) -> None:
    status, _, err = run(capsys, *arguments)
    assert (status, err.splitlines()[-1]) == (2, f"hint: See {command} --help.")


@pytest.mark.usefixtures("lasting_url")
def test_an_empty_file_is_called_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    empty = tmp_path / "empty.onnx"
    empty.touch()
    status, _, err = run(capsys, "upload", empty)
    assert (status, err.splitlines()[0]) == (5, f"error[invalid_model]: {empty} is empty")
