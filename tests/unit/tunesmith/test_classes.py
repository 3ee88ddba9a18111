"""A classifier's answers with names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunesmith import errors
from tunesmith.cli import classes
from tunesmith.cli.arrays import Array


def array(values: list[float], shape: tuple[int, ...]) -> Array:
    return Array(name="scores", dtype="float32", shape=shape, values=tuple(values))


def test_the_largest_come_first_row_by_row() -> None:
    rows = classes.top(array([0.1, 0.7, 0.2, 3.0, 3.0, -1.0], (2, 3)), 2, ["cat", "dog", "fish"])
    assert [[(answer.index, answer.label) for answer in row] for row in rows] == [
        [(1, "dog"), (2, "fish")],
        [(0, "cat"), (1, "dog")],
    ]
    assert rows[0][0].value == 0.7


def test_what_is_not_a_number_is_last() -> None:
    (row,) = classes.top(array([float("nan"), 1.0, float("inf")], (3,)), 9, None)
    assert [answer.index for answer in row] == [2, 1, 0]


def test_as_many_names_as_classes() -> None:
    with pytest.raises(errors.InvalidInput, match="there are 2 labels, and output 'scores' has 3 classes") as caught:
        classes.top(array([1, 2, 3], (1, 3)), 1, ["a", "b"])
    assert caught.value.code == "invalid_labels"


@pytest.mark.parametrize(
    "text",
    [
        "cat\ndog\nfish\n",
        "\ufeffcat\r\n dog \r\nfish\r\n\r\n",
        json.dumps(["cat", "dog", "fish"]),
        json.dumps({"1": "dog", "0": "cat", "2": "fish"}),
        json.dumps({"0": ["n01", "cat"], "1": ["n02", "dog"], "2": ["n03", "fish"]}),
    ],
)
def test_the_forms_of_a_labels_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "labels"
    path.write_bytes(text.encode())
    assert classes.labels(path) == ["cat", "dog", "fish"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00", b"[", b'{"a": "cat"}', b'{"1": "cat"}'])
def test_what_is_no_labels_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels"
    path.write_bytes(content)
    with pytest.raises(errors.InvalidInput) as caught:
        classes.labels(path)
    assert caught.value.code == "invalid_labels"


def test_a_labels_file_that_is_not_there(tmp_path: Path) -> None:
    cases: list[Any] = [tmp_path / "none", tmp_path]
    for path in cases:
        with pytest.raises(errors.InvalidInput) as caught:
            classes.labels(path)
        assert caught.value.code == "unreadable_file"
