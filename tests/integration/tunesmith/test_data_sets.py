from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.api.scripted import ScriptedWorker
from tests.support.tunesmith.commands import parsed, run
from tunesmith import Client, errors


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    """What the scripted service takes for a file of rows that the model of ``onnx`` takes."""
    return written(tmp_path / "val set.npz", 8)


def written(path: Path, rows: int) -> Path:
    path.write_text(json.dumps({"x": ["float32", [rows, 3, 8, 8]]}))
    return path


SHAPE = {"x": (1, 3, 8, 8)}


def test_the_client_adds_names_lists_and_deletes(client: Client, worker: ScriptedWorker, onnx: Path, npz: Path) -> None:
    sent: list[tuple[int, int]] = []
    made = client.add_data_set(npz, progress=lambda done, total: sent.append((done, total)))
    assert (made.name, made.rows, made.created, sent[-1][0]) == ("val-set", 8, True, npz.stat().st_size)
    assert not client.add_data_set(npz, name="other").created
    assert [each.id for each in client.data_sets()] == [made.id]
    assert client.data_set("val-set") == client.data_set(made.id)
    job = client.tune(client.upload(onnx), tuner="autotvm", seconds=300, input_shapes=SHAPE, data=made)
    assert job.data["data"] == made.id
    job.wait()
    client.delete_data_set(made)
    with pytest.raises(errors.NotFound):
        client.data_set(made.id)
    with pytest.raises(errors.NotFound):
        client.tune(client.upload(onnx), input_shapes=SHAPE, data="val-set")


def test_unreadable_and_empty_files_are_not_sent(client: Client, tmp_path: Path) -> None:
    for path, code in ((tmp_path / "none.npz", "unreadable_file"), (tmp_path / "empty.npz", "invalid_data_set")):
        (tmp_path / "empty.npz").touch()
        with pytest.raises(errors.InvalidInput) as caught:
            client.add_data_set(path)
        assert caught.value.code == code


@pytest.mark.usefixtures("worker", "url")
def test_a_file_given_to_tune_is_added_first(
    capsys: pytest.CaptureFixture[str], onnx: Path, npz: Path, tmp_path: Path
) -> None:
    tuned = parsed(capsys, "tune", onnx, "--data", npz, "--input-shape", "x:1,3,8,8")
    [first] = parsed(capsys, "data", "list")
    assert tuned["job"]["data"] == first["id"]
    assert tuned["report"]["data"]["calibration_rows"] == 50
    _, out, _ = run(capsys, "status", tuned["job"]["id"])
    for words in ("on 150 rows of your data", "rows 17 (0.3 %), 4 (0.2 %)", "top-1 on labels 85 %, reference 86 %"):
        assert words in " ".join(out.split()), out
    assert first["name"] == "val-set"
    # Another file of that name is another data set, with a name of its own.
    (tmp_path / "more").mkdir()
    other = written(tmp_path / "more" / npz.name, 9)
    again = parsed(capsys, "tune", onnx, "--data", other, "--input-shape", "x:1,3,8,8")
    second = next(each for each in parsed(capsys, "data", "list") if each["id"] == again["job"]["data"])
    assert second["rows"] == 9
    assert second["name"].startswith("val-set-")
    by_name = parsed(capsys, "tune", onnx, "--data", "val-set", "--input-shape", "x:1,3,8,8")
    assert by_name["job"]["data"] == first["id"]


@pytest.mark.usefixtures("url")
def test_data_commands_say_what_is_there(capsys: pytest.CaptureFixture[str], npz: Path) -> None:
    _, out, err = run(capsys, "data", "list")
    assert "tunesmith data add FILE.npz" in out + err
    status, out, err = run(capsys, "data", "add", npz)
    assert (status, out.split()[0][:2]) == (0, "s-")
    assert "array  x  float32  8×3×8×8" in err
    _, out, _ = run(capsys, "data", "add", npz, "--name", "other")
    assert "already there as 'val-set'" in out
    _, out, _ = run(capsys, "data", "list")
    assert "val-set" in out
    status, out, _ = run(capsys, "data", "rm", "val-set")
    assert (status, out.strip()) == (0, "val-set deleted")
    status, _, err = run(capsys, "data", "rm", "val-set")
    assert status == 5
    assert "data_set_not_found" in err
