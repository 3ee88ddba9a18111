"""``rm``, and the same from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.api.scripted import ScriptedWorker
from tests.support.tunesmith.commands import parsed, run
from tunesmith import errors
from tunesmith.client import Client


def test_a_bundle_and_then_its_model(
    client: Client, worker: ScriptedWorker, onnx: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = client.upload(onnx)
    job = client.tune(model, input_shapes={"x": [1, 3, 8, 8]})
    status, _, told = run(capsys, "rm", "model", model.id)
    assert (status, "error[model_in_use]" in told) == (5, True)
    assert f"hint: Wait for {job.id} to finish, or cancel with: tunesmith cancel JOB" in told
    job.wait()
    artifact = job.artifact
    assert run(capsys, "rm", "artifact", artifact.id) == (0, f"{artifact.id} deleted\n", "")
    with pytest.raises(errors.NotFound) as caught:
        artifact.download(tmp_path / "bundle.tar")
    assert caught.value.code == "artifact_deleted"
    status, _, told = run(capsys, "pull", job.id, "-o", tmp_path / "bundle.tar")
    assert (status, "error[artifact_deleted]" in told) == (5, True)
    assert job.report()["summary"]
    assert parsed(capsys, "rm", "model", model.id) == {"model": model.id, "gone": True}
    with pytest.raises(errors.NotFound) as caught:
        client.model(model.id)
    assert caught.value.code == "model_deleted"
    assert run(capsys, "rm", "model", "m-unknown")[0] == 5
