from __future__ import annotations

import pytest

from tunesmith import Budget, errors, requests


@pytest.mark.parametrize(
    ("written", "trials", "seconds"),
    [
        (300, None, 300.0),
        (0.5, None, 0.5),
        ("300", None, 300.0),
        ("300s", None, 300.0),
        ("10m", None, 600.0),
        ("1.5 hours", None, 5400.0),
        ("200 trials", 200, None),
        ("1 trial", 1, None),
        ("200 trials, 10 min", 200, 600.0),
        (Budget(trials=8, seconds=9), 8, 9.0),
    ],
)
def test_the_forms_of_a_budget(written: Budget | float | str, trials: int | None, seconds: float | None) -> None:
    assert requests.budget_of(written) == Budget(trials=trials, seconds=seconds)
    expected = {name: value for name, value in (("trials", trials), ("seconds", seconds)) if value is not None}
    assert requests.draft("m-1", {"budget": written}) == {"model": "m-1", "budget": expected}


@pytest.mark.parametrize("text", ["", "soon", "10 parsecs", "-5s", "1.5 trials", "5m, 6m", "10m,", "nan"])
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        requests.budget_of(text)
    assert caught.value.code == "invalid_budget"
    assert "10m" in str(caught.value.hint)


def test_one_budget_is_enough() -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        requests.draft("m-1", {"budget": "10m", "trials": 3})
    assert caught.value.code == "invalid_budget"
