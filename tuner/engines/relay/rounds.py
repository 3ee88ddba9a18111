"""The searches and measuring processes of an engine session."""

from __future__ import annotations

import json
from collections.abc import Callable

from tuner.engines.protocol import rounds
from tuner.engines.protocol.messages import Json
from tuner.engines.relay import measuring, targets, tuners

_SEARCH = ("tuner", "workload_key", "target", "threads", "options")
"""The parameters that make a search what it is; the others change from round to round. Networks in several precisions
may have the same workloads, none of whose candidates is to be measured twice."""


class Rounds:
    def __init__(self) -> None:
        self._tuners: dict[str, rounds.Search] = {}
        self._measurer = measuring.Measurer()

    def tune(self, params: Json, emit: Callable[[str, Json], None]) -> Json:
        """As ``tuner.engines.protocol.rounds.tune``."""
        conditions = measuring.Conditions.of(params, lambda lost: emit("device", lost))
        self._measurer.start(conditions)
        tuner = tuners.of(params)
        return rounds.tune(
            params,
            self._search(params),
            self._measurer,
            conditions,
            build=lambda candidate: tuner.build(params, candidate),
            emit=emit,
        )

    def _search(self, params: Json) -> rounds.Search:
        key = json.dumps([params.get(name) for name in _SEARCH], sort_keys=True)
        if key not in self._tuners or params.get("fresh"):
            target = targets.resolve(params["target"], params["threads"])
            self._tuners[key] = tuners.of(params).start(params, target)
        return self._tuners[key]

    def close(self) -> None:
        self._measurer.close()
