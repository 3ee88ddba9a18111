from __future__ import annotations

import ast
import struct
import zipfile
from pathlib import Path

import pytest

from domain.tensors import TensorSpec
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
