"""Allocation of rounds of trials to tuning tasks.

After the task scheduler of Ansor (Zheng et al., OSDI 2020, section 6): the task whose next trials promise to shorten
the whole model most. The promise of a trial is estimated from recent gains and from the remaining potential, which
shrinks with every trial, so improving tasks are pursued, converged ones paused, and none is abandoned for good.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from domain.tuning_tasks import ExtractedTask, TuningTask
from tuner.search.planning import ROUND_TRIALS

_OBSERVED_SHARE = 0.2
"""Ansor's α: weight of observed gains relative to expected ones."""
_THROUGHPUT_HOPE = 2.0
"""Ansor's β: a task may reach twice the best throughput seen for its kind of operator."""
_UNMEASURED_TRIALS = 2
"""Assumed trials of a task without any; few, as first rounds gain most."""
_WINDOW_ROUNDS = 2
_CHANCE = 0.5
"""Expected relative gain of a task of an unknown kind, weighted as one task's evidence."""
_FAIR_TRIALS = 2 * ROUND_TRIALS
_CLEARLY_SLOWER = 1.3
"""Of alternatives for an operator, one that is slower by this factor after so many trials is dropped."""
_WORTH_LEARNING = 0.005
"""Share of the model's work below which a task does not matter, and a kind of operator gets no round just to learn its
throughput."""


@dataclass(frozen=True, kw_only=True)
class Round:
    workload_key: str
    trials: int
    first_trial: int
    """Trials of earlier rounds of this job on this task."""


@dataclass(kw_only=True)
class _Progress:
    extracted: ExtractedTask
    planned: int
    done: int
    best: float | None
    history: list[tuple[int, float]]
    """Trials done and best latency after each round with a valid trial."""
    timed: int = 0
    """Trials with known cost."""
    seconds: float = 0.0
    """Seconds of these trials."""
    default: float | None = None
    """Latency of the untuned schedule."""
    exhausted: bool = False

    @property
    def open(self) -> bool:
        return not self.exhausted and self.planned > 0 and self.done < self.extracted.space_size


class Allocator:
    """Scheduler of rounds. Alternatives for an operator that turn out clearly slower get no more rounds.

    Deterministic: equal tasks and results give equal rounds. An allocator created from stored tasks continues where an
    earlier one stopped.
    """

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        *,
        round_trials: int = ROUND_TRIALS,
        untuned: Mapping[str, float] | None = None,
    ) -> None:
        """``untuned``: seconds of operators in the untuned build, by workload, where they are known."""
        untuned = untuned or {}
        self._round_trials = round_trials
        self._tasks = {
            task.extracted.workload_key: _Progress(
                extracted=task.extracted,
                planned=task.trials_planned,
                done=task.trials_done,
                best=task.best_latency,
                history=[(task.trials_done, task.best_latency)] if task.best_latency else [],
                default=untuned.get(task.extracted.workload_key),
            )
            for task in tasks
        }
        self._work = _work([*self._tasks.values()])

    def next_round(self, *, excluding: Collection[str] = (), out: Mapping[str, int] | None = None) -> Round | None:
        """Return the next round, of no workload in ``excluding``, whose trials are reserved meanwhile.

        ``out`` are the workloads of rounds that others run for this search, with the trials these may still spend. None
        if all trials are spent or no task has candidates left.
        """
        out = out or {}
        tasks = [task for key, task in self._tasks.items() if key not in excluding]
        left = max(0, sum(task.planned - task.done for task in tasks) - sum(out.values()))
        open_tasks = [task for task in tasks if task.open]
        beaten = [task for task in open_tasks if self._is_beaten(task)]
        open_tasks = [task for task in open_tasks if task not in beaten]
        free = [task for task in open_tasks if task.extracted.workload_key not in out]
        # Trials that a task could not use go to others, after these have spent their own.
        candidates = [task for task in free if task.done < task.planned]
        if not candidates and out:
            left -= sum(max(0, _own_left(task, out)) for task in open_tasks)
        candidates = candidates or free
        if left <= 0 or not candidates:
            return None
        chosen = self._choose(candidates, out)
        room = (chosen.planned if chosen.done < chosen.planned else chosen.extracted.space_size) - chosen.done
        return Round(
            workload_key=chosen.extracted.workload_key,
            trials=min(self._round_trials, room, left),
            first_trial=chosen.done,
        )

    def finished(
        self,
        workload_key: str,
        *,
        trials: int,
        best_latency: float | None,
        exhausted: bool,
        seconds: float | None = None,
        default_latency: float | None = None,
    ) -> None:
        """Add the result of a round: trials spent, best latency, whether the task is exhausted, and duration.

        With durations, tasks compete by gain per second: trials of one kind of operator were seen to cost six times
        those of another. With a task's default latency, kinds of operators are weighted by their gains so far: on one
        CPU, 1×1 convolutions gained up to sevenfold, depthwise ones nothing. A round without trials ends its task, so
        that no engine can make the search endless.
        """
        task = self._tasks[workload_key]
        task.done += trials
        task.exhausted = task.exhausted or exhausted or trials == 0
        if best_latency is not None:
            task.best = min(best_latency, task.best or best_latency)
        if task.best is not None:
            task.history.append((task.done, task.best))
        task.default = default_latency or task.default
        if seconds is not None:
            task.timed += trials
            task.seconds += seconds

    def is_explored(self) -> bool:
        """Return whether every task that could matter has had its first round, so that recent gains predict others."""
        total = sum(self._work.values())
        return not any(
            task.open and task.done < min(self._round_trials, task.planned) and work >= total * _WORTH_LEARNING
            for task, work in zip(self._tasks.values(), self._work.values(), strict=True)
        )

    def set_planned(self, workload_key: str, trials: int, *, done: int = 0) -> None:
        """Change the plan of a task, for example after another job searched it; ``done`` trials are spent."""
        task = self._tasks[workload_key]
        task.planned, task.done = trials, max(task.done, done)

    def _is_beaten(self, task: _Progress) -> bool:
        """Return whether an alternative is so much faster that this task is unlikely to catch up."""
        group, best = task.extracted.alternatives, task.best
        if group is None or best is None or task.done < _FAIR_TRIALS:
            return False
        others = [each.best for each in self._tasks.values() if each.extracted.alternatives == group and each.best]
        return best > min(others, default=best) * _CLEARLY_SLOWER

    def _choose(self, candidates: Sequence[_Progress], out: Collection[str]) -> _Progress:
        throughputs = self._throughputs()
        # The running round of this kind will provide the throughput.
        kinds = self._kinds_worth_learning() - {self._tasks[key].extracted.name for key in out if key in self._tasks}
        # FLOPs predict little across kinds of operators, so each kind's throughput is learned from its heaviest task.
        unknown = [
            task
            for task in candidates
            if task.extracted.name in kinds and task.extracted.name not in throughputs and not task.done
        ]
        if unknown:
            return min(unknown, key=lambda task: (-self._work_of(task), task.extracted.position))
        costs, chances = self._costs(), self._chances()

        def worth(task: _Progress) -> float:
            name = task.extracted.name
            return _gain(task, throughputs, chances.get(name, _CHANCE)) / costs.get(name, costs[None])

        return min(candidates, key=lambda task: (-worth(task), task.extracted.position))

    def _kinds_worth_learning(self) -> set[str]:
        work: dict[str, float] = {}
        for task in self._tasks.values():
            work[task.extracted.name] = work.get(task.extracted.name, 0.0) + self._work_of(task)
        total = sum(work.values())
        return {name for name, share in work.items() if share >= total * _WORTH_LEARNING}

    def _work_of(self, task: _Progress) -> float:
        return self._work[task.extracted.workload_key]

    def _chances(self) -> dict[str, float]:
        """Return the mean relative gain of each kind of operator so far."""
        gains: dict[str, list[float]] = {}
        for task in self._tasks.values():
            if task.default and task.best:
                gains.setdefault(task.extracted.name, [_CHANCE]).append(max(0.0, 1 - task.best / task.default))
        return {name: sum(shares) / len(shares) for name, shares in gains.items()}

    def _costs(self) -> dict[str | None, float]:
        """Return the seconds per trial of each kind of operator, and under None of all; 1 if unknown."""
        spent: dict[str | None, tuple[float, int]] = {None: (0.0, 0)}
        for task in self._tasks.values():
            for name in (None, task.extracted.name):
                seconds, trials = spent.get(name, (0.0, 0))
                spent[name] = (seconds + task.seconds, trials + task.timed)
        known = {name: seconds / trials for name, (seconds, trials) in spent.items() if trials and seconds > 0}
        return {None: 1.0, **known}

    def _throughputs(self) -> dict[str, float]:
        """Return the FLOPs per second of the best task of each kind of operator."""
        best: dict[str, float] = {}
        for task in self._tasks.values():
            if task.best:
                name = task.extracted.name
                best[name] = max(best.get(name, 0.0), task.extracted.flop / task.best)
        return best


def _gain(task: _Progress, throughputs: dict[str, float], chance: float) -> float:
    """Return the expected seconds per run of the model saved by one more trial."""
    flop = max(task.extracted.flop, 1.0)
    throughput = throughputs.get(task.extracted.name) or max(throughputs.values(), default=1.0) or 1.0
    latency = task.best or task.default or flop / throughput
    hoped = latency - flop / (throughput * _THROUGHPUT_HOPE)
    hoped = max(hoped, latency / 10) / max(task.done, _UNMEASURED_TRIALS)
    return task.extracted.weight * (_OBSERVED_SHARE * _observed(task) + (1 - _OBSERVED_SHARE) * chance * hoped)


def _observed(task: _Progress) -> float:
    """Return the seconds saved per trial over the last rounds."""
    if len(task.history) < 2:
        return 0.0
    then = task.history[max(0, len(task.history) - 1 - _WINDOW_ROUNDS)]
    now = task.history[-1]
    return (then[1] - now[1]) / max(now[0] - then[0], 1)


def _own_left(task: _Progress, out: Mapping[str, int]) -> int:
    """Return the unassigned trials of the task's own plan."""
    return task.planned - task.done - out.get(task.extracted.workload_key, 0)


def _work(tasks: Sequence[_Progress]) -> dict[str, float]:
    """Return each task's part of a run of the model, by workload: seconds of its operator in the untuned build, or if
    these are unknown its floating-point operations at the mean speed of the others."""
    known = [task for task in tasks if task.default]
    flop = sum(task.extracted.weight * task.extracted.flop for task in known)
    seconds = sum(task.extracted.weight * (task.default or 0.0) for task in known)
    pace = seconds / flop if flop and seconds else 1.0
    return {
        task.extracted.workload_key: task.extracted.weight * (task.default or task.extracted.flop * pace)
        for task in tasks
    }
