"""Which of the records that a build would take compute something else; see ``runtime.auditing``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm import autotvm

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import choosing, tuners
from tuner.engines.relay.ansor import networks, workloads
from tuner.engines.relay.ansor import records as ansor_records
from tuner.engines.relay.release import RELEASE
from tuner.engines.runtime import auditing
from tuner.engines.runtime.auditing import Check


def audit(params: Json, target: Any, on_progress: Callable[[], None]) -> Json:
    """Of ``params`` as ``compile`` takes them. On devices elsewhere nothing is run: every record is ``skipped``."""
    checks = _CHECKS[params.get("tuner") or "autotvm"](params, target)
    return auditing.audit_apart(RELEASE, params, target, checks, on_progress)


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
    best = ansor_records.best(params, target)
    if best:
        # The definitions are those of the network's subgraphs; records of others are not chosen either.
        networks.register_all(params, target)
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
