from __future__ import annotations

from pathlib import Path

import pytest

from domain import errors
from tests.support import models
from tuner.session import EngineSession

pytestmark = pytest.mark.engine


def test_a_model_that_cannot_be_imported_is_told_why(relay: EngineSession, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(models.mismatched_channels())
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relay.request("check", {"model": str(tmp_path / "model.onnx")}, timeout=60)
    assert caught.value.engine_code == "import_failed"
    message = caught.value.message
    assert message.startswith("TVM cannot import the model: DiagnosticError: The Relay type checker is unable to show")
    assert message.endswith("`Tensor[(4, 5, 3, 3), float32]` does not match `Tensor[(4, 3, 3, 3), float32]`")
    assert "\n" not in message
