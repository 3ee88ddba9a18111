"""Builds of AutoTVM with records of Ansor for the operators that no template computes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import start
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


@dataclass(frozen=True, kw_only=True)
class Tuned:
    place: dict[str, Any]
    folder: Path
    tasks: list[dict[str, Any]]
    """Ansor's, of AutoTVM's build."""
    autotvm: list[str]
    ansor: list[str]

    def request(self, lines: list[str], name: str) -> dict[str, Any]:
        records = asking.write_lines(self.folder / f"{name}.jsonl", lines)
        return {**self.place, "tuner": "autotvm", "records": records, "out_dir": str(self.folder / name)}


@pytest.fixture(scope="module")
def model(reference: EngineSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed-model")
    return asking.prepare(reference, models.normalized_network(), folder)[0]


@pytest.fixture(scope="module")
def tuned(relay: EngineSession, place: dict[str, Any], model: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    folder = tmp_path_factory.mktemp("mixed")
    own = {**place, "model": str(model), "rewrite": True, "options": {}}
    lines = asking.trial_lines(relay, {**own, "tuner": "autotvm"}, folder, trials=3)
    beside = {**own, "tuner": "ansor", "beside": asking.write_lines(folder / "autotvm.jsonl", lines)}
    tasks = relay.request("extract", {**beside, "out_dir": str(folder)}, timeout=120)["tasks"]
    mixed = asking.trial_lines(relay, beside, folder, trials=2)
    return Tuned(place=own, folder=folder, tasks=tasks, autotvm=lines, ansor=mixed)


def test_tasks_are_what_no_template_computes(tuned: Tuned) -> None:
    found = {task["description"] for task in tuned.tasks}
    assert any("softmax" in each for each in found), found
    assert any(each.startswith("mean ") for each in found), found
    assert not any("conv2d" in each or "dense" in each for each in found), found


def test_one_build_uses_the_records_of_both(
    relay: EngineSession, reference: EngineSession, tuned: Tuned, model: Path
) -> None:
    alone = relay.request("compile", tuned.request(tuned.autotvm, "alone"), timeout=120)["records"]
    mixed = relay.request("compile", tuned.request(tuned.autotvm + tuned.ansor, "both"), timeout=120)["records"]
    assert [line for line in mixed if "input" in json.loads(line)] == alone
    keys = {json.loads(line)["i"][0][0] for line in mixed if line not in alone}
    # The layouts are those of the records, so every task of that build is found in it again.
    assert keys == {task["workload_key"] for task in tuned.tasks}
    image = [{"name": "image", "dtype": "float32", "shape": [1, 3, 14, 14]}]
    inputs = asking.make_inputs(reference, image, tuned.folder)
    assert asking.agrees(relay, tuned.folder / "both", reference, model, inputs, tuned.folder)


def test_layouts_follow_from_the_records_of_autotvm(relay: EngineSession, tuned: Tuned) -> None:
    winograd = [line for line in tuned.autotvm if "winograd" in json.loads(line)["input"][1]]
    assert winograd
    params = tuned.request(winograd, "winograd")
    beside = {**params, "tuner": "ansor", "beside": params["records"], "out_dir": str(tuned.folder)}
    assert relay.request("extract", beside, timeout=120)["tasks"]


def test_a_new_process_finds_what_it_needs_in_the_records(
    tuned: Tuned, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with start("relay", tmp_path_factory.mktemp("logs") / "relay.log") as engine:
        found = engine.request("compile", tuned.request(tuned.autotvm + tuned.ansor, "anew"), timeout=120)["records"]
        checked = engine.request("audit", tuned.request(found, "audited"), timeout=120)
    assert any("i" in json.loads(line) for line in found)
    assert (checked["checked"], checked["wrong"], checked["failed"]) == (len(found), [], [])
