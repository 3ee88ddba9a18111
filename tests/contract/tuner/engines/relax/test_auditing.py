"""Records that compute something else are found, one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines.asking import Trials, tune
from tests.support.tuner.engines.fixtures import Twin
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def lines(relax_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A trial of each task."""
    journal = tmp_path_factory.mktemp("trials") / "journal.jsonl"
    trials: Trials = []
    for task in relax_twin.tasks:
        # A search of its own: others in this session begin anew.
        options = {"n_trial": 1000}
        trials += tune(relax_twin.session, relax_twin.workload(task), journal, trials=1, options=options)[1]
    return [trial["schedule"] for trial in trials if trial["error"] is None]


def _audit(relax: EngineSession, place: dict[str, Any], folder: Path, *lines: str, **more: Any) -> dict[str, Any]:
    (folder / "records.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return relax.request("audit", {**place, "records": str(folder / "records.jsonl"), **more}, timeout=300)


def _rounding(line: str) -> str:
    """The same schedule, whose convolution keeps its sums in float16."""
    key, (trace, _, *rest) = json.loads(line)
    # The data with its padding, the convolution, and what follows it.
    block = next(outputs[1] for name, _, _, outputs in trace[0] if name == "GetChildBlocks")
    trace[0].append(["UnsafeSetDType", [block], [0, "float16"], []])
    return json.dumps([key, [trace, [1e-9], *rest]])


def test_what_is_right_passes(relax: EngineSession, place: dict[str, Any], lines: list[str], tmp_path: Path) -> None:
    assert lines
    audited = _audit(relax, place, tmp_path, *lines)
    assert audited == {"checked": len(lines), "wrong": [], "failed": [], "skipped": []}


def test_what_is_wrong_is_named(relax: EngineSession, place: dict[str, Any], lines: list[str], tmp_path: Path) -> None:
    wrong = _rounding(lines[0])
    audited = _audit(relax, place, tmp_path, lines[0], wrong, lines[-1])
    assert audited["checked"] == 2
    assert [each["line"] for each in audited["wrong"]] == [wrong], audited
    assert 1e-4 < audited["wrong"][0]["max_rel"] < 1e-2


def test_what_runs_elsewhere_is_skipped(
    relax: EngineSession, place: dict[str, Any], lines: list[str], tmp_path: Path
) -> None:
    runner = {"kind": "rpc", "tracker": "127.0.0.1:1", "key": "board", "session_timeout": 5}
    audited = _audit(relax, place, tmp_path, lines[0], runner=runner)
    assert (audited["checked"], [each["line"] for each in audited["skipped"]]) == (0, [lines[0]])
