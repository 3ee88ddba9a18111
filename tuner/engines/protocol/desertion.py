"""What to say when there is no device to work on."""

from __future__ import annotations

from collections.abc import Mapping, Set

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.protocol.trackers import TrackerSilent
from tuner.engines.protocol.trials import Runner

MISFIT = (
    "Give the target of the devices, its -mtriple and -mcpu, and start their RPC servers with the release of TVM that "
    "the tuner has: 0.19 for autotvm and ansor, 0.27 for metaschedule."
)


def unreachable(runner: Runner, error: TrackerSilent) -> EngineFailure:
    return EngineFailure(
        "tracker_unreachable",
        f"the RPC tracker {runner.tracker} does not answer: {error}",
        hint="Start one (python -m tvm.exec.rpc_tracker) and name it as HOST:PORT.",
    )


def deserted(
    runner: Runner, lost: Mapping[str, str], misfits: Set[str], devices: Mapping[str, Set[str]]
) -> EngineFailure:
    """``lost`` maps devices to reasons; ``misfits`` are those of them that cannot run code for the target;
    ``devices`` is what the tracker has, by key."""
    if not lost:
        return EngineFailure(
            "no_device",
            f"the RPC tracker {runner.tracker} has no device of key {runner.key!r}; "
            f"its keys: {', '.join(sorted(devices)) or 'none'}",
            hint=f"Start a server on the device: python -m tvm.exec.rpc_server --tracker {runner.tracker} "
            f"--key {runner.key}",
            details={"keys": sorted(devices)},
        )
    reasons = "; ".join(f"{device}: {reason}" for device, reason in lost.items())
    details = {"devices": dict(lost)}
    if misfits >= set(lost):
        return EngineFailure(
            "no_device",
            f"no device of key {runner.key!r} runs what is built for the target: {reasons}"[:2000],
            hint=MISFIT,
            details=details,
        )
    return EngineFailure(
        "device_lost",
        f"every device of key {runner.key!r} is lost: {reasons}"[:2000],
        hint="Look at the devices, start their RPC servers again, and retry the job: finished trials are kept.",
        details=details,
    )
