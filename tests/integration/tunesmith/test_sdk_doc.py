"""The examples of docs/reference/sdk.md run, in order, against a live server with a scripted worker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from domain.jobs import JobState
from storage import jobs
from tests.support.api.factories import Service
from tests.support.api.scripted import ScriptedWorker
from tests.support.waiting import until
from tunesmith import Client, requests

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "sdk.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_every_example_runs(
    service: Service, client: Client, worker: ScriptedWorker, onnx: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.with_name("model.onnx").write_bytes(b"pictures: sizes left open, as the quick start's model does")
    # As the scripted service reads a file of rows.
    onnx.with_name("val.npz").write_text('{"x": ["float32", [8, 3, 8, 8]]}')
    space: dict[str, Any] = {"client": client}
    assert len(EXAMPLES) == 10
    for number, example in enumerate(EXAMPLES):
        if 'state="queued"' in example:
            until(lambda: _all_succeeded(service))
        exec(compile(example, f"docs/reference/sdk.md, example {number + 1}", "exec"), space)  # noqa: S102 - ours
        if number == 0:
            # Its client is closed with its block.
            space["client"] = client
    out = capsys.readouterr().out
    assert "Tuning made it 1.40× as fast: 0.571 ms against 0.800 ms untuned." in out
    assert "unknown tuner 'autotvn'" in out
    assert "12 trials in the tuner's own format" in out
    assert Path("model.tar").is_file()
    assert len(list(Path("bundles").iterdir())) == 1


def _all_succeeded(service: Service) -> bool:
    with service.database.reading() as session:
        found, _ = jobs.page(session, limit=50)
    return all(job.state is JobState.SUCCEEDED for job in found)


def test_every_option_and_filter_is_named() -> None:
    for kind in (requests.Options, requests.JobFilters):
        named = set(re.findall(r"`(\w+)=?`", PAGE))
        assert sorted(set(kind.__annotations__) - named - {"budget", "owner"}) == []
