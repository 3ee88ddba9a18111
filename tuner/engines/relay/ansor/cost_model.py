"""Ansor's cost model: boosted trees that predict the throughput of a schedule from the features of its statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import auto_scheduler

from tuner.engines.relay.ansor import workloads

WARM = 15
"""More measurements than these, of any tasks, and predictions are followed: two rounds. XGBModel's 100 are more than a
task of ours may get, and what one task taught was seen to choose well for the next from its first candidate on."""

Pair = tuple[str, Any, Any]
"""Digest of the schedule, ``MeasureInput``, ``MeasureResult``"""


class CostModel(auto_scheduler.XGBModel):
    """One for all tasks of a target, as Ansor has it: what is learned of one convolution holds for the next.

    It is trained anew when its data have grown by a fifth, never with more than one thread: its data are small.
    """

    def __init__(self) -> None:
        super().__init__(verbose_eval=0, num_warmup_sample=WARM, adaptive_training=True)
        self.xgb_params["nthread"] = 1
        self._known: set[str] = set()

    def learn(self, pairs: Sequence[Pair]) -> None:
        """Add measurements; those that it has already count once."""
        new = [pair for pair in pairs if pair[0] not in self._known]
        # Features are extracted from the subgraph, which the line alone does not hold.
        new = [pair for pair in new if workloads.is_known(str(pair[1].task.workload_key))]
        self._known.update(pair[0] for pair in new)
        self.update([measured for _, measured, _ in new], [result for _, _, result in new])
