from __future__ import annotations

import base64
import json
import subprocess
import sys
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.scripted import ScriptedWorker
from tests.support.tunesmith.commands import parsed, run
from tunesmith import downloads, job_draft, requests
from tunesmith.cli import reports
from tunesmith.client import Client

ROOT = Path(__file__).parents[3]
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
REQUESTS: list[tuple[list[object], dict[str, object]]] = [
    (
        [
            "--tuner", "autotvm", "--runner", "rpc", "--rpc-tracker", "boards:9190", "--rpc-key", "pi4",
            "--rpc-session-timeout", 7, "--target", "llvm -mtriple=aarch64-linux-gnu", "--threads", 4,
            "--precision", "fp16", "--max-error", "1%", "--min-top1", "0.995", "--bundle-format", "object",
            "--runtimes", "tvm", "--search", "xgb", "--loss", "reg", "--feature-type", "curve", "--no-transfer",
            "--free-layout", "--no-rewrite", "--n-trial", 9, "--early-stopping", 5, "--trials", 32, "--seconds", 60,
            "--max-minutes", 7.5, "--number", 2, "--repeat", 6, "--min-repeat-ms", 20, "--timeout", 12.5,
            "--n-parallel", 8, "--cooldown-interval", 0.25, "--enable-cpu-cache-flush", "--priority", 3,
            "--group", "nightly", "--label", "team=vision", "--label", "a=b=c",
            "--webhook", "https://hooks.example.com/tuned", "--webhook-secret", SECRET,
        ],
        {
            "tuner": "autotvm", "runner": "rpc", "rpc.tracker": "boards:9190", "rpc.key": "pi4",
            "rpc.session_timeout": 7.0, "target": "llvm -mtriple=aarch64-linux-gnu", "threads": 4,
            "precision": "fp16", "accuracy.max_rel": 0.01, "accuracy.top1": 0.995, "bundle_format": "object",
            "runtimes": ["tvm"], "tuner_options.search": "xgb", "tuner_options.loss_type": "reg",
            "tuner_options.feature_type": "curve", "tuner_options.transfer": False,
            "tuner_options.keep_layout": False, "tuner_options.rewrite": False, "tuner_options.n_trial": 9,
            "tuner_options.early_stopping": 5, "budget.trials": 32, "budget.seconds": 60.0,
            "budget.total_seconds": 450.0, "measure.number": 2, "measure.repeat": 6, "measure.min_repeat_ms": 20,
            "measure.timeout": 12.5, "measure.n_parallel": 8, "measure.cooldown_interval": 0.25,
            "measure.enable_cpu_cache_flush": True, "priority": 3, "group": "nightly",
            "labels": {"team": "vision", "a": "b=c"}, "webhook.url": "https://hooks.example.com/tuned",
            "webhook.secret": SECRET,
        },
    ),
    (
        [
            "--target", "llvm -mtriple=aarch64-linux-gnu", "--runner", "none", "--device", "rpc/pi4/t4",
            "--tuner", "ansor", "--layout", "NHWC",
        ],
        {"device": "rpc/pi4/t4", "tuner_options.layout": "NHWC"},
    ),
]  # fmt: skip
"""Arguments of the command, and what is in the job then, by the paths of the options."""
ELSEWHERE = {"like", "input_shapes", "frequencies", "padding", "data"}
"""Options of other models and of what is stored already: test_requesting, test_sizes and test_data_sets have them."""


@pytest.mark.usefixtures("url")
def test_every_option_reaches_the_server(capsys: pytest.CaptureFixture[str], onnx: Path) -> None:
    sent = {path for _, values in REQUESTS for path in values}
    assert sent | ELSEWHERE == {option.path for option in job_draft.options() if option.cli}
    made = [parsed(capsys, "tune", onnx, "--no-wait", *arguments) for arguments, _ in REQUESTS]
    for job, (_, values) in zip(made, REQUESTS, strict=True):
        assert {path: reduce(getitem, path.split("."), job) for path in values} == values
    status, out, _ = run(capsys, "status", made[0]["id"])
    assert status == 0
    assert "running of at most 7 min 30 s" in " ".join(out.split())
    assert "autotvm, fp16 precision, measured on 'pi4' behind boards:9190, object bundle" in " ".join(out.split())


@pytest.mark.usefixtures("url")
def test_a_build_with_a_boards_records(capsys: pytest.CaptureFixture[str], onnx: Path) -> None:
    arm = ["--target", "llvm -mtriple=aarch64-linux-gnu", "--runner", "none", "--device", "rpc/pi4/t4"]
    status, job, err = run(capsys, "tune", onnx, "--no-wait", *arm)
    assert (status, "waits for a worker; no worker is alive" in err) == (0, True)
    _, out, _ = run(capsys, "status", job.strip())
    assert "built with the records of rpc/pi4/t4" in " ".join(out.split())
    assert "no worker is alive" in out


@pytest.mark.usefixtures("lasting_url")
@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["--runner", "rpc"], 5, "invalid_option"),
        (["--rpc-tracker", "boards:9190"], 2, "usage"),
        (["--rpc-tracker", "boards:9190", "--rpc-key", "k"], 5, "invalid_option"),
        (["--tuner", "ansor", "--loss", "reg"], 5, "invalid_option"),
        (["--tuner", "autotvm", "--layout", "NHWC"], 5, "invalid_option"),
        (["--tuner", "ansor", "--target", "cuda -arch=sm_90"], 5, "unsupported_target"),
        (["--target", "cuda -arch=sm_91"], 5, "unknown_target"),
        (["--runner", "none", "--trials", 3], 5, "invalid_option"),
        (["--precision", "f16"], 5, "unknown_precision"),
        (["--max-error", "1%"], 5, "invalid_option"),
        (["--precision", "int8", "--max-error", "much"], 2, "usage"),
        (["--precision", "int8", "--min-top1", "120%"], 5, "invalid_request"),
        (["--precision", "int8", "--tuner", "ansor"], 5, "invalid_option"),
    ],
)
def test_options_that_do_not_fit(
    capsys: pytest.CaptureFixture[str], onnx: Path, arguments: list[Any], status: int, code: str
) -> None:
    found, out, err = run(capsys, "tune", onnx, "--no-wait", *arguments)
    assert (found, out) == (status, ""), err
    assert err.startswith(f"error[{code}]: ")
    assert "\nhint: " in err


@pytest.mark.usefixtures("url", "worker")
def test_the_tuner_that_leads_is_told(capsys: pytest.CaptureFixture[str], onnx: Path) -> None:
    told = "autotvm: 4 tuning tasks, 1 need no trials; records not usable: 5 of another toolchain"
    _, _, err = run(capsys, "tune", onnx)
    assert f"s; {told}" in err
    _, out, _ = run(capsys, "status", parsed(capsys, "jobs")[0]["id"])
    assert told in " ".join(out.split())


@pytest.mark.usefixtures("url", "worker")
def test_a_report_says_which_engine_and_why(capsys: pytest.CaptureFixture[str], onnx: Path) -> None:
    _, out, _ = run(capsys, "tune", onnx, "--precision", "fp16")
    assert "(ms; fp16; errors against ONNX Runtime)" in out
    assert "untuned and tuned  relay/tvm-0.19.0/llvm-22.1.8" in out
    assert "why       relay imports the model" in out
    assert "failed    dense_pack.x86: 4 run timeout; Allow more time." in out


@pytest.mark.usefixtures("url", "worker")
def test_a_report_says_what_was_compared(capsys: pytest.CaptureFixture[str], onnx: Path) -> None:
    _, out, _ = run(capsys, "tune", onnx)
    told = " ".join(out.split())
    assert "checked tuned: f32 on 3 inputs (x image); y: error 4e-05 % of its largest value, 0.01 % allowed" in told
    assert "top-1 agreement 100 %" in told
    assert (
        "measured on Zen with 2 threads, 2 samples each; 95 % confidence intervals of medians at most 3 % wide" in told
    )
    assert "3000 to 3700 MHz; 0.2 other running programs" in told
    assert "; calibration loop varied by 8 %; attempt 3" in told
    assert "NOISY: the calibration loop varied by 8%" in told


@pytest.mark.parametrize(
    ("passed", "told"), [(True, "y NOT COMPARED: the reference has no finite value there"), (False, "y: error 0 %")]
)
def test_a_report_says_what_was_not_compared(capsys: pytest.CaptureFixture[str], passed: bool, told: str) -> None:
    output = {
        "output": "y", "max_rel": 0.0, "rtol": 0.1, "top1": None, "not_finite": 0, "not_compared": True, "empty": False,
        "passed": passed, "max_abs": 0.0,
    }  # fmt: skip
    found = {"precision": "f32", "seeds": [0, 1, 2], "inputs": {}, "outputs": [output], "passed": passed}
    empty: dict[str, Any] = {"timings": {}, "engines": {}, "choice": [], "failed_tasks": []}
    reports.comparison({**empty, "summary": "So it is.", "verifications": {"tuned": found}}, precision="f32")
    assert told in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("library", "runtime", "told"), [("bf16", "bf16", "runs the bundle"), ("f32", "int8", "runs the bundle in int8")]
)
def test_a_report_says_in_which_precision_the_runtime_computes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, library: str, runtime: str, told: str
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    times = {"samples": [], "ci_low": None, "ci_high": None}
    times |= dict.fromkeys(("mean", "median", "p90", "max", "min", "std"), 1e-3)
    report: dict[str, Any] = {
        "timings": {"untuned": times, "openvino": times}, "verifications": {}, "published": "untuned",
        "precision": library, "runtime": "openvino", "runtime_variant": "openvino", "runtime_precision": runtime,
        "compared_with": "ONNX Runtime", "engines": {}, "choice": [], "failed_tasks": [], "summary": "So it is.",
    }  # fmt: skip
    reports.comparison(report, precision="auto")
    lines = capsys.readouterr().out.splitlines()
    assert f"(ms; {library}; errors against ONNX Runtime)" in lines[0]
    assert next(line for line in lines if "openvino" in line).rstrip().endswith(told)


@pytest.mark.usefixtures("url")
def test_the_best_of_a_precision(
    capsys: pytest.CaptureFixture[str], onnx: Path, worker: ScriptedWorker, tmp_path: Path
) -> None:
    run(capsys, "tune", onnx, "--precision", "fp16")
    status, _, err = run(capsys, "pull", "--model", onnx)
    assert (status, "error[artifact_not_found]" in err) == (5, True)
    status, out, _ = run(capsys, "pull", "--model", onnx, "--precision", "fp16", "-o", tmp_path / "half.tar")
    assert (status, Path(out.strip()).name) == (0, "half.tar")
    status, _, _ = run(capsys, "pull", "--model", onnx, "--precision", "auto", "-o", tmp_path / "any.tar")
    assert (status, (tmp_path / "any.tar").read_bytes()) == (0, (tmp_path / "half.tar").read_bytes())


@pytest.mark.contract
def test_help_is_in_groups() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tunesmith", "tune", "--help"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    heads = [line for line in done.stdout.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert heads == [
        "Arguments:", "Build options:", "Search options:", "Measurement options:", "Job options:", "Options:",
    ]  # fmt: skip


def test_a_draft_says_only_what_was_asked_for() -> None:
    assert requests.draft("m-1", {}) == {"model": "m-1"}
    options: requests.Options = {"trials": 8, "seconds": None, "threads": None, "input_shapes": {"x": (1, 3)}}
    assert requests.draft("m-1", options) == {"model": "m-1", "budget": {"trials": 8}, "input_shapes": {"x": [1, 3]}}
    assert json.dumps(requests.draft("m-1", {"rpc": {"tracker": "a:1", "key": "k"}, "runner": "rpc"}))


@pytest.mark.usefixtures("lasting_url")
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--seconds", "nan"], 5, "error[invalid_budget]: invalid budget: 'nan'"),
        (["--seconds", "inf"], 5, "error[invalid_budget]: invalid budget: 'inf'"),
        (["--max-minutes", "soon"], 2, "--max-minutes must be a number of minutes, not 'soon'"),
        (["--max-minutes", "inf"], 2, "error[usage]: "),
        (["--max-minutes", "0"], 5, "error[invalid_budget]: "),
        (["--timeout", "inf"], 5, "error[invalid_input]: measure.timeout is inf"),
        (["--precision", "fp16", "--max-error", "nan"], 2, "error[usage]: "),
        (["--precision", "fp16", "--min-top1", "inf%"], 2, "error[usage]: "),
    ],
)
def test_numbers_that_are_none(
    capsys: pytest.CaptureFixture[str], onnx: Path, arguments: list[str], status: int, words: str
) -> None:
    found, _, err = run(capsys, "tune", onnx, "--no-wait", *arguments)
    assert (found, words in err, "\nhint: " in err) == (status, True, True), err


@pytest.mark.usefixtures("lasting_url")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--webhook-secret", "whsec_x"], "--webhook URL"),
        (["--no-wait", "-o", "x.tar"], "--no-wait"),
        (["--dry-run", "-o", "x.tar"], "--dry-run"),
        (["-o", "-"], "standard output"),
    ],
)
def test_no_option_is_overlooked(
    capsys: pytest.CaptureFixture[str], onnx: Path, arguments: list[str], words: str
) -> None:
    status, out, err = run(capsys, "tune", onnx, *arguments)
    assert (status, out, err.startswith("error[usage]: "), words in err) == (2, "", True, True), err
    assert parsed(capsys, "jobs") == []


def test_a_secret_of_the_environment_needs_no_webhook(
    capsys: pytest.CaptureFixture[str], url: str, onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_WEBHOOK_SECRET", "whsec_x")
    assert parsed(capsys, "tune", onnx, "--no-wait")["webhook"] is None


@pytest.mark.usefixtures("lasting_url")
@pytest.mark.parametrize("place", ["nowhere/x.tar", "net.onnx/x.tar", "net.onnx/"])
def test_a_place_that_cannot_be_written_is_told_before_the_job(
    capsys: pytest.CaptureFixture[str], onnx: Path, place: str
) -> None:
    status, _, err = run(capsys, "tune", onnx, "-o", place)
    assert (status, f"error[unwritable_file]: cannot write {place.rstrip('/')}: " in err) == (5, True), err
    assert parsed(capsys, "jobs") == []


@pytest.mark.usefixtures("worker", "url")
def test_a_place_that_fails_after_the_job_names_the_job(
    capsys: pytest.CaptureFixture[str], onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "check", lambda _: None)
    status, _, err = run(capsys, "tune", onnx, "-o", "nowhere/x.tar")
    job = parsed(capsys, "jobs")[0]["id"]
    assert status == 5
    assert f"hint: The bundle is stored; download it with: tunesmith pull {job} -o FILE" in err


@pytest.mark.usefixtures("worker", "url")
def test_a_folder_is_made_where_a_slash_says_so(
    capsys: pytest.CaptureFixture[str], onnx: Path, client: Client, tmp_path: Path
) -> None:
    status, _, err = run(capsys, "tune", onnx, "-o", "first/")
    assert status == 0, err
    (bundle,) = Path("first").iterdir()
    job = parsed(capsys, "jobs")[0]
    assert bundle.name == f"{job['artifact_id']}.tar"
    status, out, _ = run(capsys, "pull", job["id"], "-o", "second/deep/")
    assert (status, out) == (0, f"second/deep/{bundle.name}\n")
    assert Path(out.strip()).read_bytes() == bundle.read_bytes()
    assert client.job(job["id"]).artifact.download(f"{tmp_path}/third/") == tmp_path / "third" / bundle.name
    assert run(capsys, "pull", job["id"], "-o", "-")[0] == 2
    assert not Path("-").exists()


@pytest.mark.usefixtures("lasting_url")
def test_a_refusal_by_the_document_speaks_of_the_command(capsys: pytest.CaptureFixture[str], onnx: Path) -> None:
    status, _, err = run(capsys, "tune", onnx, "--no-wait", "--group", "a b")
    assert (status, err.splitlines()[-1]) == (5, "hint: See tunesmith tune --help.")
    assert "error[invalid_request]: group contains invalid characters" in err
