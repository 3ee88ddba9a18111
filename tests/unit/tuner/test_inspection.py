"""What becomes of engine failures, with a fake; then real models, hostile ones and limits, with ONNX Runtime."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from domain import errors
from tests.support.tuner.fakes import FakeEngine
from tests.support.tuner.fixtures import MISBEHAVING
from tuner.engines.protocol.serving import EngineFailure
from tuner.host import failures
from tuner.host.inspection import Inspector


@pytest.mark.parametrize(("code", "kind"), sorted(failures.CODES.items()))
def test_an_engines_refusal_becomes_the_callers_error(code: str, kind: type[errors.TunesmithError]) -> None:
    refusal = errors.EngineRequestFailed(code, "why", hint="do this", details={"operators": {"Foo": 1}})
    explained = failures.explain(refusal)
    assert type(explained) is kind
    assert isinstance(explained, (errors.InvalidRequest, errors.Unavailable))
    assert (explained.message, explained.hint) == ("why", "do this")
    assert explained.details == {"operators": {"Foo": 1}}


def test_a_refusal_without_a_hint_gets_the_errors_own() -> None:
    explained = failures.explain(errors.EngineRequestFailed("shape_required", "x has no size"))
    assert explained.hint == errors.ShapeRequired.default_hint


def test_an_engines_own_failure_stays_one() -> None:
    failure = errors.EngineRequestFailed("engine_internal_error", "KeyError")
    assert failures.explain(failure) is failure


@pytest.fixture
def uploaded(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"any bytes")
    return path


@pytest.fixture
def inspector() -> Inspector:
    return Inspector(spec=MISBEHAVING, python=Path(sys.executable), seconds=2.0)


def answering(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    def answer(params: object, _: object) -> dict[str, object]:
        raise failure

    engine = nullcontext(FakeEngine({"inspect": answer}))
    monkeypatch.setattr("tuner.host.inspection.EngineSession.start", lambda *_, **__: engine)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (errors.EngineCrashed("gone", details={"signal": "SIGSEGV"}), "ended with SIGSEGV"),
        (errors.EngineCrashed("gone", details={"exit_code": 7}), "ended with exit status 7"),
        (errors.EngineTimeout("slow"), "took too long"),
        (errors.EngineSilent("mute"), "took too long"),
        (EngineFailure("out_of_memory", "MemoryError: 40 GB"), "MemoryError"),
        (EngineFailure("invalid_model", "this is not ONNX"), "this is not ONNX"),
    ],
)
def test_a_model_that_brings_its_reader_down_is_invalid(
    inspector: Inspector, uploaded: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, message: str
) -> None:
    answering(monkeypatch, failure)
    with pytest.raises(errors.InvalidModel, match=message) as caught:
        inspector.inspect(uploaded)
    assert caught.value.hint


def test_a_bug_of_the_engine_is_not_blamed_on_the_model(
    inspector: Inspector, uploaded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, EngineFailure("engine_internal_error", "KeyError: 'x'"))
    with pytest.raises(errors.EngineRequestFailed):
        inspector.inspect(uploaded)


@pytest.mark.contract
def test_an_engine_that_does_not_start_is_not_blamed_on_the_model(
    inspector: Inspector, uploaded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_TEST_START", "crash")
    with pytest.raises(errors.EngineStartFailed):
        inspector.inspect(uploaded)
