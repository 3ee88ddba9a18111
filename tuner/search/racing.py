"""Decide which strategy gets the next slice of a job's budget, and which builds are worth making.

A strategy is one way to tune the whole model. What counts is the best one when the budget ends, so a slice goes to the
strategy that is expected to end fastest: best-arm identification with a fixed budget, the arms of the literature being
strategies here. Slices double, as in successive halving (Jamieson and Talwalkar, Non-stochastic Best Arm
Identification, AISTATS 2016). Their arms converge to unknown limits; strategies in addition gain less and less, so the
recent gain per budget, kept up to the end, bounds what a strategy can still reach, and one whose bound is behind the
best so far is dropped for good (Li et al., Efficient Automatic CASH via Rising Bandits, AAAI 2020). Among the others
the expected end decides, from observed gains per second as in Ansor's task scheduler (Zheng et al., OSDI 2020,
section 6), one level above it, on a power law: the common shape of learning curves (Domhan et al., Speeding Up
Automatic Hyperparameter Optimization, IJCAI 2015).

A strategy that expects to gain next to nothing more gets no slice, and hands over to the others. Strategies in reserve
start when no other one is left that expects more. When none is, the race ends, whatever is left of the budget.

The budget is counted in shares, 0 to 1, of whatever limits it: trials or seconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from domain.jobs import Budget

IMPRESSION_SECONDS = 45.0
IMPRESSION_TRIALS = 128
"""Cost of a strategy's first slice: a few rounds on each of the heaviest tasks."""
RIVAL_SECONDS = 600.0
RIVAL_TRIALS = 1000
"""Minimum budgets for comparing tuners of one engine. After the first slice, the prediction error exceeds the
differences between tuners, and smaller budgets cannot make up for a wrong choice."""
CHALLENGE_SHARE = 0.25
"""Share of the budget for the first slices of all strategies except the leading one."""
_LARGEST_IMPRESSION = 0.15
_MARGIN = 0.05
"""Relative error of the sum of operator latencies as an estimate of the network's; bounds this close may be
reversed."""
_BELIEVED = 0.25
"""Largest believed gain over an unmeasured default, relative to the latency found."""
_FIRST_POINTS = 3
WORTH = 0.01
"""Relative gain below which a strategy expects nothing more, from what is left of the budget or from twice what it has
spent, whichever is more."""
_WINDOW = 0.25
"""Part of what a strategy has spent, after which it is looked at again when no other one runs."""
_NEAR = 1.3
"""Strategies with estimates within this factor of the best may be the fastest as a whole network, and are built."""
MOST_BUILDS = 4
_BUILD_SHARE = 0.3
SAVED_SECONDS = 100.0
"""Seconds of budget up to which only one build is made, as a second one would take too much of it."""


@dataclass(frozen=True, kw_only=True)
class OperatorLatency:
    """Latencies of one tuning task, in seconds of one run of it."""

    weight: int
    flop: float
    default: float | None
    """Latency of the untuned build's schedule; None if not measured."""
    best: float | None


def estimate(untuned: float, operators: Sequence[OperatorLatency]) -> float | None:
    """Return the estimated seconds of one run of the model with the best schedules, given ``untuned``, those of the
    untuned build.

    Tasks without trials keep their untuned time. An unmeasured default is estimated by the operator's share of the
    FLOPs, which is imprecise, so gains over it are limited until all operators are measured; then the sum is the
    estimate. None if no operator has a valid trial.
    """
    measured = [each for each in operators if each.best is not None]
    if not measured:
        return None
    least = math.fsum(each.weight * each.best for each in measured if each.best is not None)
    if len(measured) == len(operators) and all(each.default is None for each in operators):
        return least
    work = math.fsum(each.weight * max(each.flop, 1.0) for each in operators)
    gained = math.fsum(each.weight * _gain(each, untuned / work) for each in measured)
    return max(untuned - gained, least)


def _gain(operator: OperatorLatency, seconds_per_flop: float) -> float:
    best = operator.best or 0.0
    if operator.default is not None:
        return operator.default - best
    return min(max(operator.flop, 1.0) * seconds_per_flop - best, best * _BELIEVED)


def entrants(budget: Budget) -> int:
    """Return how many strategies the budget allows: one, and those whose first slices take only a small part of it."""
    reach = [
        limit * CHALLENGE_SHARE / impression
        for limit, impression in ((budget.seconds, IMPRESSION_SECONDS), (budget.trials, IMPRESSION_TRIALS))
        if limit is not None
    ]
    return 1 + math.floor(min(reach))


def has_rivals(budget: Budget) -> bool:
    """Return whether the budget is large enough to compare tuners."""
    enough_seconds = budget.seconds is None or budget.seconds >= RIVAL_SECONDS
    return enough_seconds and (budget.trials is None or budget.trials >= RIVAL_TRIALS)


def impression(budget: Budget) -> float:
    """Return the share of the budget of a strategy's first slice."""
    shares = [
        cost / limit
        for limit, cost in ((budget.seconds, IMPRESSION_SECONDS), (budget.trials, IMPRESSION_TRIALS))
        if limit is not None
    ]
    return min(max(shares), _LARGEST_IMPRESSION)


@dataclass(frozen=True, kw_only=True)
class Slice:
    strategy: str
    share: float
    """Share of the whole budget."""


@dataclass(kw_only=True)
class _Strategy:
    name: str
    reserve: bool = False
    curve: list[tuple[float, float]] = field(default_factory=list)
    """Share of the budget spent, and the estimate at that point; ascending."""
    explored: bool = True
    """Whether it has tried everything that could matter, so that recent gains predict others."""
    ended: bool = False
    verdict: str = ""

    @property
    def judged(self) -> bool:
        """Whether its first slice is complete: two points after the start, from which its rate is known."""
        return len(self.curve) >= _FIRST_POINTS

    @property
    def spent(self) -> float:
        return self.curve[-1][0] if self.curve else 0.0

    @property
    def now(self) -> float:
        return self.curve[-1][1] if self.curve else math.inf

    @property
    def rate(self) -> float:
        """Return the recent gain in seconds per share of the budget."""
        if len(self.curve) < 2:
            return 0.0
        (before, slower), (after, faster) = self.curve[-2:]
        return max(0.0, slower - faster) / (after - before) if after > before else 0.0

    def bound(self, left: float) -> float:
        """Return a lower bound of the result: the recent rate kept to the end, while rates actually shrink."""
        return self.now - self.rate * left

    def forecast(self, left: float) -> float:
        """Return the expected result at the end, from a power law through the last two points."""
        if not self.judged:
            return self.now
        (before, slower), (after, faster) = self.curve[-2:]
        if not 0.0 < faster < slower < math.inf or not 0.0 < before < after:
            return self.now
        exponent = math.log(slower / faster) / math.log(after / before)
        return faster * float((1 + left / after) ** -exponent)

    def expects_more(self, left: float) -> bool:
        known = self.judged and self.explored
        return not known or self.forecast(max(left, self.spent)) < self.now * (1 - WORTH)


class Race:
    """The selection of strategies. Deterministic: equal results give equal slices; among equal strategies, the
    first is preferred."""

    def __init__(
        self,
        strategies: Sequence[str],
        *,
        impression: float,
        reserves: Collection[str] = (),
        due: Mapping[str, float] | None = None,
    ) -> None:
        """``impression`` is the share of the budget of every strategy's first slice; ``reserves`` are strategies that
        start when no other one expects more, in the order of ``strategies``.

        ``due`` are reserves that improve on another strategy's build instead of competing with it, with the share of
        the budget that is left when they start at the latest.
        """
        self._due = due or {}
        self._strategies = {name: _Strategy(name=name, reserve=name in reserves) for name in strategies}
        self._impression = impression

    def begin(self, strategy: str, seconds: float) -> None:
        """Add a strategy; ``seconds`` is the time of one run of the model before its search."""
        self._strategies[strategy].curve = [(0.0, seconds)]

    def report(self, strategy: str, *, spent: float, seconds: float | None, explored: bool = True) -> None:
        """The estimate after the strategy has spent this share in all; None where no trial was valid.

        It may be worse than the one before, which knew less. ``explored``: whether the strategy has tried everything
        that could matter.
        """
        known = self._strategies[strategy]
        known.explored = explored
        if spent > known.spent or not known.curve:
            known.curve.append((spent, known.now if seconds is None else seconds))

    def end(self, strategy: str, verdict: str) -> None:
        """End a strategy without further slices: its search spaces are exhausted, or it failed."""
        self._strategies[strategy].ended = True
        self._strategies[strategy].verdict = self._strategies[strategy].verdict or verdict

    def next_slice(self, left: float) -> Slice | None:
        """Return the next slice; ``left`` is the unspent share.

        None if it is spent, no strategy is left, or none expects more.
        """
        self._drop(left)
        active = self._active(left)
        if left <= 0 or not active:
            return None
        new = next((strategy for strategy in active if not strategy.judged), None)
        if new is not None:
            # Gains in the first half predict nothing, as every search gains most at first.
            half = self._impression / 2
            return Slice(strategy=new.name, share=min(half, left))
        chosen = min(active, key=lambda strategy: strategy.forecast(left))
        share = chosen.spent if len(active) > 1 else chosen.spent * _WINDOW
        return Slice(strategy=chosen.name, share=min(max(share, self._impression), left - self._kept(left)))

    def is_settled(self, left: float) -> bool:
        """Return whether strategies and budget are left, and no strategy expects more."""
        return left > 0 and bool(self._running()) and not self._active(left)

    def _running(self) -> list[_Strategy]:
        return [strategy for strategy in self._strategies.values() if not strategy.ended]

    def _active(self, left: float) -> list[_Strategy]:
        """Return the strategies that may get the next slice: those that expect more, or else the next reserve."""
        running = self._running()
        begun = [strategy for strategy in running if strategy.curve or not strategy.reserve]
        due = [strategy for strategy in running if strategy not in begun and left <= self._due.get(strategy.name, 0.0)]
        if due and left >= self._impression:
            return due[:1]
        found = [strategy for strategy in begun if strategy.expects_more(left)]
        if found or left < self._impression:
            return found
        return [strategy for strategy in running if strategy not in begun][:1]

    def _kept(self, left: float) -> float:
        """Return the share that is kept for a reserve that will be due."""
        waiting = (self._due.get(each.name, 0.0) for each in self._running() if each.reserve and not each.curve)
        return max((share for share in waiting if share < left), default=0.0)

    def verdict(self, strategy: str) -> str:
        """Return why the strategy gets no more slices; empty while it may get some."""
        return self._strategies[strategy].verdict

    def _drop(self, left: float) -> None:
        judged = [strategy for strategy in self._strategies.values() if strategy.judged]
        rivals = [strategy for strategy in judged if strategy.name not in self._due]
        best = min((strategy.now for strategy in rivals), default=math.inf)
        for strategy in rivals:
            if not strategy.ended and strategy.bound(left) > best * (1 + _MARGIN):
                self.end(strategy.name, f"too slow: {_ms(strategy.now)} expected against {_ms(best)}")


def near(estimates: Mapping[str, float]) -> dict[str, bool]:
    """Return whether each strategy is close enough to the best to be built; fastest first, equal ones in the
    given order."""
    best = min(estimates.values(), default=0.0)
    ordered = sorted(estimates, key=lambda name: estimates[name])
    return {name: estimates[name] <= best * _NEAR for name in ordered}


def affords(seconds: float, *, built: int, spent: float, next_seconds: float) -> bool:
    """Return whether a job with ``seconds`` of search may make another build.

    ``built`` builds exist, all but the first took ``spent`` seconds together, and the next may take ``next_seconds``.
    """
    if not built:
        return True
    if built >= MOST_BUILDS:
        return False
    return spent + next_seconds <= _BUILD_SHARE * max(0.0, seconds - SAVED_SECONDS)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
