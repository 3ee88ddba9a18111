from __future__ import annotations

import pytest

from domain import errors
from domain.search_parts import SearchPart
from worker.settings import WorkerSettings


@pytest.mark.parametrize(
    ("text", "left_out"),
    [("", set()), ("in-network", {SearchPart.IN_NETWORK}), (" hand-over, mixing, in-network,", set(SearchPart))],
)
def test_parts_that_are_named_are_left_out(text: str, left_out: set[SearchPart]) -> None:
    settings = WorkerSettings(search_without=text)
    assert {part for part in SearchPart if not settings.searches_with(part)} == left_out


def test_an_unknown_part_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_SEARCH_WITHOUT", "in-network,luck")
    with pytest.raises(errors.ConfigurationError) as refused:
        WorkerSettings()
    assert "TUNESMITH_SEARCH_WITHOUT" in refused.value.message
    assert "'luck' is not a part of the search; these are: in-network, mixing, hand-over" in refused.value.message
