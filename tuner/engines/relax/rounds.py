"""The searches and measuring processes of an engine session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuner.engines.protocol import rounds
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.trials import Build
from tuner.engines.relax import measuring, records, searching, targets


class Rounds:
    def __init__(self) -> None:
        self._searches: dict[Any, searching.TaskSearch] = {}
        self._models: dict[Any, Any] = {}
        self._measurer = measuring.Measurer()

    def tune(self, params: Json, emit: Callable[[str, Json], None]) -> Json:
        """As ``tuner.engines.protocol.rounds.tune``."""
        conditions = measuring.conditions(params, emit)
        self._measurer.start(conditions)
        place = (conditions.target, conditions.threads)
        return rounds.tune(
            params,
            self._search(params),
            self._measurer,
            conditions,
            build=lambda each: Build(function="build", arguments=(params["task"], each.line, *place)),
            emit=emit,
        )

    def _search(self, params: Json) -> searching.TaskSearch:
        options = searching.Options.of(params.get("options") or {})
        place = (params["target"], params["threads"])
        key = (params["workload_key"], *place, options)
        if key not in self._searches or params.get("fresh"):
            target = targets.resolve(*place)
            work = records.read_definition(params.get("task"), params["workload_key"])
            if place not in self._models:
                self._models[place] = searching.cost_model()
            history = records.load(params.get("history"))
            self._searches[key] = searching.TaskSearch(work, target, self._models[place], options, history)
        return self._searches[key]

    def close(self) -> None:
        self._measurer.close()
