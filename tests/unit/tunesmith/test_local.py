from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.tuner.test_bundle import MANIFEST, REPORT
from tests.unit.tunesmith.test_cli import run
from tuner import bundle


def test_a_bundle_for_another_machine_is_not_tried(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    for name in ("mod.so", "mod.json", "mod.params"):
        (compiled / name).write_bytes(b"{}")
    for triple, code in (("aarch64-linux-gnu", "invalid_bundle"), ("x86_64-linux-gnu", "engine_not_installed")):
        manifest = replace(MANIFEST, target=f"llvm -mtriple={triple} -mcpu=generic")
        bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=manifest, report=REPORT)
        monkeypatch.delenv("TUNESMITH_ENGINE_RELAY_PYTHON", raising=False)
        status, _, err = run(capsys, "run", tmp_path / "b.tar")
        assert (status, f"error[{code}]" in err) == ({"invalid_bundle": 5}.get(code, 3), True)


def test_inputs_that_are_no_arrays(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(b"\x08\x08 no archive")
    status, _, err = run(capsys, "run", model, "--inputs", model)
    assert (status, err.splitlines()[0]) == (5, f"error[invalid_inputs]: {model} is no .npz file")
    assert "hint: Give an .npz file" in err
