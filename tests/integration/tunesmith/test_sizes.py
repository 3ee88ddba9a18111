"""Jobs of several sizes from the command line and the SDK."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.tunesmith.commands import parsed, run
from tunesmith import Client
from tunesmith.job_draft import dimension

Capture = pytest.CaptureFixture[str]
SEVERAL = ["--input-shape", "x:1/4,3,8@6/16@3,8"]


@pytest.fixture
def onnx(onnx: Path) -> Path:
    """A model whose one input x is [batch, 3, ?, 8]."""
    onnx.write_bytes(b"dynamic model")
    return onnx


@pytest.mark.usefixtures("url")
def test_a_job_of_several_sizes(capsys: Capture, onnx: Path) -> None:
    job = parsed(capsys, "tune", onnx, "--no-wait", *SEVERAL, "--pad", "x=0.5")
    assert [(size["name"], round(size["share"], 4)) for size in job["sizes"]] == [
        ("batch=1, x.2=8", 0.3333),
        ("batch=1, x.2=16", 0.1667),
        ("batch=4, x.2=8", 0.3333),
        ("batch=4, x.2=16", 0.1667),
    ]
    assert job["padding"] == {"x": 0.5}
    _, out, _ = run(capsys, "status", job["id"])
    lines = out.splitlines()
    (header,) = [place for place, line in enumerate(lines) if line.startswith("SIZE")]
    assert lines[header + 1].split()[:4] == ["batch=1,", "x.2=8", "33%", "queued"]
    parts = parsed(capsys, "jobs", "--part-of", job["id"])
    assert [part["id"] for part in parts] == [line.split()[-1] for line in lines[header + 4 : header : -1]]
    assert [each["id"] for each in parsed(capsys, "jobs")] == [job["id"]]
    _, out, _ = run(capsys, "status", parts[0]["id"])
    assert f"part of   {job['id']}" in out
    status, _, err = run(capsys, "cancel", parts[0]["id"])
    assert (status, "error[job_is_part]" in err) == (5, True)


@pytest.mark.usefixtures("url")
def test_observed_shapes_are_read_from_a_file(capsys: Capture, onnx: Path, tmp_path: Path) -> None:
    file = tmp_path / "seen.json"
    file.write_text(
        json.dumps([{"input_shapes": {"x": [n, 3, 8, 8]}, "count": count} for n, count in ((1, 3), (3, 1))])
    )
    shapes = ["--input-shape", "x:1/4,3,8,8"]
    job = parsed(capsys, "tune", onnx, "--no-wait", *shapes, "--frequencies", file)
    assert [round(size["share"], 3) for size in job["sizes"]] == [0.75, 0.25]
    for wrong in ("{}", "[1]", "[", '[{"count": 1}]'):
        file.write_text(wrong)
        status, _, err = run(capsys, "tune", onnx, "--no-wait", *shapes, "--frequencies", file)
        assert (status, "--frequencies" in err) == (2, True)


@pytest.mark.usefixtures("lasting_url")
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--input-shape", "x:1/a,3,8,8"], 2, "--input-shape must be"),
        (["--input-shape", "x:1@2/4,3,8,8"], 2, "--input-shape must be"),
        (["--input-shape", "x:1@2/1@4,3,8,8"], 2, "--input-shape must be"),
        (["--input-shape", "x:1/1,3,8,8"], 5, "error[invalid_sizes]"),
        ([*SEVERAL, "--pad", "x"], 2, "--pad must be NAME=VALUE"),
        ([*SEVERAL, "--pad", "x=a"], 2, "--pad must be NAME=VALUE"),
        ([*SEVERAL, "--pad", "y=0"], 5, "error[invalid_padding]"),
        ([*SEVERAL, "--bundle-format", "tvm"], 5, "error[sizes_not_supported]"),
        ([*SEVERAL, "--dry-run"], 5, "error[sizes_not_planned]"),
    ],
)
def test_wrong_sizes_are_refused(capsys: Capture, onnx: Path, arguments: list[str], status: int, said: str) -> None:
    found, _, err = run(capsys, "tune", onnx, "--no-wait", *arguments)
    assert (found, said in err) == (status, True), err


def test_the_sdk_takes_sequences_and_mappings(client: Client, onnx: Path) -> None:
    model = client.upload(onnx)
    several = client.tune(model, input_shapes={"x": (range(1, 3), 3, {8: 3, 16: 1}, 8)}, padding={"x": 0})
    assert [size["name"] for size in several.data["sizes"]] == [
        "batch=1, x.2=8",
        "batch=1, x.2=16",
        "batch=2, x.2=8",
        "batch=2, x.2=16",
    ]
    seen = [{"input_shapes": {"x": (1, 3, 8, 8)}, "count": 3}]
    counted = client.tune(model, input_shapes={"x": ([1, 4], 3, 8, 8)}, frequencies=seen)
    assert [round(size["share"], 2) for size in counted.data["sizes"]] == [0.8, 0.2]
    assert len(list(client.jobs(part_of=several.id))) == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("1/4/8", [1, 4, 8]), ("16@6/32@3.5", {16: 6.0, 32: 3.5}), ("4@1", {4: 1.0}), (" 1 / 2 ", [1, 2])],
)
def test_dimensions_are_parsed(text: str, value: object) -> None:
    assert dimension(text) == value


@pytest.mark.parametrize("text", ["", "/", "1/", "a", "1@/2@1", "1@1/2", "1@1/1@2", "@1"])
def test_wrong_dimensions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        dimension(text)
