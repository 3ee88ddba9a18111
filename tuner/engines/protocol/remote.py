"""Running and timing bundles on a device behind an RPC tracker."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path

from tuner.engines.protocol import children, desertion
from tuner.engines.protocol.answers import Answer
from tuner.engines.protocol.fleet import Fleet
from tuner.engines.protocol.lanes import Call
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.protocol.trials import Runner

_CODES = {"run_timeout": "device_lost", "device_lost": "device_lost", "wrong_device": "no_device"}


class Remote:
    """Sessions for one bundle at a time; ``make_child`` starts processes whose module is as ``lanes`` says.

    The module has ``run_remotely(bundle, inputs, outputs, repeat, number)``, which returns the result of ``run``.
    """

    def __init__(self, make_child: Callable[[], children.Child]) -> None:
        self._make_child = make_child
        self._fleets: dict[Runner, Fleet] = {}

    def run(self, params: Json, runner: Runner) -> Json:
        """The answer to a ``run`` or ``time`` request.

        Raises EngineFailure ``tracker_unreachable``, ``no_device``, ``device_lost``, ``run_failed`` and those of the
        bundle and its inputs. Waits for a device as long as it takes.
        """
        fleet = self._fleet(runner)
        counts = (params.get("repeat"), params.get("number") or 1)
        arguments = (params["bundle"], params.get("inputs"), params.get("outputs"), *counts)
        call = Call(position=0, function="run_remotely", arguments=arguments, timeout=runner.session_timeout)
        with tempfile.TemporaryDirectory(prefix="tunesmith-rpc-") as folder:
            try:
                fleet.look()
                fleet.make_probe(params["target"], params["threads"], Path(folder) / "probe.so")
                fleet.submit(call)
                return _result(_wait(fleet), runner)
            finally:
                fleet.release()

    def close(self) -> None:
        for fleet in self._fleets.values():
            fleet.close()

    def _fleet(self, runner: Runner) -> Fleet:
        if runner not in self._fleets:
            self._fleets[runner] = Fleet(runner, self._make_child, most_lanes=1)
        self._fleets[runner].avoid = runner.avoid
        return self._fleets[runner]


def _wait(fleet: Fleet) -> Answer:
    while not (answers := fleet.advance()):
        connection.wait(fleet.waits_for, fleet.patience)
    return answers[0]


def _result(answer: Answer, runner: Runner) -> Json:
    if answer.error is None:
        return {**answer.value, "device": answer.device}
    if answer.error == "refused":
        raise EngineFailure(**answer.value)
    if answer.error == "run_timeout":
        raise EngineFailure(
            "device_lost",
            f"{answer.device} was not done within {runner.session_timeout:g} s",
            hint="Raise session_timeout: the network may be slow, or the model.",
        )
    code = _CODES.get(answer.error, "run_failed")
    hint = desertion.MISFIT if answer.error == "wrong_device" else None
    raise EngineFailure(code, f"{answer.device} could not run it: {answer.value}"[:2000], hint=hint)
