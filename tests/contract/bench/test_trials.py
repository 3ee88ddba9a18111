from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import trials
from bench.stock import serving
from tuner.host import catalogue


class Engine:
    """Answers rounds as an engine does: each trial a millisecond faster than the one before."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def request(self, method: str, params: dict[str, Any], *, timeout: float, on_event: Any) -> dict[str, Any]:
        assert method == "tune"
        assert timeout > 0
        self.asked.append(params)
        for number in range(params["first_trial"], params["first_trial"] + params["trials"]):
            failed = number % 4 == 3
            latencies = [] if failed else [(100 - number) * 1e-3]
            error = "build_error" if failed else None
            on_event("trial", {"latencies": latencies, "error": error, "schedule": f"line {number}"})
        return {"exhausted": False, "spent": {"search": 0.0, "build": 0.0, "measure": 0.0, "train": 0.0}}

    def close(self) -> None:
        """Nothing runs."""


@pytest.fixture
def setting(tmp_path: Path) -> trials.Setting:
    return trials.Setting(
        tuner="autotvm", engine=catalogue.get("relay"), python=tmp_path / "python", home=tmp_path, folder=tmp_path,
        model=tmp_path / "model.onnx", mcpu="znver4", threads=2, options={"rewrite": False},
    )  # fmt: skip


def test_our_side_is_asked_in_rounds_and_keeps_its_best(
    setting: trials.Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    monkeypatch.setattr(trials.EngineSession, "start", lambda *_, **__: engine)
    ours = trials.Ours(setting)
    with ours:
        ours.tune({"workload_key": "k", "position": 0, "name": "conv2d"}, 20)
    assert [(params["first_trial"], params["trials"]) for params in engine.asked] == [(0, 8), (8, 8), (16, 4)]
    assert engine.asked[0]["target"] == "llvm -mcpu=znver4"
    assert ours.best == {"k": "line 18"}
    assert (ours.report["trials"], ours.report["valid"]) == (20, 15)
    assert sum(part["share"] for part in ours.breakdown.values()) == pytest.approx(1.0)
    assert set(ours.breakdown) == {"start", "search", "build", "measure", "train", "idle"}


def test_both_sides_are_timed_in_turn_and_the_least_counts() -> None:
    told: list[str] = []

    def run(name: str, seconds: list[float]) -> Any:
        def once() -> float:
            told.append(name)
            return seconds.pop(0)

        return once

    sides = [run("stock", [3.0, 1.0, 2.0]), run("ours", [0.5, 0.7, 0.6])]
    assert serving._alternately(sides, 3) == [1.0, 0.5]
    assert told == ["stock", "ours"] * 3


def test_the_stock_side_is_a_program_that_answers_lines(setting: trials.Setting, tmp_path: Path) -> None:
    with (Path(serving.__file__).parent / "tune_autotvm.py").open() as file:
        assert '__name__ == "__main__"' in file.read()
    # An interpreter that answers whatever it is asked with one line, and ends with its input.
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\nwhile read line; do echo \'{"best": "b", "trials": 4, "valid": 3}\'; done\n')
    script.chmod(0o755)
    stock = trials.Stock(setting)
    with stock:
        stock.tune({"workload_key": "k", "position": 0, "name": "conv2d"}, 4)
    assert stock.best == {"k": "b"}
    assert json.loads(json.dumps(stock.report))["valid"] == 3
