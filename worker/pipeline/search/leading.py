"""The leader's side of a search over many workers: it offers rounds, watches them, and withdraws them.

The worker that holds the job's lease is the leader: it alone plans trials and reports progress. Helpers claim the
rounds that it offers in the database (``helping``) and store the trials of these themselves.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import timedelta

from domain import capabilities, release
from domain.jobs import RunnerKind
from domain.shared_rounds import AT_WORK, Offer, RoundState, SharedRound
from domain.workers import Worker
from storage import jobs, shared_rounds, workers
from tuner.host import devicelock
from tuner.search.allocation import Round
from worker import clock
from worker.pipeline.context import JobContext
from worker.pipeline.reuse import record_identity

_TEND_SECONDS = 0.2
"""Pause between two looks at the offered rounds."""
_LOOK_SECONDS = 3.0
"""Pause between two looks for able workers, and between two calls to idle ones."""


def take_over(context: JobContext) -> None:
    """Withdraw the rounds of an earlier try; its helpers can store nothing any more. Raises LeaseLost."""
    context.searched_by.clear()
    with context.transaction() as session:
        shared_rounds.abandon(session, context.job.id)


def settle(context: JobContext) -> dict[str, int]:
    """End the sharing and return how many rounds each helper ran, by worker id. Raises LeaseLost."""
    with context.transaction() as session:
        helpers = shared_rounds.counts(session, context.job.id)
        shared_rounds.forget(session, context.job.id)
    if helpers:
        others, rounds = _counted(len(helpers), "other worker"), _counted(sum(helpers.values()), "round")
        context.note(f"{others} ran {rounds} of this job's trials")
    return helpers


class Sharing:
    """The rounds that one search has offered and that have not been returned."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._out: dict[int, SharedRound] = {}
        self._able: list[Worker] = []
        self._looked = 0.0
        self._tended = 0.0
        self._unsure = False
        """Whether the database may have an offer that is not in ``_out``, as its commit was not confirmed."""
        self.kept: set[str] = set()
        """Workloads that a helper failed with; they are not offered again."""

    @property
    def out(self) -> dict[str, int]:
        """Workloads that are offered or claimed, with the trials of each round."""
        return {each.offer.workload_key: each.offer.trials for each in self._out.values()}

    @property
    def first_trials(self) -> dict[str, int]:
        return {each.offer.workload_key: each.offer.first_trial for each in self._out.values()}

    def is_due(self) -> bool:
        """Whether it is time to look at the rounds again."""
        if self._context.call_help is None or time.monotonic() - self._tended < _TEND_SECONDS:
            return False
        self._tended = time.monotonic()
        return True

    def look(self) -> list[SharedRound]:
        """Return the finished rounds, each until it is dropped. Raises LeaseLost."""
        if self._unsure:
            self._settle()
        if not self._out:
            return []
        context, now = self._context, clock.judging()
        with context.database.reading() as session:
            found = shared_rounds.of_ids(session, self._out)
        if any(each.is_silent(now) for each in found):
            with context.transaction() as session:
                shared_rounds.expire(session, list(self._out), now=now)
                found = shared_rounds.of_ids(session, self._out)
        self._out = {each.id: each for each in found}
        return [each for each in found if each.state not in AT_WORK]

    def drop(self, shared: SharedRound) -> None:
        """Forget a round whose result was processed."""
        del self._out[shared.id]
        if shared.failure is not None:
            self.kept.add(shared.offer.workload_key)
        if shared.worker_id is not None:
            self._context.searched_by[shared.offer.workload_key] = shared.worker_id

    def searched(self, workload_key: str) -> None:
        """Remember that this worker searched the workload last."""
        self._context.searched_by[workload_key] = self._context.lease.worker_id

    def is_strange(self, workload_key: str) -> bool:
        """Whether another worker searched it last, so that the engine here lacks some of its trials."""
        own = self._context.lease.worker_id
        return self._context.searched_by.get(workload_key, own) != own

    def wanted(self) -> int:
        """How many more rounds to offer now, so that no helper waits for one."""
        self._look_for_help()
        # One for each able worker, busy or not: it finds its next round at once, maybe of a workload that it knows.
        ready = sum(each.state is RoundState.OPEN for each in self._out.values())
        return max(0, len(self._able) - ready)

    def offer(self, chosen: Round, *, seconds: float | None) -> None:
        """Raises LeaseLost."""
        context, key = self._context, chosen.workload_key
        offer = Offer(
            workload_key=key,
            tuner=str(context.tuner),
            **record_identity(context),
            request=_request(context),
            trials=chosen.trials,
            first_trial=chosen.first_trial,
            seconds_limit=seconds,
            lock_place=_lock_place(context) or "",
            known_to=context.searched_by.get(key),
        )
        self._unsure = True
        with context.transaction() as session:
            shared = shared_rounds.open_round(session, context.job.id, context.lease.attempt, offer, now=clock.now())
        self._out[shared.id] = shared
        self._unsure = False

    def withdraw(self, *, everything: bool) -> bool:
        """Withdraw all unclaimed rounds, or one of them; return whether there were any."""
        if self._unsure:
            self._settle()
        own = self._context.lease.worker_id
        waiting = [each for each in self._out.values() if each.state is RoundState.OPEN]
        waiting.sort(key=lambda each: (each.offer.known_to != own, -each.id))
        if not waiting:
            return False
        ids = [each.id for each in waiting if everything or each is waiting[0]]
        with self._context.database.transaction() as session:
            taken = shared_rounds.withdraw(session, ids)
        for each in taken:
            del self._out[each]
        if taken:
            # Postpone the next look, which would offer the round again before this worker has started it. If helpers
            # were quicker, there is nothing to do but look.
            self._tended = time.monotonic()
        return bool(taken)

    def abandon(self) -> None:
        """Withdraw all rounds, claimed or not; stored trials stay. Does nothing if the lease is lost."""
        if not self._out and not self._unsure:
            return
        context = self._context
        with context.database.transaction() as session:
            if jobs.holds(session, context.job.id, context.lease):
                shared_rounds.abandon(session, context.job.id)
        self._out.clear()

    def _settle(self) -> None:
        """Withdraw an offer whose transaction failed but may have been committed."""
        context = self._context
        with context.transaction() as session:
            shared_rounds.abandon(session, context.job.id, but=self._out)
        self._unsure = False

    def _look_for_help(self) -> None:
        """Find workers that could help, and call the idle ones."""
        if self._looked and time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        context = self._context
        seen_since = clock.now() - timedelta(seconds=context.settings.worker_alive_seconds)
        with context.database.reading() as session:
            self._able = [each for each in workers.known(session, seen_since=seen_since) if self._could_help(each)]
        busy = {each.worker_id for each in self._out.values()}
        idle = [each for each in self._able if each.current_job is None and each.id not in busy]
        if idle and context.call_help is not None:
            context.call_help(context.job.id, idle)

    def _could_help(self, worker: Worker) -> bool:
        context = self._context
        if worker.id == context.lease.worker_id or worker.current_job not in (None, context.job.id):
            return False
        # Other releases may run rounds differently; workers that share the device lock would only take turns.
        if worker.release != release.VERSION or worker.lock_place == _lock_place(context):
            return False
        if capabilities.lacking(context.request, worker) is not None:
            return False
        if context.toolchains[context.engine] not in worker.toolchains:
            return False
        if context.request.runner is RunnerKind.RPC:
            return True
        cpu = worker.device.with_threads(context.device.threads)
        return context.device.key in (cpu.key, *(each.key for each in worker.accelerators))


def _lock_place(context: JobContext) -> str | None:
    """The place whose device lock the job uses; None for devices behind a tracker, which has a queue."""
    return None if context.request.runner is RunnerKind.RPC else devicelock.place()


def _request(context: JobContext) -> dict[str, object]:
    built = {name: value for name, value in context.build_params(context.tuner).items() if name != "model"}
    return {**built, "measure": asdict(context.request.measure)}


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
