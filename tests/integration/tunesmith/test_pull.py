"""``tunesmith pull`` against a real server: what is taken, what is locked, what is refused."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domain.artifacts import Artifact, Report, Runtime
from tests.support.api.factories import Service
from tests.support.api.scripted import DEVICE, TARGET, TOOLCHAIN
from tests.support.tunesmith.commands import run
from tests.support.tunesmith.stored import forget, replaced, tuned
from tunesmith import downloads
from tunesmith.client import Client
from tunesmith.models import Model

RELAX = "relax/tvm-0.27.0/llvm-22.1.8"
LOCK = "tunesmith.lock"


@pytest.fixture
def model(client: Client, onnx: Path) -> Model:
    return client.upload(onnx)


@pytest.fixture
def good(service: Service, client: Client, model: Model) -> Artifact:
    """0.5 ms"""
    return tuned(service, client, model, gain=1.6)


Capture = pytest.CaptureFixture[str]


def pull(capsys: Capture, *arguments: object) -> tuple[int, str, str]:
    return run(capsys, "pull", "--model", "net.onnx", "-o", "best.tar", "--lock", LOCK, *arguments)


def locked() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = tomllib.loads(Path(LOCK).read_text())["artifact"]
    return entries


def test_what_was_taken_is_locked(capsys: Capture, onnx: Path, good: Artifact) -> None:
    status, out, err = pull(capsys)
    assert (status, out) == (0, "best.tar\n"), err
    (entry,) = locked()
    assert entry == {
        "model": hashlib.sha256(onnx.read_bytes()).hexdigest(),
        "target": "native",
        "precision": "f32",
        "artifact": good.id,
        "sha256": hashlib.sha256(Path("best.tar").read_bytes()).hexdigest(),
        "bytes": good.size_bytes,
        "built_for": TARGET.identity,
        "device_key": DEVICE.key,
        "toolchain": TOOLCHAIN.identity,
        "median_seconds": pytest.approx(0.0005),
        "speedup_over_untuned": 1.6,
        "speedup_over_reference": pytest.approx(1.14),
        "max_abs_error": 3.6e-7,
        "max_rel_error": 4e-7,
        "job": good.job_id,
    }


def test_the_second_time_nothing_is_sent(capsys: Capture, good: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    pull(capsys)
    before = (Path(LOCK).read_bytes(), Path(LOCK).stat().st_mtime_ns, Path("best.tar").stat().st_mtime_ns)
    with monkeypatch.context() as patched:
        patched.setattr(downloads, "fetch", None)
        status, out, err = pull(capsys, "--fail-if-slower", "0%")
    assert (status, out, "unchanged" in err) == (0, "best.tar\n", True), err
    assert before == (Path(LOCK).read_bytes(), Path(LOCK).stat().st_mtime_ns, Path("best.tar").stat().st_mtime_ns)
    Path("best.tar").write_bytes(b"damaged")
    status, _, err = pull(capsys)
    assert (status, "unchanged" in err) == (0, False)
    assert hashlib.sha256(Path("best.tar").read_bytes()).hexdigest() == good.digest
    assert Path(LOCK).read_bytes() == before[0]


def test_what_is_faster_is_taken_and_told(
    capsys: Capture, service: Service, client: Client, model: Model, good: Artifact
) -> None:
    pull(capsys)
    better = tuned(service, client, model, gain=2.0)
    status, _, err = pull(capsys, "--fail-if-slower", "0%")
    assert status == 0
    assert "latency    0.500 ms → 0.400 ms  (20.0 % faster)" in err
    assert f"artifact   {good.id} → {better.id}" in err
    assert [entry["artifact"] for entry in locked()] == [better.id]
    assert hashlib.sha256(Path("best.tar").read_bytes()).hexdigest() == better.digest


@pytest.mark.parametrize(("gain", "limit", "status"), [(1.5, "5%", 1), (1.5, "0.07", 0), (1.6, "0%", 0)])
def test_what_is_slower_is_refused(
    capsys: Capture, service: Service, client: Client, model: Model, good: Artifact,
    gain: float, limit: str, status: int,
) -> None:  # fmt: skip
    pull(capsys)
    before = Path(LOCK).read_bytes(), Path("best.tar").read_bytes()
    worse = tuned(service, client, model, gain=gain)
    forget(service, good.id)
    found, out, err = pull(capsys, "--fail-if-slower", limit)
    assert found == status, err
    if status == 0:
        assert locked()[0]["artifact"] == worse.id
        return
    assert out == ""
    assert "latency    0.500 ms → 0.533 ms  (6.7 % slower)" in err
    assert f"artifact   {good.id} → {worse.id}" in err
    assert "error[artifact_slower]: the best bundle is 6.7 % slower than the locked one; 5 % is allowed" in err
    assert "--update" in err
    assert (Path(LOCK).read_bytes(), Path("best.tar").read_bytes()) == before
    found, out, _ = pull(capsys, "--fail-if-slower", limit, "--json")
    assert found == 1
    told = json.loads(out)
    assert (told["status"], told["now"]["artifact"], told["locked"]["artifact"]) == (
        "artifact_slower", worse.id, good.id,
    )  # fmt: skip
    assert pull(capsys, "--update")[0] == 0
    assert locked()[0]["artifact"] == worse.id


def test_another_toolchain_does_not_take_its_place(
    capsys: Capture, service: Service, client: Client, model: Model, good: Artifact
) -> None:
    pull(capsys)
    other = tuned(service, client, model, gain=4.0, toolchain=RELAX)
    status, _, err = pull(capsys, "--fail-if-slower", "5%")
    assert (status, f"{other.id} is faster, but built by {RELAX}" in err) == (0, True), err
    assert locked()[0]["artifact"] == good.id
    forget(service, good.id)
    status, _, err = pull(capsys, "--fail-if-slower", "5%")
    assert status == 1
    assert f"artifact   {good.id} → none" in err
    assert "error[artifact_missing]: there is no verified f32 bundle of this model" in err
    assert f"by relay/tvm-0.19.0 on {DEVICE.key}; the lock file has {good.id}" in err
    assert f"{other.id}: f32 for {TARGET.identity}, by {RELAX} on {DEVICE.key}, 0.200 ms" in err
    status, _, err = pull(capsys, "--update")
    assert (status, "toolchain  relay/tvm-0.19.0/llvm-22.1.8 → relax/tvm-0.27.0" in err) == (0, True)
    assert locked()[0]["artifact"] == other.id


def test_another_device_does_not_take_its_place(
    capsys: Capture, service: Service, client: Client, model: Model, good: Artifact
) -> None:
    pull(capsys)
    tuned(service, client, model, gain=4.0, device_key="Xeon/avx512/t2")
    status, _, err = pull(capsys)
    assert (status, "for Xeon/avx512/t2; use --update to accept it" in err) == (0, True)
    assert locked()[0]["artifact"] == good.id


def test_a_toolchain_can_be_asked_for(
    capsys: Capture, service: Service, client: Client, model: Model, good: Artifact
) -> None:
    other = tuned(service, client, model, gain=1.1, toolchain=RELAX)
    for asked in ("relax", "relax/tvm-0.27.0", RELAX):
        assert pull(capsys, "--toolchain", asked, "--update")[0] == 0
        assert locked()[0]["artifact"] == other.id
    status, _, err = run(capsys, "pull", "--model", "net.onnx", "--toolchain", "relax/tvm-0.2")
    assert status == 5
    assert "error[artifact_not_found]: there is no verified f32 bundle of this model for native by relax/tvm-0.2" in err
    assert f"hint: Available: {good.id}: f32 for {TARGET.identity}, by relay" in err


def test_what_nobody_could_verify_is_only_told(capsys: Capture, service: Service, client: Client, model: Model) -> None:
    unproven = tuned(service, client, model, gain=2.0, verified=False)
    status, _, err = pull(capsys)
    assert (status, f"{unproven.id}: f32 for" in err, "not verified" in err) == (1, True, True)
    assert "error[artifact_missing]" in err
    assert not Path(LOCK).exists()
    Path("net.onnx").write_bytes(b"nobody has uploaded this")
    status, _, err = pull(capsys)
    assert (status, "error[model_not_found]" in err, "tunesmith upload" in err) == (1, True, True)
    assert run(capsys, "pull", "--model", "net.onnx")[0] == 5


def test_frozen_takes_what_is_locked(
    capsys: Capture, service: Service, client: Client, model: Model, good: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = pull(capsys, "--frozen")
    assert (status, "error[not_locked]" in err, "hint: " in err) == (1, True, True)
    pull(capsys)
    tuned(service, client, model, gain=3.0)
    Path("best.tar").unlink()
    before = Path(LOCK).read_bytes()
    assert pull(capsys, "--frozen")[0] == 0
    assert hashlib.sha256(Path("best.tar").read_bytes()).hexdigest() == good.digest
    assert Path(LOCK).read_bytes() == before
    monkeypatch.setenv("TUNESMITH_URL", "http://127.0.0.1:9")
    status, out, err = pull(capsys, "--frozen")
    assert (status, out, "unchanged" in err) == (0, "best.tar\n", True), "no server is needed for what is there"
    forget(service, good.id)
    monkeypatch.delenv("TUNESMITH_URL")
    Path("best.tar").unlink()
    status, _, err = pull(capsys, "--frozen")
    assert (status, "error[artifact_missing]" in err, f"artifact   {good.id} → none" in err) == (1, True, True)


@pytest.mark.parametrize("is_other", [True, False])
def test_the_hint_at_a_deleted_bundle_is_true(
    capsys: Capture, service: Service, client: Client, model: Model, good: Artifact, *, is_other: bool
) -> None:
    pull(capsys)
    Path("best.tar").unlink()
    client.delete_artifact(good.id)
    other = tuned(service, client, model, gain=1.5) if is_other else None
    status, _, err = pull(capsys, "--frozen")
    assert (status, "error[artifact_deleted]" in err) == (1, True), err
    assert "hint: Pull again without --frozen " in err
    status, _, err = pull(capsys)
    assert (status, [entry["artifact"] for entry in locked()]) == (
        (0, [other.id]) if other else (1, [good.id])
    ), err  # fmt: skip
    if not other:
        assert "error[artifact_missing]" in err
        assert "hint: Tune the model again: tunesmith tune.\n" in err


def test_the_hint_of_a_toolchain_that_made_none_is_true(
    capsys: Capture, service: Service, client: Client, model: Model, good: Artifact
) -> None:
    pull(capsys)
    status, _, err = pull(capsys, "--toolchain", "relax")
    assert (status, "error[artifact_missing]" in err) == (1, True)
    assert f"To get {good.id}, use --update and omit --toolchain; or tune the model for these options" in err
    status, _, err = pull(capsys, "--toolchain", "relax", "--update")
    assert (status, "error[artifact_missing]" in err) == (1, True)
    assert f"To get {good.id}, omit --toolchain; or tune the model for these options.\n" in err
    # Another device is another question, so nothing is locked for it.
    status, _, err = pull(capsys, "--toolchain", "relax", "--device", "Xeon/avx512/t2")
    assert (status, f"To get {good.id}, omit --toolchain and --device; or" in err) == (1, True)
    assert pull(capsys, "--update")[0] == 0


def test_only_what_update_would_take_is_named(
    capsys: Capture, service: Service, client: Client, model: Model, good: Artifact
) -> None:
    pull(capsys)
    half = tuned(service, client, model, gain=2.5, precision="fp16")
    other = tuned(service, client, model, gain=1.1, toolchain=RELAX)
    forget(service, good.id)
    status, _, err = pull(capsys)
    assert (status, f"Available: {half.id}: fp16" in err) == (1, True), err
    assert f"Accept the best match, {other.id}, with --update." in err
    forget(service, other.id)
    status, _, err = pull(capsys)
    assert (status, f"Available: {half.id}: fp16" in err) == (1, True), err
    assert "Tune the model again: tunesmith tune.\n" in err
    assert "--update" not in err
    assert pull(capsys, "--update")[0] == 1


def test_ctrl_c_keeps_what_has_come(capsys: Capture, good: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    whole = downloads._append

    def interrupted(*arguments: Any, **options: Any) -> None:
        arguments[2].write(b"bundle of")
        raise KeyboardInterrupt

    def watched(*arguments: Any, **options: Any) -> None:
        asked.append(arguments[2].tell())
        whole(*arguments, **options)

    monkeypatch.setattr(downloads, "_append", interrupted)
    status, out, err = pull(capsys)
    assert (status, out, "run the same command to resume it" in err) == (130, "", True)
    assert not Path(LOCK).exists()
    monkeypatch.setattr(downloads, "_append", watched)
    assert pull(capsys)[0] == 0
    assert asked == [len("bundle of")]
    assert hashlib.sha256(Path("best.tar").read_bytes()).hexdigest() == good.digest
    assert list(Path().glob(".best*")) == []


def test_who_may_not_see_the_job_changes_nothing(
    capsys: Capture, good: Artifact, service: Service, client: Client
) -> None:
    pull(capsys)
    before = Path(LOCK).read_text()
    Path(LOCK).write_text("".join(line for line in before.splitlines(True) if not line.startswith("job = ")))
    kept = Path(LOCK).read_text()
    assert kept != before
    assert (pull(capsys)[0], Path(LOCK).read_text()) == (0, kept)
    Path(LOCK).write_text(before.replace("median_seconds = 0.0005", "median_seconds = 0.0004"))
    assert (pull(capsys)[0], Path(LOCK).read_text()) == (0, before)


def test_several_questions_share_a_file(
    capsys: Capture, service: Service, client: Client, model: Model, good: Artifact, tmp_path: Path
) -> None:
    half = tuned(service, client, model, gain=2.5, precision="fp16")
    other = tmp_path / "other.onnx"
    other.write_bytes(b"static model, another one")
    tuned(service, client, client.upload(other), gain=1.2)
    orders = []
    for order in ((0, 1, 2), (2, 1, 0)):
        Path(LOCK).unlink(missing_ok=True)
        ways: list[list[object]] = [["--precision", "fp16"], [], ["--model", other]]
        for place in order:
            assert pull(capsys, *ways[place])[0] == 0
        orders.append(Path(LOCK).read_text())
    assert orders[0] == orders[1], "the order of pulling does not show"
    assert sorted(entry["precision"] for entry in locked()) == ["f32", "f32", "fp16"]
    assert half.id in {entry["artifact"] for entry in locked()}


def test_a_jobs_bundle_is_locked_too(capsys: Capture, good: Artifact) -> None:
    assert run(capsys, "pull", good.job_id, "-o", "best.tar", "--lock", LOCK)[0] == 0
    assert (locked()[0]["artifact"], locked()[0]["target"]) == (good.id, TARGET.identity)
    status, _, err = run(capsys, "pull", good.job_id, "-o", "best.tar", "--lock", LOCK)
    assert (status, "unchanged" in err) == (0, True)


def test_programs_read_json(capsys: Capture, good: Artifact) -> None:
    status, out, _ = pull(capsys, "--json")
    told = json.loads(out)
    assert (status, told["status"], told["path"], told["artifact"]["id"]) == (0, "downloaded", "best.tar", good.id)
    assert told["locked"]["sha256"] == good.digest
    assert "0.500 ms" in told["why"]
    assert json.loads(pull(capsys, "--json")[1])["status"] == "unchanged"
    assert json.loads(pull(capsys, "--frozen", "--json")[1])["status"] == "unchanged"


REFERENCE = "--fail-if-slower-than-reference"


def with_ratio(made: Artifact, ratio: float | None) -> Report:
    return replace(made.report, speedup_over_reference=ratio)


@pytest.mark.parametrize(("ratio", "status"), [(1.14, 0), (0.98, 0), (0.97, 1), (0.5, 1), (None, 1)])
@pytest.mark.parametrize("by_job", [True, False])
def test_a_bundle_slower_than_the_reference_is_refused(
    capsys: Capture, service: Service, good: Artifact, ratio: float | None, status: int, by_job: bool
) -> None:
    replaced(service, good, report=with_ratio(good, ratio))
    which = [good.job_id] if by_job else ["--model", "net.onnx"]
    found, out, err = run(capsys, "pull", *which, "-o", "best.tar", REFERENCE)
    assert (found, Path("best.tar").exists()) == (status, status == 0), err
    if status:
        said = "was not compared with" if ratio is None else f"{ratio:.2f}× as fast"
        assert err.startswith(f"error[artifact_slower_than_reference]: {good.id} ")
        assert said in err
        assert "\nhint: " in err
        found, out, _ = run(capsys, "pull", *which, "-o", "best.tar", REFERENCE, "--json")
        told = json.loads(out)
        assert (found, told["status"], told["speedup_over_reference"], told["now"]["artifact"]) == (
            1, "artifact_slower_than_reference", ratio, good.id,
        )  # fmt: skip
    assert run(capsys, "pull", *which, "-o", "best.tar")[0] == 0


def test_a_bundle_that_runs_with_the_reference_is_not_slower(capsys: Capture, service: Service, good: Artifact) -> None:
    replaced(service, good, report=replace(with_ratio(good, 0.5), runtime=Runtime.ONNXRUNTIME))
    assert pull(capsys, REFERENCE)[0] == 0
    (entry,) = locked()
    assert (entry["runtime"], entry["speedup_over_reference"]) == ("onnxruntime", 0.5)
    assert pull(capsys, REFERENCE, "--frozen")[0] == 0
    Path(LOCK).write_text(Path(LOCK).read_text().replace('runtime = "onnxruntime"', "runtime = 3"))
    assert "error[invalid_lock]" in pull(capsys)[2]


def test_a_locked_bundle_slower_than_the_reference_is_refused(
    capsys: Capture, service: Service, good: Artifact
) -> None:
    replaced(service, good, report=with_ratio(good, 0.9))
    assert pull(capsys, REFERENCE)[0] == 1
    assert not Path(LOCK).exists()
    assert pull(capsys)[0] == 0
    for options in ([], ["--frozen"], ["--update"]):
        status, _, err = pull(capsys, REFERENCE, *options)
        assert (status, err.startswith("error[artifact_slower_than_reference]")) == (1, True), err


@pytest.mark.usefixtures("lasting_url")
@pytest.mark.parametrize(
    "arguments",
    [
        ["j-1", "--frozen"],
        ["--model", "net.onnx", "--fail-if-slower", "5%"],
        ["--model", "net.onnx", "--lock", "l", "--fail-if-slower", "much"],
        ["--model", "net.onnx", "--lock", "l", "--fail-if-slower=-5%"],
        ["--model", "net.onnx", "--lock", "l", "--fail-if-slower", "5"],
        ["--model", "net.onnx", "--lock", "l", "--fail-if-slower", "1"],
        ["--model", "net.onnx", "--lock", "l", "--fail-if-slower", "nan%"],
        ["--model", "net.onnx", "--lock", "l", "--frozen", "--update"],
        ["j-1", "--lock", "l", "--frozen"],
        ["j-1", "--target", "native"],
        ["j-1", "--precision", "f32"],
        ["j-1", "--input-shape", "x:1,2"],
        ["--model", "net.onnx", "--lock", "l", "--frozen", "--toolchain", "relay"],
    ],
)
def test_options_that_do_not_fit(capsys: Capture, onnx: Path, arguments: list[str]) -> None:
    status, _, err = run(capsys, "pull", *arguments)
    assert (status, err.startswith("error[usage]")) == (2, True)


@pytest.mark.parametrize(
    "damage",
    ['median_seconds = "x"', "median_seconds = -1", "median_seconds = 0", "median_seconds = nan", "bytes = true",
     "max_abs_error = inf", "job = 3", "precision = 1", 'input_shapes = { x = "12" }', "input_shapes = [1]"],
)  # fmt: skip
def test_a_damaged_entry_is_refused(capsys: Capture, good: Artifact, damage: str) -> None:
    pull(capsys)
    name = damage.split(" ")[0]
    lines = [line for line in Path(LOCK).read_text().splitlines() if not line.startswith(f"{name} = ")]
    Path(LOCK).write_text("\n".join([*lines, damage, ""]))
    for options in (["--fail-if-slower", "5%"], ["--frozen"]):
        status, _, err = pull(capsys, *options)
        assert (status, err.startswith(f"error[invalid_lock]: {LOCK} is not a valid lock file"), "\nhint: " in err) == (
            5, True, True,
        ), err  # fmt: skip


def test_a_limit_needs_times_on_both_sides(
    capsys: Capture, service: Service, client: Client, model: Model, good: Artifact
) -> None:
    pull(capsys)
    whole = Path(LOCK).read_text()
    timeless = "".join(line for line in whole.splitlines(True) if not line.startswith("median_seconds"))
    Path(LOCK).write_text(timeless)
    assert (pull(capsys, "--fail-if-slower", "5%")[0], Path(LOCK).read_text()) == (0, whole), "the same bundle"
    Path(LOCK).write_text(timeless)
    worse = tuned(service, client, model, gain=1.5)
    forget(service, good.id)
    status, _, err = pull(capsys, "--fail-if-slower", "5%")
    assert (status, "error[invalid_lock]" in err, Path(LOCK).read_text()) == (5, True, timeless), err
    assert pull(capsys)[0] == 0
    assert locked()[0]["artifact"] == worse.id


def test_the_shape_that_is_missing_is_named(capsys: Capture, good: Artifact) -> None:
    status, _, err = run(capsys, "pull", "--model", "net.onnx", "--input-shape", "x:1,3,48,100")
    assert status == 5
    assert "there is no verified f32 bundle of this model for native with x:1,3,48,100\n" in err
