from __future__ import annotations

import ast
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from domain.models import TensorSpec
from tunesmith import errors
from tunesmith.cli import arrays


@pytest.mark.parametrize(
    ("dtype", "letter", "shape"),
    [("float32", "f", (2, 3)), ("int64", "q", (5,)), ("bool", "?", ()), ("uint8", "B", (70_000,))],
)
def test_constant_arrays_are_what_numpy_reads(tmp_path: Path, dtype: str, letter: str, shape: tuple[int, ...]) -> None:
    path = tmp_path / "x.npz"
    arrays.write_constant(path, [TensorSpec(name="x", dtype=dtype, shape=shape)], 1)
    with zipfile.ZipFile(path) as archive:
        content = archive.read("x.npy")
    assert content[:8] == b"\x93NUMPY\x01\x00"
    (length,) = struct.unpack("<H", content[8:10])
    assert (10 + length) % 64 == 0
    header = ast.literal_eval(content[10 : 10 + length].decode())
    assert (header["shape"], header["fortran_order"]) == (shape, False)
    values = [value for (value,) in struct.iter_unpack(f"<{letter}", content[10 + length :])]
    count = 1
    for size in shape:
        count *= size
    assert values == [1] * count


def test_text_cannot_be_filled(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput):
        arrays.write_constant(tmp_path / "x.npz", [TensorSpec(name="x", dtype="object", shape=(1,))], 0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "bool"])
def test_what_was_written_is_read(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "x.npz"
    specs = [TensorSpec(name="x/y:0", dtype=dtype, shape=(2, 3)), TensorSpec(name="s", dtype=dtype, shape=())]
    arrays.write_constant(path, specs, 1)
    read = arrays.read(path, "x/y:0")
    assert (read.dtype, read.shape, read.values) == (dtype, (2, 3), (1,) * 6)
    assert arrays.read(path, "s").values == (1,)
    arrays.copy(path, ["s"], tmp_path / "one.npz")
    with zipfile.ZipFile(tmp_path / "one.npz") as archive:
        assert archive.namelist() == ["s.npy"]
    with pytest.raises(errors.InvalidInput):
        arrays.copy(path, ["s"], tmp_path / "nowhere" / "one.npz")


@pytest.mark.parametrize("header", ["'descr': '|V2', 'fortran_order': False", "'descr': '<f4', 'fortran_order': True"])
def test_what_cannot_be_shown(tmp_path: Path, header: str) -> None:
    text = f"{{{header}, 'shape': (1, 1), }}\n"
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        start = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text))
        archive.writestr("x.npy", start + text.encode() + b"\0" * 4)
    with pytest.raises(errors.InvalidInput, match="cannot be shown"):
        arrays.read(tmp_path / "x.npz", "x")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUM",
        b"\x93NUMPY\x01\x00\x05\x00[[[[[",
        b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"[" * 100_000,
        b"\x93NUMPY\x02\x00" + struct.pack("<I", 9000) + b"(" * 9000,
        b"\x93NUMPY\x01\x00\x02\x00{}",
        b"\x93NUMPY\x01\x00\x3b\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9999,)}" + bytes(4),
    ],
)
def test_a_foreign_bundle_may_write_anything(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content)
    for name in ("x", "missing"):
        with pytest.raises(errors.InvalidInput, match="the bundle wrote no readable output") as caught:
            arrays.read(path, name)
        assert (caught.value.code, bool(caught.value.hint)) == ("invalid_bundle", True)
    path.write_bytes(content)
    for attempt in (lambda: arrays.read(path, "x"), lambda: arrays.copy(path, ["x"], tmp_path / "copy.npz")):
        with pytest.raises(errors.InvalidInput, match="the bundle wrote no readable output"):
            attempt()


def array(values: list[float], shape: tuple[int, ...]) -> arrays.Array:
    return arrays.Array(name="scores", dtype="float32", shape=shape, values=tuple(values))


def test_the_largest_come_first_row_by_row() -> None:
    rows = arrays.top(array([0.1, 0.7, 0.2, 3.0, 3.0, -1.0], (2, 3)), 2, ["cat", "dog", "fish"])
    assert [[(answer.index, answer.label) for answer in row] for row in rows] == [
        [(1, "dog"), (2, "fish")],
        [(0, "cat"), (1, "dog")],
    ]
    assert rows[0][0].value == 0.7


def test_what_is_not_a_number_is_last() -> None:
    (row,) = arrays.top(array([float("nan"), 1.0, float("inf")], (3,)), 9, None)
    assert [answer.index for answer in row] == [2, 1, 0]


def test_as_many_names_as_classes() -> None:
    with pytest.raises(errors.InvalidInput, match="there are 2 labels, but output 'scores' has 3 classes") as caught:
        arrays.top(array([1, 2, 3], (1, 3)), 1, ["a", "b"])
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
    assert arrays.labels(path) == ["cat", "dog", "fish"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00", b"[", b'{"a": "cat"}', b'{"1": "cat"}'])
def test_what_is_no_labels_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels"
    path.write_bytes(content)
    with pytest.raises(errors.InvalidInput) as caught:
        arrays.labels(path)
    assert caught.value.code == "invalid_labels"


def test_a_labels_file_that_is_not_there(tmp_path: Path) -> None:
    cases: list[Any] = [tmp_path / "none", tmp_path]
    for path in cases:
        with pytest.raises(errors.InvalidInput) as caught:
            arrays.labels(path)
        assert caught.value.code == "unreadable_file"
