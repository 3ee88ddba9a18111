"""Request functions of AutoTVM and Ansor: extract, search, prepare builds and audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import autotvm

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import choosing, compiling, extracting, importing, mixed_precision, targets, tuning
from tuner.engines.relay.ansor import mixing, networks, workloads
from tuner.engines.relay.ansor import records as ansor_records
from tuner.engines.relay.ansor import tuning as ansor_tuning
from tuner.engines.relay.release import RELEASE
from tuner.engines.relay.workloads import Pair
from tuner.engines.runtime import auditing, faults
from tuner.engines.runtime.auditing import Check
from tuner.engines.runtime.rounds import Search
from tuner.engines.runtime.trials import CandidateBuild


@dataclass(frozen=True, kw_only=True)
class TunerRequests:
    """Request functions of one tuner; each accepts a request's parameters and the resolved ``tvm.target.Target``."""

    load: Callable[[Json], importing.Imported]
    """Returns the network as this tuner builds it."""
    extract: Callable[[Json, Any], list[Json]]
    """Returns the fields of ``domain.tuning_tasks.ExtractedTask``."""
    start: Callable[[Json, Any], Search]
    build: Callable[[Json, Any], CandidateBuild]
    """Returns the build of a candidate (the second argument) that a search proposed."""
    prepare: Callable[[Json, Any], tuple[importing.Imported, compiling.Schedules]]
    """Returns the network to build and its schedules."""
    choose: Callable[[Json, Any], list[str]]
    """Returns the native lines that ``prepare`` would build with."""
    checks: Callable[[Json, Any], list[Check]]
    """Returns the audit calls for the same lines."""


def of(params: Json) -> TunerRequests:
    """Return the tuner of a request, AutoTVM for an untuned build. Raises EngineFailure ``invalid_option``.

    Requests with a file of AutoTVM's records as ``beside`` are for the operators of a build with these that no template
    computes: Ansor's tasks. Builds of AutoTVM accept records of both.
    """
    name = params.get("tuner") or "autotvm"
    faults.require_known("tuner", name, TUNERS)
    return _BESIDE_AUTOTVM if params.get("beside") else TUNERS[name]


def start(params: Json) -> Search:
    """Return the search of a ``tune`` request."""
    return of(params).start(params, targets.resolve(params["target"], params["threads"]))


def build(params: Json, candidate: Any) -> CandidateBuild:
    """Return the build of a candidate that this search proposed."""
    return of(params).build(params, candidate)


def audit(params: Json, target: Any, on_progress: Callable[[], None]) -> Json:
    """Audit the records of ``params``, as ``compile`` accepts them. For remote devices every record is ``skipped``."""
    checks = of(params).checks(params, target)
    return auditing.audit_apart(RELEASE, params, target, checks, on_progress)


def _load(params: Json) -> importing.Imported:
    return mixed_precision.load(params["model"], params.get("precision") or "f32", rewrite=bool(params.get("rewrite")))


def _extract(params: Json, target: Any) -> list[Json]:
    options = tuning.AutoTvmOptions.of(params.get("options") or {})
    rewrite = bool(params.get("rewrite"))
    return extracting.extract(_load(params), target, keep_layout=options.keep_layout, rewrite=rewrite)


def _start(params: Json, target: Any) -> Search:
    options = tuning.AutoTvmOptions.of(params.get("options") or {})
    return tuning.AutoTvmTaskTuner(params["workload_key"], target, options, params.get("history"))


def _build(params: Json, config: Any) -> CandidateBuild:
    place = (params["workload_key"], params["target"], params["threads"])
    return CandidateBuild(function="build", arguments=(*place, int(config.index)))


def _prepare(params: Json, target: Any) -> tuple[importing.Imported, compiling.Schedules]:
    chosen = _chosen(params, target)
    mixed, used = ansor_records.best(params, target), set[str]()

    @contextmanager
    def dispatch() -> Iterator[None]:
        with compiling.dispatch(chosen), mixing.applying(mixed, used):
            yield

    def lines() -> list[str]:
        own = [autotvm.record.encode(*pair) for pair in chosen]
        return own + [record.line for key, record in mixed.items() if key in used]

    return _load(params), compiling.Schedules(dispatch=dispatch, lines=lines)


def _choose(params: Json, target: Any) -> list[str]:
    return [autotvm.record.encode(*pair) for pair in _chosen(params, target)]


def _chosen(params: Json, target: Any) -> list[Pair]:
    return choosing.of_network(params, target, compiling.load_records(params.get("records")), lambda: _load(params))


def _ansor_start(params: Json, target: Any) -> Search:
    networks.ensure_known(params, target)
    options = networks.AnsorOptions.of(params.get("options"))
    return ansor_tuning.AnsorTaskTuner(params["workload_key"], target, options, params.get("history"))


def _ansor_build(params: Json, candidate: ansor_tuning.Candidate) -> CandidateBuild:
    key = params["workload_key"]
    arguments = (key, workloads.definition(key), candidate.line, params["target"], params["threads"])
    return CandidateBuild(function="build_ansor", arguments=arguments)


def _ansor_prepare(params: Json, target: Any) -> tuple[importing.Imported, compiling.Schedules]:
    schedules = ansor_records.choose(params, target)
    # Without records there is nothing for Ansor to apply, and its layout suits only what it scheduled.
    return (networks.load(networks.of(params)), schedules) if schedules.config else (_load(params), schedules)


def _extract_beside(params: Json, target: Any) -> list[Json]:
    imported, pairs = _load(params), _chosen({**params, "records": params["beside"]}, target)
    return mixing.extract(imported, target, pairs, params.get("out_dir"))


def _checks(params: Json, target: Any) -> list[Check]:
    known = compiling.read_records(params.get("records"))
    line_of = {id(pair): line for line, pair in known}
    chosen = choosing.of_network(params, target, [pair for _, pair in known], lambda: _load(params))
    place = (params["target"], params["threads"])
    own = [
        Check(line=line_of[id(pair)], function="compare_autotvm", arguments=(line_of[id(pair)], *place))
        for pair in chosen
    ]
    mixed = ansor_records.best(params, target)
    if mixed:
        mixing.register_all(_load(params), target, chosen)
    return own + _ansor_checks_of(mixed, params)


def _ansor_checks(params: Json, target: Any) -> list[Check]:
    best = ansor_records.best(params, target)
    if best:
        # Definitions exist for the network's subgraphs only; records of others are not chosen either.
        networks.register_all(params, target)
    return _ansor_checks_of(best, params)


def _ansor_checks_of(best: Mapping[str, ansor_records.Record], params: Json) -> list[Check]:
    place = (params["target"], params["threads"])
    return [
        Check(
            line=record.line,
            function="compare_ansor",
            arguments=(key, workloads.definition(key), record.line, *place),
        )
        for key, record in best.items()
        if workloads.is_known(key)
    ]


TUNERS = {
    "autotvm": TunerRequests(
        load=_load,
        extract=_extract,
        start=_start,
        build=_build,
        prepare=_prepare,
        choose=_choose,
        checks=_checks,
    ),
    "ansor": TunerRequests(
        load=lambda params: networks.load(networks.of(params)),
        extract=networks.extract,
        start=_ansor_start,
        build=_ansor_build,
        prepare=_ansor_prepare,
        choose=lambda params, target: [record.line for record in ansor_records.best(params, target).values()],
        checks=_ansor_checks,
    ),
}
_BESIDE_AUTOTVM = replace(TUNERS["ansor"], load=_load, extract=_extract_beside)
