"""Which of the records that a build would take compute something else; see ``protocol.audits``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm import autotvm

from tuner.engines.protocol import audits, children
from tuner.engines.protocol.audits import Check
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.trials import Runner
from tuner.engines.relay import choosing, environment, linking, tuners
from tuner.engines.relay.ansor import choosing as ansor_choosing
from tuner.engines.relay.ansor import extracting as ansor_extracting
from tuner.engines.relay.ansor import workloads

_CHILD = "tuner.engines.relay.comparing"


def audit(params: Json, target: Any, on_progress: Callable[[], None]) -> Json:
    """Of ``params`` as ``compile`` takes them. On devices elsewhere nothing is run: every record is ``skipped``."""
    checks = _CHECKS[params.get("tuner") or "autotvm"](params, target)
    if Runner.of(params) or linking.tools(target).triple:
        return audits.skip([check.line for check in checks], "it runs on another machine")
    child = children.Child(_CHILD, environment.settings(params["threads"]))
    try:
        return audits.audit(checks, child, on_progress)
    finally:
        child.kill()


def _autotvm(params: Json, target: Any) -> list[Check]:
    lines = _lines(params.get("records"))
    pairs = [(autotvm.record.decode(line), line) for line in lines if not line.startswith("#")]
    line_of = {id(pair): line for pair, line in pairs if pair is not None}
    known = [pair for pair, _ in pairs if pair is not None]
    chosen = choosing.of_network(params, target, known, lambda: tuners.of(params).load(params))
    place = (params["target"], params["threads"])
    return [
        Check(line=line_of[id(pair)], function="compare_autotvm", arguments=(line_of[id(pair)], *place))
        for pair in chosen
    ]


def _ansor(params: Json, target: Any) -> list[Check]:
    best = ansor_choosing.best(params, target)
    if best:
        # The definitions are those of the network's subgraphs; records of others are not chosen either.
        ansor_extracting.register_all(params, target)
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


def _lines(path: str | None) -> list[str]:
    if path is None:
        return []
    return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]


_CHECKS: dict[str, Callable[[Json, Any], list[Check]]] = {"autotvm": _autotvm, "ansor": _ansor}
