"""How far a job is: its bar goes by stages, and in tuning by the limit that is reached first."""

from __future__ import annotations

import pytest

from domain import progress
from domain.jobs import Budget, Stage
from domain.progress import TuningProgress


def spent(trials: int, seconds: float, *, planned: int = 1000, limit: float | None = 30.0) -> TuningProgress:
    return TuningProgress(trials_done=trials, trials_planned=planned, seconds=seconds, limit_seconds=limit)


@pytest.mark.parametrize(
    ("search", "share", "left"),
    [
        (spent(70, 30.0), 1.0, 0.0),  # seconds end a plan of which 7 % was done
        (spent(35, 15.0), 0.5, 15.0),
        (spent(500, 15.0, limit=300.0), 0.5, 15.0),
        (spent(500, 15.0, limit=None), 0.5, 15.0),
        (spent(0, 0.0), 0.0, 30.0),
        (spent(0, 0.0, limit=None), 0.0, None),
        (spent(0, 0.0, planned=0, limit=0.0), 0.0, 0.0),
        (spent(1100, 31.0), 1.0, 0.0),
    ],
)
def test_the_nearer_limit_counts(search: TuningProgress, share: float, left: float | None) -> None:
    assert (search.share, search.seconds_left) == (share, left)


@pytest.mark.parametrize("budget", [Budget(seconds=30), Budget(trials=5000), Budget(trials=2000, seconds=600)])
def test_a_bar_rises_through_all_stages(budget: Budget) -> None:
    shares = [progress.share(budget, stage, within) for stage in Stage for within in (0.0, 0.5, 1.0)]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1], progress.share(budget, None)) == (0.0, 1.0, 0.0)
    assert all(
        progress.share(budget, stage, 1.0) == progress.share(budget, following)
        for stage, following in zip(list(Stage)[:-1], list(Stage)[1:], strict=True)
    )


def test_tuning_is_as_wide_as_its_budget_is_long() -> None:
    def width(budget: Budget) -> float:
        return progress.share(budget, Stage.TUNE, 1.0) - progress.share(budget, Stage.TUNE)

    assert width(Budget(seconds=30)) < 0.3 < 0.9 < width(Budget(seconds=3600))
    assert width(Budget(seconds=30, trials=10_000)) == width(Budget(seconds=30))
