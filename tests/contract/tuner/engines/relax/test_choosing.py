"""Which records a build tries first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

RECORDED = Path(__file__).parents[4] / "unit/tuner/native/lines/database_tuning_record.json"


def test_the_fastest_line_of_each_workload_is_chosen(relax: EngineSession, tmp_path: Path) -> None:
    _, body = json.loads(RECORDED.read_text().splitlines()[0])
    trace, _, *rest = body

    def line(key: str, *seconds: float) -> str:
        return json.dumps([key, [trace, list(seconds), *rest]])

    slow, fast, failed, other = line("a", 3e-3), line("a", 1e-3, 2e-3), line("b", 1e10), line("c", 5e-3)
    (tmp_path / "records.jsonl").write_text("".join(each + "\n" for each in (slow, other, fast, failed)))
    params = {"target": f"llvm -mcpu={relax.hello['mcpu']}", "threads": 1, "tuner": "metaschedule"}
    chosen = relax.request("choose", {**params, "records": str(tmp_path / "records.jsonl")}, timeout=60)["lines"]
    assert chosen == [fast, other]
    assert relax.request("choose", {**params, "records": None}, timeout=60) == {"lines": []}
