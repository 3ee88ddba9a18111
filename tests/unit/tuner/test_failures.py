"""Codes of engines: each is documented, and what is the caller's own becomes the caller's error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from domain import errors
from tuner.engines.protocol import serving
from tuner.engines.protocol.serving import EngineFailure
from tuner.host import failures

ROOT = Path(__file__).parents[3]
OWN = {
    "child_not_started",
    "compile_failed",
    "disk_full",
    "engine_internal_error",
    "out_of_memory",
    "plugin_failed",
    "unknown_method",
    "unknown_workload",
    "wrong_rewriting",
}
"""What is an engine's failure, whoever asked."""


def codes() -> set[str]:
    pattern = re.compile(r"(?:EngineFailure|faults\.failure)\(\s*\"([a-z_]+)\"")
    sources = (ROOT / "tuner" / "engines").rglob("*.py")
    return {code for source in sources for code in pattern.findall(source.read_text())}


def test_every_code_of_an_engine_has_a_meaning() -> None:
    assert "compiler_missing" in codes()
    assert codes() - OWN <= set(failures.CODES)


@pytest.mark.parametrize("code", sorted(set(failures.CODES) - {"shape_required", "shape_mismatch"}))
def test_every_code_is_documented(code: str) -> None:
    text = (ROOT / "docs" / "reference" / "engine-protocol.md").read_text()
    assert f"`{code}`" in text.partition("## Codes of failure")[2]


@pytest.mark.parametrize(
    ("error", "needs"),
    [
        (errors.EngineRequestFailed("out_of_memory", "bad"), True),
        (errors.EngineRequestFailed("compile_failed", "bad"), False),
        (errors.EngineCrashed("gone", details={"log_tail": "what(): std::bad_alloc"}), True),
        (errors.EngineCrashed("gone", details={"log_tail": "Segmentation fault"}), False),
        (errors.EngineTimeout("late", details={"log_tail": "std::bad_alloc"}), False),
    ],
)
def test_missing_memory_is_known_from_answers_and_crashes(error: errors.EngineError, needs: bool) -> None:
    assert failures.needs_memory(error) is needs


def _fails(cause: Exception) -> Exception:
    try:
        try:
            raise cause
        except Exception as caught:
            raise EngineFailure("run_failed", "ONNX Runtime cannot run the model") from caught
    except EngineFailure as failure:
        return failure


@pytest.mark.parametrize(
    ("cause", "memory"),
    [
        (MemoryError(), True),
        (RuntimeError("[E:onnxruntime] Failed to allocate memory for requested buffer of size 4294967296"), True),
        (RuntimeError("TVMError: std::bad_alloc"), True),
        (OSError("[Errno 12] Cannot allocate memory"), True),
        (RuntimeError("InternalError: Cannot allocate memory symbolic tensor shape [T.Any(), 3]"), False),
        (RuntimeError("invalid shape"), False),
    ],
)
def test_missing_memory_shows_through_what_a_handler_made_of_it(cause: Exception, memory: bool) -> None:
    assert serving.is_memory(cause) is serving.is_memory(_fails(cause)) is memory
