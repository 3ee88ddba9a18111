"""Which tuning task gets the next round of trials.

After the task scheduler of Ansor (Zheng et al., OSDI 2020, section 6): the task whose next trials promise to shorten
the whole model most. What a trial promises is estimated from how much recent ones gained and from what is left to gain,
which shrinks with every trial spent; so an improving task is pursued, a settled one left, and none is left for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from domain.tuning_tasks import ExtractedTask, TuningTask
from tuner.search.planning import ROUND_TRIALS

_OBSERVED_SHARE = 0.2
"""Ansor's α: how far observed gains count against hoped-for ones."""
_THROUGHPUT_HOPE = 2.0
"""Ansor's β: a task may come to run at twice the best throughput seen for its kind of operator."""
_UNMEASURED_TRIALS = 2
"""Trials that a task without any counts as having; few, as first rounds were seen to gain most."""
_WINDOW_ROUNDS = 2
_CHANCE = 0.5
"""Share of its untuned latency that a task of an unknown kind is expected to lose, worth one task's evidence."""
_FAIR_TRIALS = 2 * ROUND_TRIALS
_CLEARLY_SLOWER = 1.3
"""Of two ways to compute an operator, one whose best of so many trials takes so much longer than the other is left."""
_WORTH_LEARNING = 0.005
"""Share of the model's work below which a kind of operator gets no round of its own to learn its throughput."""


@dataclass(frozen=True, kw_only=True)
class Round:
    workload_key: str
    trials: int
    first_trial: int
    """Trials that the job has already spent on this task."""


@dataclass(kw_only=True)
class _Progress:
    extracted: ExtractedTask
    planned: int
    done: int
    best: float | None
    history: list[tuple[int, float]]
    """Trials done and best latency after each round that ended with one."""
    timed: int = 0
    """Trials whose cost is known."""
    seconds: float = 0.0
    """What those cost."""
    default: float | None = None
    """Latency of the untuned default."""
    exhausted: bool = False

    @property
    def open(self) -> bool:
        return not self.exhausted and self.planned > 0 and self.done < self.extracted.space_size


class Allocator:
    """Of several ways to compute an operator, those that turn out clearly slower than another one get no more rounds.

    Deterministic: the same tasks and the same outcomes give the same rounds.

    Made anew from stored tasks, it goes on where an earlier one stopped.
    """

    def __init__(self, tasks: Sequence[TuningTask], *, round_trials: int = ROUND_TRIALS) -> None:
        self._round_trials = round_trials
        self._tasks = {
            task.extracted.workload_key: _Progress(
                extracted=task.extracted,
                planned=task.trials_planned,
                done=task.trials_done,
                best=task.best_latency,
                history=[(task.trials_done, task.best_latency)] if task.best_latency else [],
            )
            for task in tasks
        }

    def next_round(self, *, excluding: Collection[str] = (), out: Mapping[str, int] | None = None) -> Round | None:
        """The round to run next, of no workload in ``excluding``, whose trials are for nobody else meanwhile.

        ``out``: the workloads of rounds that others run for this search now, and the trials that these may still spend.
        None when the other tasks' trials are spent or none of them has a candidate left.
        """
        out = out or {}
        tasks = [task for key, task in self._tasks.items() if key not in excluding]
        left = max(0, sum(task.planned - task.done for task in tasks) - sum(out.values()))
        open_tasks = [task for task in tasks if task.open]
        beaten = [task for task in open_tasks if self._is_beaten(task)]
        open_tasks = [task for task in open_tasks if task not in beaten]
        free = [task for task in open_tasks if task.extracted.workload_key not in out]
        # What a task could not use goes to others, once these have had their own.
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
        """Tell a round's outcome: trials it spent, its fastest latency, whether to stop here, and what the round took.

        Given the seconds of rounds, tasks compete by gain per second: trials of one kind of operator were seen to cost
        six times those of another. Given the latency of a task's untuned default, kinds of operators count by how much
        they were seen to gain over it: on one CPU, 1×1 convolutions gained up to sevenfold, depthwise ones nothing.
        A round that spent nothing ends its task: no engine can make the search endless.
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

    def set_planned(self, workload_key: str, trials: int, *, done: int = 0) -> None:
        """Another plan for one task, as when somebody else has searched it meanwhile, and spent ``done`` trials."""
        task = self._tasks[workload_key]
        task.planned, task.done = trials, max(task.done, done)

    def _is_beaten(self, task: _Progress) -> bool:
        """Whether another way to compute the same operators is so much faster that this one will hardly catch up."""
        group, best = task.extracted.alternatives, task.best
        if group is None or best is None or task.done < _FAIR_TRIALS:
            return False
        others = [each.best for each in self._tasks.values() if each.extracted.alternatives == group and each.best]
        return best > min(others, default=best) * _CLEARLY_SLOWER

    def _choose(self, candidates: Sequence[_Progress], out: Collection[str]) -> _Progress:
        throughputs = self._throughputs()
        # Of a kind whose first round is out, that round will tell.
        kinds = self._kinds_worth_learning() - {self._tasks[key].extracted.name for key in out if key in self._tasks}
        # FLOPs tell little across kinds of operators: learn each kind's throughput from its heaviest task.
        unknown = [
            task
            for task in candidates
            if task.extracted.name in kinds and task.extracted.name not in throughputs and not task.done
        ]
        if unknown:
            return min(unknown, key=lambda task: (-_work(task), task.extracted.position))
        costs, chances = self._costs(), self._chances()

        def worth(task: _Progress) -> float:
            name = task.extracted.name
            return _gain(task, throughputs, chances.get(name, _CHANCE)) / costs.get(name, costs[None])

        return min(candidates, key=lambda task: (-worth(task), task.extracted.position))

    def _kinds_worth_learning(self) -> set[str]:
        work: dict[str, float] = {}
        for task in self._tasks.values():
            work[task.extracted.name] = work.get(task.extracted.name, 0.0) + _work(task)
        total = sum(work.values())
        return {name for name, share in work.items() if share >= total * _WORTH_LEARNING}

    def _chances(self) -> dict[str, float]:
        """Share of the untuned latency that each kind of operator lost so far, on average over its tasks."""
        gains: dict[str, list[float]] = {}
        for task in self._tasks.values():
            if task.default and task.best:
                gains.setdefault(task.extracted.name, [_CHANCE]).append(max(0.0, 1 - task.best / task.default))
        return {name: sum(shares) / len(shares) for name, shares in gains.items()}

    def _costs(self) -> dict[str | None, float]:
        """Seconds per trial of each kind of operator, and under None of all; 1 where nothing is known."""
        spent: dict[str | None, tuple[float, int]] = {None: (0.0, 0)}
        for task in self._tasks.values():
            for name in (None, task.extracted.name):
                seconds, trials = spent.get(name, (0.0, 0))
                spent[name] = (seconds + task.seconds, trials + task.timed)
        known = {name: seconds / trials for name, (seconds, trials) in spent.items() if trials and seconds > 0}
        return {None: 1.0, **known}

    def _throughputs(self) -> dict[str, float]:
        """FLOPs per second of the best task of each kind of operator."""
        best: dict[str, float] = {}
        for task in self._tasks.values():
            if task.best:
                name = task.extracted.name
                best[name] = max(best.get(name, 0.0), task.extracted.flop / task.best)
        return best


def _gain(task: _Progress, throughputs: dict[str, float], chance: float) -> float:
    """Seconds that one more trial promises to take off one run of the model."""
    flop = max(task.extracted.flop, 1.0)
    throughput = throughputs.get(task.extracted.name) or max(throughputs.values(), default=1.0) or 1.0
    latency = task.best or flop / throughput
    hoped = latency - flop / (throughput * _THROUGHPUT_HOPE)
    hoped = max(hoped, latency / 10) / max(task.done, _UNMEASURED_TRIALS)
    return task.extracted.weight * (_OBSERVED_SHARE * _observed(task) + (1 - _OBSERVED_SHARE) * chance * hoped)


def _observed(task: _Progress) -> float:
    """Seconds gained per trial over the last rounds."""
    if len(task.history) < 2:
        return 0.0
    then = task.history[max(0, len(task.history) - 1 - _WINDOW_ROUNDS)]
    now = task.history[-1]
    return (then[1] - now[1]) / max(now[0] - then[0], 1)


def _own_left(task: _Progress, out: Mapping[str, int]) -> int:
    """Trials of the task's own plan that no round has been given."""
    return task.planned - task.done - out.get(task.extracted.workload_key, 0)


def _work(task: _Progress) -> float:
    return task.extracted.weight * task.extracted.flop
