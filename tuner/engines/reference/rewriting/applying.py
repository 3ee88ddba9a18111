"""A model through all rewritings, each of which must leave what it computes as it was."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import onnx

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.reference import arrays, comparing, models, sessions
from tuner.engines.reference.rewriting import graphs
from tuner.engines.reference.rewriting.passes import PASSES, Pass

_log = logging.getLogger(__name__)
_CHECK_SEED = 0
ROUNDING = 1e-4
"""Share of an output's largest magnitude by which sums in another order may differ in float32."""
NEAR_NOTHING = 1e-6
"""Difference that is none: a sigmoid that is almost 0 everywhere multiplies the rounding of what it is given."""


def rewrite(path: str, lanes: int, out_path: str, passes: Sequence[Pass] = PASSES) -> Json:
    """Write the rewritten model to ``out_path``; with nothing applied no file is written.

    ``undone`` has, for each rewriting that failed, or changed what ONNX Runtime computes on seeded inputs by more than
    ``ROUNDING``, one sentence. Raises EngineFailure ``invalid_model`` for a file that is none to begin with.
    """
    model = models.read(path)
    inputs = arrays.make([models.spec(value) for value in models.fed_inputs(model)], _CHECK_SEED, model.graph)
    expected = sessions.run(sessions.open_session(model.SerializeToString(), threads=1), inputs)
    graphs.lift_constants(model)
    del model.graph.value_info[:]
    applied: dict[str, int] = {}
    undone: dict[str, str] = {}
    for each in passes:
        candidate = onnx.ModelProto()
        candidate.CopyFrom(model)
        try:
            count = each.apply(candidate, lanes)
            if count:
                _require_same(candidate, inputs, expected)
        except Exception as error:  # noqa: BLE001 - a rewriting never breaks a model, whatever goes wrong in it
            _log.warning("rewriting %s is undone", each.name, exc_info=True)
            undone[each.name] = f"{type(error).__name__}: {error}"[:500]
            continue
        if count:
            model, applied[each.name] = candidate, count
    if applied:
        Path(out_path).write_bytes(model.SerializeToString(deterministic=True))
    return {"applied": applied, "undone": undone}


def _require_same(model: onnx.ModelProto, inputs: arrays.Arrays, expected: arrays.Arrays) -> None:
    """Raises EngineFailure for an invalid model, and for one that computes something else."""
    models.check(model)
    actual = sessions.run(sessions.open_session(model.SerializeToString(), threads=1), inputs)
    for output in comparing.compare(expected, actual):
        is_close = output["max_rel"] <= ROUNDING or output["max_abs"] <= NEAR_NOTHING
        if not output["passed"] or (output["dtype"] == "float32" and not is_close):
            raise EngineFailure("wrong_rewriting", f"{output['output']} is off by {output['max_rel']:.3g}")
