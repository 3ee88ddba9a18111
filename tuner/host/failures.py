"""Translation of engine failures to errors of the caller."""

from __future__ import annotations

from domain import errors
from tuner.engines.protocol.serving import OUT_OF_MEMORY

_LOG_SIGNS = ("MemoryError", "bad_alloc", "Cannot allocate memory", "out of memory", "can't start new thread")
"""Last words of programs that memory is denied."""

CODES: dict[str, type[errors.TunesmithError]] = {
    "invalid_model": errors.InvalidModel,
    "import_failed": errors.InvalidModel,
    "run_failed": errors.InvalidModel,
    "unsupported_operators": errors.UnsupportedOperators,
    "unsupported_dtype": errors.InvalidModel,
    "shape_required": errors.ShapeRequired,
    "shape_mismatch": errors.ShapeMismatch,
    "invalid_inputs": errors.InvalidInputs,
    "invalid_data_set": errors.InvalidDataSet,
    "data_mismatch": errors.DataMismatch,
    "invalid_bundle": errors.InvalidBundle,
    "unknown_target": errors.UnknownTarget,
    "unsupported_target": errors.UnsupportedTarget,
    "invalid_option": errors.InvalidOption,
    "cross_compiler_missing": errors.CrossCompilerMissing,
    "compiler_missing": errors.CompilerMissing,
    "tracker_unreachable": errors.TrackerUnreachable,
    "no_device": errors.NoDevice,
    "device_lost": errors.DeviceLost,
}
"""Errors for codes of problems that the caller or the environment caused; other codes are failures of the engine."""


def explain(error: errors.EngineRequestFailed) -> errors.TunesmithError:
    """Return the error for the engine's code, if there is one, else ``error`` itself."""
    kind = errors.EngineOutOfMemory if needs_memory(error) else CODES.get(error.engine_code)
    return error if kind is None else kind(error.message, hint=error.hint, details=error.details)


def needs_memory(error: errors.EngineError) -> bool:
    """Return whether the engine reported that it had too little memory, or its log does after a crash."""
    if isinstance(error, errors.EngineCrashed):
        return any(sign in str(error.details.get("log_tail")) for sign in _LOG_SIGNS)
    return isinstance(error, errors.EngineRequestFailed) and error.engine_code == OUT_OF_MEMORY


def ending(error: errors.EngineError) -> str:
    """Describe how a process that read an upload ended."""
    if isinstance(error, errors.EngineCrashed):
        how = error.details.get("signal") or f"exit status {error.details.get('exit_code')}"
        return f"the reading process ended with {how}"
    if isinstance(error, errors.EngineGarbled):
        return "the reading process sent an invalid message"
    return "it took too long"
