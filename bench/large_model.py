"""An archive of a stack of dense layers and their weights: ``python -m bench.large_model BYTES OUT.tar``.

Requires ``onnx`` and numpy; no more than one layer is in memory. The same arguments give the same bytes.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

WIDTH = 2048
MODEL, WEIGHTS = "model.onnx", "model.onnx.data"
_FLOAT_BYTES = 4


def columns(total: int) -> list[int]:
    """Return the outputs of each layer, so that the weights have about ``total`` bytes."""
    whole, rest = divmod(total // (_FLOAT_BYTES * WIDTH), WIDTH)
    return [WIDTH] * whole + ([rest] if rest else [])


def graph(sizes: list[int]) -> onnx.ModelProto:
    """Return the model: ``x`` [1, 2048] to ``y``, each layer but the last with a ReLU."""
    nodes, weights, value, offset = [], [], "x", 0
    for place, size in enumerate(sizes):
        weights.append(_weight(f"w{place}", size, offset))
        offset += size * WIDTH * _FLOAT_BYTES
        is_last = place == len(sizes) - 1
        nodes.append(helper.make_node("MatMul", [value, f"w{place}"], ["y" if is_last else f"m{place}"]))
        if not is_last:
            nodes.append(helper.make_node("Relu", [f"m{place}"], [f"r{place}"]))
            value = f"r{place}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, sizes[-1]])
    made = helper.make_graph(nodes, "dense", [x], [y], weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _weight(name: str, size: int, offset: int) -> Any:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[WIDTH, size], data_location=TensorProto.EXTERNAL)
    length = WIDTH * size * _FLOAT_BYTES
    for key, value in (("location", WEIGHTS), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def write(total: int, path: Path) -> None:
    """Write the archive, with He's variance (ICCV 2015), so that signals neither vanish nor explode."""
    sizes = columns(total)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        content = graph(sizes).SerializeToString(deterministic=True)
        _member(archive, MODEL, len(content), io.BytesIO(content))
        with (path.with_suffix(".data")).open("w+b") as weights:
            for seed, size in enumerate(sizes):
                values = np.random.default_rng(seed).standard_normal((WIDTH, size), dtype=np.float32)
                values *= np.float32(np.sqrt(2 / WIDTH))
                weights.write(values.tobytes())
            length = weights.tell()
            weights.seek(0)
            _member(archive, WEIGHTS, length, weights)
    path.with_suffix(".data").unlink()


def _member(archive: tarfile.TarFile, name: str, size: int, content: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    archive.addfile(member, content)


if __name__ == "__main__":
    write(int(sys.argv[1]), Path(sys.argv[2]))
