from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.api.factories import TOOLCHAINS, Service
from tests.support.api.scripted import ScriptedWorker
from tests.support.tunesmith.commands import parsed, run
from tunesmith.cli import tune_command
from tunesmith.client import Client


@pytest.fixture
def fleet(service: Service) -> None:
    ScriptedWorker(service).beat(toolchains=tuple(TOOLCHAINS.values()))


@pytest.mark.usefixtures("url", "fleet")
def test_a_dry_run_queues_nothing(capsys: pytest.CaptureFixture[str], service: Service, onnx: Path) -> None:
    status, out, err = run(capsys, "tune", onnx, "--dry-run", "--trials", 40)
    assert status == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert ["autotvm", "2", "0", "0", "40", "0", "-", "0.3"] in lines
    assert "relay     imports the model (relay/tvm-0.19.0/llvm-22.1.8)" in out
    assert "assume 0.5 s per trial" in out
    assert parsed(capsys, "tune", onnx, "--dry-run")["considered"] == ["autotvm", "ansor", "metaschedule"]
    assert parsed(capsys, "tune", "--operator", "dense x=1,4 w=8,4", "--dry-run")["possible"] is True
    assert parsed(capsys, "jobs") == []
    assert service.publisher.rung == 0


@pytest.mark.usefixtures("url", "fleet")
def test_a_model_that_no_engine_takes(capsys: pytest.CaptureFixture[str], service: Service, onnx: Path) -> None:
    service.planner.unsupported = {"relay": {"GridSample": 2, "Foo": 1}}
    service.planner.missing = {"relax"}
    status, out, _ = run(capsys, "tune", onnx, "--dry-run")
    assert status == 1
    shown = " ".join(out.split())
    assert "relay cannot import the model; unsupported operators: GridSample × 2, Foo × 1" in shown
    assert "was not tried: [engine_not_installed]" in shown
    assert "hint: Install it." in out


@pytest.mark.usefixtures("url", "fleet")
def test_a_plan_says_where_its_budget_ends(capsys: pytest.CaptureFixture[str], onnx: Path) -> None:
    _, out, _ = run(capsys, "tune", onnx, "--dry-run", "--tuner", "autotvm", "--seconds", 6)
    assert "The time budget ends autotvm after about 12 of its" in out
    _, out, _ = run(capsys, "tune", onnx, "--dry-run", "--tuner", "autotvm", "--trials", 8)
    assert "The time budget ends" not in out
    assert "does not reach 1 of autotvm's tasks" in " ".join(out.split())


@pytest.mark.usefixtures("url", "fleet")
def test_a_dry_run_waits_for_its_turn(
    capsys: pytest.CaptureFixture[str], service: Service, onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = service.app.state.services.plan_slots
    assert slots.acquire(blocking=False)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            slots.release()

    monkeypatch.setattr(tune_command, "time", SimpleNamespace(sleep=pause))
    status, out, err = run(capsys, "tune", onnx, "--dry-run")
    assert (status, len(pauses), err.count("busy with another plan")) == (0, 2, 1)
    assert "no job was submitted" in out


@pytest.mark.usefixtures("url")
def test_no_worker_lives(capsys: pytest.CaptureFixture[str], onnx: Path) -> None:
    status, out, _ = run(capsys, "tune", onnx, "--dry-run")
    assert (status, "no worker is alive" in " ".join(out.split())) == (0, True)


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize("columns", ["120", "60"])
def test_a_plan_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], url: str, onnx: Path, monkeypatch: Any, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    _, out, _ = run(capsys, "tune", onnx, "--dry-run")
    assert max(map(len, out.splitlines())) <= int(columns)


@pytest.mark.usefixtures("fleet")
def test_the_client_plans(client: Client, onnx: Path) -> None:
    plan = client.plan(client.upload(onnx), tuner="ansor", trials=16)
    assert plan["engines"][0]["tuners"][0]["trials"] == 16
