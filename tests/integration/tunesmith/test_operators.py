from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tunesmith.commands import parsed, run
from tunesmith import errors, operator_spec
from tunesmith.client import Client

CONV = "conv2d x=1,64,56,56 w=64,64,3,3 strides=2 padding=1,1"


def test_a_line_says_it_all() -> None:
    assert operator_spec.parse(CONV) == {
        "operator": "conv2d",
        "shapes": {"x": [1, 64, 56, 56], "w": [64, 64, 3, 3]},
        "attributes": {"strides": 2, "padding": [1, 1]},
    }
    assert operator_spec.parse("dense x=1,2 w=3,2 dtype=float32")["dtype"] == "float32"


@pytest.mark.parametrize("text", ["", "x=1,2", "dense x", "dense x=", "dense x=1,b", "dense x=1 x=2", "dense =1"])
def test_a_line_that_makes_no_sense(text: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        operator_spec.parse(text)
    assert caught.value.code == "invalid_operator"


def test_the_client_makes_operators(client: Client) -> None:
    made = client.operator("matmul", {"x": (4, 8), "w": (8, 16)})
    assert (made.name, made.created) == ("matmul 4×8 ∗ 8×16", True)
    assert client.operator("matmul", {"x": (4, 8), "w": (8, 16)}).created is False


@pytest.mark.usefixtures("url", "worker")
def test_one_command_tunes_an_operator(capsys: pytest.CaptureFixture[str]) -> None:
    tuned = parsed(capsys, "tune", "--operator", CONV, "--tuner", "ansor")
    assert tuned["job"]["model_name"] == "conv2d 1×64×56×56 ∗ 64×64×3×3 strides=2,2 padding=1,1,1,1"
    status, out, _ = run(capsys, "operator", CONV)
    assert (status, out.strip().split()[0]) == (0, tuned["job"]["model"])
    assert "already uploaded" in out


@pytest.mark.usefixtures("lasting_url")
@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["operator", "conv2 x=1"], 5, "invalid_operator"),
        (["operator", "dense x=1,b"], 5, "invalid_operator"),
        (["tune", "--operator", "dense x=4,8 w=8,4"], 5, "invalid_operator"),
        (["tune", "net.onnx", "--operator", "dense x=4,8 w=8,8"], 2, "usage"),
    ],
)
def test_what_is_wrong(
    capsys: pytest.CaptureFixture[str], onnx: Path, arguments: list[str], status: int, code: str
) -> None:
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (status, "")
    assert err.startswith(f"error[{code}]: ")
    assert "\nhint: " in err
