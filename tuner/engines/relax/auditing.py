"""Which of the records that a build would take compute something else; see ``runtime.auditing``."""

from __future__ import annotations

from collections.abc import Callable

from tuner.engines.protocol.messages import Json
from tuner.engines.relax import cuda, lowering, records, targets
from tuner.engines.relax.compiling import applicable
from tuner.engines.relax.modules import reading
from tuner.engines.relax.release import RELEASE
from tuner.engines.runtime import auditing
from tuner.engines.runtime.auditing import Check


def audit(params: Json, on_progress: Callable[[], None]) -> Json:
    """Of ``params`` as ``compile`` takes them. What this machine cannot run is ``skipped``."""
    build = lowering.Build.of(params)
    known = records.load(params.get("records"))
    lowered = lowering.lower(reading.load(params["model"]), build)
    chosen = {records.key_of(each.work): each for each in applicable(lowered, known)}
    place = (params["target"], params["threads"])
    checks = [
        Check(
            line=each.record.line,
            function="compare",
            arguments=(records.definition(each.work), each.record.line, *place),
        )
        for each in chosen.values()
    ]
    missing = targets.is_gpu(build.target) and not cuda.device_exists()
    hindrance = "this machine has no CUDA GPU" if missing else None
    return auditing.audit_apart(RELEASE, params, build.target, checks, on_progress, hindrance=hindrance)
