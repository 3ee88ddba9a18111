"""Which of the records that a build would take compute something else; see ``protocol.audits``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuner.engines.protocol import audits, children
from tuner.engines.protocol.audits import Check
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.trials import Runner
from tuner.engines.relax import compiling, cuda, environment, linking, lowering, records, targets
from tuner.engines.relax.modules import reading

_CHILD = "tuner.engines.relax.comparing"


def audit(params: Json, on_progress: Callable[[], None]) -> Json:
    """Of ``params`` as ``compile`` takes them. What this machine cannot run is ``skipped``."""
    build = lowering.Build.of(params)
    known = records.load(params.get("records"))
    lowered = lowering.lower(reading.load(params["model"]), build)
    chosen = {records.key_of(each.work): each for each in compiling.applicable(lowered, known)}
    reason = _reason(params, build.target)
    if reason:
        return audits.skip([each.record.line for each in chosen.values()], reason)
    place = (params["target"], params["threads"])
    checks = [
        Check(
            line=each.record.line,
            function="compare",
            arguments=(records.definition(each.work), each.record.line, *place),
        )
        for each in chosen.values()
    ]
    child = children.Child(_CHILD, environment.settings(params["threads"]))
    try:
        return audits.audit(checks, child, on_progress)
    finally:
        child.kill()


def _reason(params: Json, target: Any) -> str | None:
    """Why nothing can be run here, or None."""
    if Runner.of(params) or linking.tools(target).triple:
        return "it runs on another machine"
    if targets.is_gpu(target) and not cuda.device_exists():
        return "this machine has no CUDA GPU"
    return None
