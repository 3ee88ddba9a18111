"""Requests that both TVM engines handle alike, and the processes they need."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.plugins import Registry
from tuner.engines.runtime import environment, joining, processes, progress, rounds, running, targets
from tuner.engines.runtime.compiling import Release, Tools, tools_for
from tuner.engines.runtime.library.source import Facts
from tuner.engines.runtime.measuring import Measurer
from tuner.engines.runtime.rounds import Search
from tuner.engines.runtime.rpc_pool import Remote
from tuner.engines.runtime.running import Bundles
from tuner.engines.runtime.trials import CandidateBuild, MeasureConditions, Runner

_SEARCH = ("tuner", "workload_key", "target", "threads", "options")
"""Parameters that identify a search; the others change from round to round. Networks in several precisions may share
workloads, whose candidates must not be measured twice."""


class Program:
    def __init__(
        self,
        name: str,
        release: Release,
        bundles: Bundles,
        *,
        resolve: Callable[[str, int], Any],
        start: Callable[[Json], Search],
        build: Callable[[Json, Any], CandidateBuild],
    ) -> None:
        """``resolve(target, threads)`` returns a ``tvm.target.Target``, ``start(params)`` creates a search, and
        ``build(params, candidate)`` returns how to build what it proposes."""
        self._name = name
        self._release = release
        self._resolve = resolve
        self._measurer = Measurer(release.package)
        self._start = start
        self._build = build
        self._searches: dict[str, Search] = {}
        self._remote = Remote(lambda: processes.Child(f"{release.package}.rpc", environment.settings(1)))
        self._bundles = bundles

    def describe(self, registry: Registry, **announced: Any) -> Json:
        """Return the data of ``hello``: toolchain, known CPUs, plugins, and what else the engine announces."""
        tvm = self._release.tvm
        version, llvm = registry.version(tvm.__version__), targets.llvm_version(tvm)
        return {
            "engine": self._name,
            "toolchain": {"engine": self._name, "tvm": version, "llvm": llvm},
            "mcpu": targets.native_cpu(tvm),
            "cpus": targets.known_cpus(tvm),
            "foreign_cpus": targets.foreign_cpus(tvm),
            "plugins": registry.described,
            **announced,
        }

    def facts(self, params: Json, target: Any) -> Facts:
        """Return what libraries that are compiled for these parameters say about themselves."""
        tvm = self._release.tvm
        return Facts(
            model=params.get("model_digest") or "",
            toolchain=f"{self._name}, TVM {tvm.__version__}, LLVM {targets.llvm_version(tvm)}",
            target=params["target"],
            threads=params["threads"],
            features=targets.required_features(tvm, target, targets.host_flags()) if target.kind.name == "llvm" else (),
        )

    def serve(self, handlers: Mapping[str, serving.Handler], hello: Callable[[], Json]) -> int:
        """Run ``serving.serve`` with the handlers of this class added, and end all processes afterwards."""
        own: dict[str, serving.Handler] = {
            "join": self._join,
            "run": self._run,
            "time": self._time,
            "tune": self.tune,
        }
        every = {name: progress.telling(handler) for name, handler in {**own, **handlers}.items()}
        try:
            return serving.serve(every, lambda: {**hello(), "methods": sorted(every)})
        finally:
            self._measurer.close()
            self._remote.close()

    def check(
        self,
        params: Json,
        operators: dict[str, int],
        lanes: Callable[[Any], int | None],
        precisions: Callable[[Any], list[str]],
    ) -> Json:
        """Answer a ``check`` request for a model with these operators.

        If the request has a target, ``lanes`` and ``precisions`` return what the answer says of it.
        """
        answer: Json = {"operators": operators}
        if not params.get("target"):
            return answer
        try:
            target = self._resolve(params["target"], params["threads"])
        except serving.EngineFailure:
            # The question here is only whether the model can be imported; a build for this target reports the error.
            return {**answer, "lanes": None, "precisions": []}
        return {**answer, "lanes": lanes(target), "precisions": precisions(target)}

    def tune(self, params: Json, emitter: serving.Emitter) -> Json:
        """Handle a ``tune`` request."""
        conditions = MeasureConditions.of(params, lambda lost: emitter.emit("device", lost))
        self._measurer.start(conditions)
        key = json.dumps([params.get(name) for name in _SEARCH], sort_keys=True)
        if key not in self._searches or params.get("fresh"):
            self._searches[key] = self._start(params)
        build = partial(self._build, params)
        return rounds.tune(params, self._searches[key], self._measurer, conditions, build=build, emit=emitter.emit)

    def _join(self, params: Json, _: serving.Emitter) -> Json:
        def programs(threads: int) -> Tools:
            return tools_for(self._release, self._resolve(params["target"], threads), params["format"])

        return joining.join(params, programs)

    def _run(self, params: Json, _: serving.Emitter) -> Json:
        runner = Runner.of(params)
        if runner:
            return self._remote.run(params, runner)
        file = params.get("file")
        return running.run(partial(self._bundles.load_file, file=file) if file else self._bundles.load, params)

    def _time(self, params: Json, _: serving.Emitter) -> Json:
        runner = Runner.of(params)
        if runner:
            timed = self._remote.run({**params, "outputs": None}, runner)
            return {"samples": timed["samples"], "device": timed["device"]}
        return running.time(self._bundles.load, params)
