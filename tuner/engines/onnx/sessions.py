"""ONNX Runtime sessions, cached by file and thread count, and their timing."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from tuner.engines.onnx import models
from tuner.engines.onnx.arrays import Arrays
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import environment, importing, weights

_SEVERITY_ERROR = 3
_UNKNOWN_OPERATOR = re.compile(r"([\w.-]*):(\w+)\(-?\d+\) is not a registered function/op")
_NOT_IMPLEMENTED = re.compile(r"Could not find an implementation for (\w+)\(-?\d+\) node")
"""Here ONNX Runtime does not name the domain."""
NONE = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
BASIC = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
EXTENDED = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
ALL = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL


def open_session(
    model: bytes | str | onnx.ModelProto,
    *,
    threads: int,
    level: Any = ALL,
    optimized: str | None = None,
    options: Any = None,
    without: Sequence[str] = (),
) -> Any:
    """Open a CPU session on a model, its bytes or its path.

    ``optimized`` is a file to which the model is written after optimization at ``level`` ``without`` the optimizers of
    these names, for ``models.read_optimized``; ``options`` are further ``onnxruntime.SessionOptions``. Raises
    EngineFailure ``invalid_model`` or ``unsupported_operators``.
    """
    # The weights of sessions before this one, which would count beside its own.
    environment.trim()
    options = options or onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = level
    options.log_severity_level = _SEVERITY_ERROR
    if optimized:
        options.optimized_model_filepath = optimized
    if isinstance(model, onnx.ModelProto):
        if weights.are_outside(model):
            _let_weights_outside(options)
        model = model.SerializeToString()
    try:
        return onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(without)
        )
    except Exception as error:
        # ONNX Runtime's error classes derive directly from Exception, and a bad model can raise any of them.
        _refuse_unknown(str(error), model)
        raise EngineFailure("invalid_model", f"ONNX Runtime cannot load the model: {str(error)[:1500]}") from error
    finally:
        # What parsing the model took.
        environment.trim()


def _let_weights_outside(options: Any) -> None:
    """Let a session map the weights that its model refers to, and write large ones to a file of their own."""
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", weights.ROOT)
    if options.optimized_model_filepath:
        beside = f"{Path(options.optimized_model_filepath).name}.data"
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", beside)
        key = "session.optimized_model_external_initializers_min_size_in_bytes"
        options.add_session_config_entry(key, str(weights.LARGE))


def _refuse_unknown(reported: str, model: bytes | str) -> None:
    """Raise EngineFailure ``unsupported_operators`` if that is ONNX Runtime's error message ``reported``."""
    found = _UNKNOWN_OPERATOR.search(reported) or _NOT_IMPLEMENTED.search(reported)
    if found is None:
        return
    named = "::".join(part for part in found.groups() if part)
    proto = onnx.load_model_from_string(model) if isinstance(model, bytes) else weights.parse(Path(model))[0]
    counts = models.operator_counts(proto.graph)
    name = next((each for each in counts if each == named or each.endswith(f"::{named}")), named)
    count = counts.get(name, 1)
    message = f"ONNX Runtime, the reference, does not support {name} ({count}×)"
    raise EngineFailure("unsupported_operators", message, details={"operators": {name: count}})


cached = importing.by_file(lambda path, threads: open_session(path, threads=threads), kept=8)
"""``cached(path, threads)``; raises as ``open_session`` does."""


def run(session: Any, inputs: Arrays, names: Sequence[str] | None = None) -> Arrays:
    """Run and return the outputs of these names, or all. Raises EngineFailure ``invalid_inputs`` or ``run_failed``."""
    check_inputs(session, inputs)
    names = [output.name for output in session.get_outputs()] if names is None else list(names)
    try:
        return dict(zip(names, session.run(names, inputs), strict=True))
    except Exception as error:
        raise EngineFailure("run_failed", f"ONNX Runtime cannot run the model: {str(error)[:1500]}") from error


def check_inputs(session: Any, inputs: Arrays) -> None:
    expected = {entry.name for entry in session.get_inputs()}
    if expected != set(inputs):
        message = f"the model's inputs are {', '.join(sorted(expected))}; the file contains {', '.join(sorted(inputs))}"
        raise EngineFailure("invalid_inputs", message)


def sample(session: Any, inputs: Arrays, *, number: int, repeat: int) -> list[float]:
    """Return seconds per run, one value per repeat, each the mean of ``number`` runs, after one warm-up run."""
    run(session, inputs)
    samples = []
    for _ in range(repeat):
        started = time.perf_counter()
        for _ in range(number):
            session.run(None, inputs)
        samples.append((time.perf_counter() - started) / number)
    return samples
