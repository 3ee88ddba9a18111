from __future__ import annotations

import pytest

from domain import errors
from domain.tuning_tasks import ExtractedTask

TASK = {
    "position": 0,
    "name": "dense",
    "workload_key": "k",
    "description": "d",
    "weight": 1,
    "flop": 1,
    "space_size": 1,
}


def test_a_definition_is_a_file_of_the_engines_folder() -> None:
    for name in (None, "task-0.jsonl"):
        assert ExtractedTask(**TASK, definition=name).definition == name
    for name in ("", "..", "../token", "/etc/passwd", "a/b"):
        with pytest.raises(errors.EngineGarbled, match="not in its folder"):
            ExtractedTask(**TASK, definition=name)
