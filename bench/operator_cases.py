"""Models of one operator from the tests of the onnx package: ``python -m bench.operator_cases FOLDER COUNT``.

Requires the onnx engine's environment. Writes ``NAME/model.onnx`` and ``NAME/inputs.npz`` for at most ``COUNT`` cases
of every operator, and prints ``[{name, operator, opset}]``. Cases with sequences, strings, optional values or tensors
without elements are left out.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

_TESTS = Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"
_WITH_WEIGHTS = (
    "Conv", "GRU", "Integer", "LSTM", "Linear", "OneHot", "RNN", "Resize", "RotaryEmbedding", "STFT", "Upsample",
)  # fmt: skip
"""Parts of the names of operators whose later operands are constants in every network."""
Case = dict[str, Any]


def main() -> int:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    by_operator: dict[str, list[Path]] = defaultdict(list)
    for test in sorted(_TESTS.iterdir()):
        model = onnx.load(test / "model.onnx")
        if len(model.graph.node) == 1 and model.graph.node[0].domain in ("", "ai.onnx") and _is_of_tensors(model):
            by_operator[model.graph.node[0].op_type].append(test)
    json.dump([_write(test, folder) for tests in by_operator.values() for test in _spread(tests, count)], sys.stdout)
    return 0


def _spread(tests: list[Path], count: int) -> list[Path]:
    """Return ``count`` of the tests, evenly spaced."""
    return [tests[place * len(tests) // count] for place in range(count)] if len(tests) > count else tests


def _is_of_tensors(model: onnx.ModelProto) -> bool:
    kinds = [value.type for value in (*model.graph.input, *model.graph.output)]
    text = onnx.TensorProto.STRING
    return all(
        kind.HasField("tensor_type")
        and kind.tensor_type.elem_type != text
        and all(size.dim_value for size in kind.tensor_type.shape.dim if not size.dim_param)
        for kind in kinds
    )


def _write(test: Path, folder: Path) -> Case:
    """Write a case, with operands that networks hold as constants as constants."""
    model = onnx.load(test / "model.onnx")
    name, operator = test.name.removeprefix("test_"), model.graph.node[0].op_type
    fed, kept = {}, []
    for place, value in enumerate(model.graph.input):
        tensor = onnx.TensorProto.FromString((test / "test_data_set_0" / f"input_{place}.pb").read_bytes())
        if place and _is_constant(operator, tensor):
            tensor.name = value.name
            model.graph.initializer.append(tensor)
            continue
        kept.append(onnx.ValueInfoProto.FromString(value.SerializeToString()))
        fed[value.name] = numpy_helper.to_array(tensor)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    (folder / name).mkdir(parents=True)
    (folder / name / "model.onnx").write_bytes(model.SerializeToString())
    np.savez(folder / name / "inputs.npz", **fed)
    return {"name": name, "operator": operator, "opset": model.opset_import[0].version}


def _is_constant(operator: str, tensor: onnx.TensorProto) -> bool:
    is_computed = tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BOOL)
    return not is_computed or not tensor.dims or any(part in operator for part in _WITH_WEIGHTS)


if __name__ == "__main__":
    sys.exit(main())
