"""Running and timing compiled files with the graph executor."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.contrib import graph_executor

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import compiling, speedups

Arrays = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    executor: Any
    device: Any
    inputs: dict[str, Any]
    """``tvm.nd.NDArray`` of each input, weights left out."""
    outputs: list[str]


def load(bundle: str) -> Loaded:
    """Load a directory with the three compiled files, once. Raises EngineFailure ``invalid_bundle``."""
    return _load(bundle, modified_ns(bundle))


def modified_ns(bundle: str) -> tuple[int, ...]:
    """When each file was written. Raises EngineFailure ``invalid_bundle`` when one is missing."""
    try:
        return tuple((Path(bundle) / name).stat().st_mtime_ns for name in _FILES)
    except OSError as error:
        raise EngineFailure("invalid_bundle", f"{error.filename} cannot be read: {error.strerror}") from error


_FILES = (compiling.LIBRARY, compiling.GRAPH, compiling.PARAMS)


@lru_cache(maxsize=4)
def _load(bundle: str, modified_ns: tuple[int, ...]) -> Loaded:  # noqa: ARG001 - part of the key
    return assemble(bundle, lambda: (library(bundle), tvm.cpu(0)))


def assemble(
    bundle: str,
    library_on_device: Callable[[], tuple[Any, Any]],
    executor: Callable[[str, Any, Any], Any] = graph_executor.create,
) -> Loaded:
    """Make an executor on the device that the library was loaded on. Raises EngineFailure ``invalid_bundle``."""
    folder = Path(bundle)
    try:
        text = (folder / compiling.GRAPH).read_text()
        params = tvm.runtime.load_param_dict((folder / compiling.PARAMS).read_bytes())
        graph = json.loads(text)
        library, device = library_on_device()
        made = executor(text, library, device)
        made.load_params(tvm.runtime.save_param_dict(params))
    except Exception as error:
        # Loading raises TVMError, OSError or ValueError, depending on which file is damaged.
        raise EngineFailure("invalid_bundle", f"TVM cannot load the compiled files: {error}"[:1500]) from error
    names = [graph["nodes"][position]["name"] for position in graph["arg_nodes"]]
    outputs = graph.get("metadata", {}).get("outputs") or [f"output_{i}" for i in range(made.get_num_outputs())]
    inputs = {name: made.get_input(name) for name in names if name not in params}
    return Loaded(executor=made, device=device, inputs=inputs, outputs=outputs)


def library(bundle: str) -> Any:
    """The code of compiled files, as a ``tvm.runtime.Module``."""
    path = Path(bundle) / compiling.LIBRARY
    # The dynamic loader knows libraries by name: a file compiled anew under the old name would not be read.
    with tempfile.TemporaryDirectory(prefix="tunesmith-load-") as folder:
        return tvm.runtime.load_module(shutil.copyfile(path, Path(folder) / path.name).as_posix())


def feed(loaded: Loaded, path: str) -> None:
    """Set the inputs from an ``.npz`` file. Raises EngineFailure ``invalid_inputs``."""
    for name, array in _arrays(path, loaded).items():
        loaded.executor.set_input(name, array)


def _arrays(path: str, loaded: Loaded) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:
        # zipfile, zlib, OSError and ValueError: all mean that this is no plain .npz.
        raise EngineFailure("invalid_inputs", f"not an .npz file of arrays: {error}") from error
    if set(arrays) != set(loaded.inputs):
        message = f"the model takes {', '.join(sorted(loaded.inputs))}; the file holds {', '.join(sorted(arrays))}"
        raise EngineFailure("invalid_inputs", message)
    for name, array in arrays.items():
        wanted = loaded.inputs[name]
        if tuple(array.shape) != tuple(wanted.shape) or str(array.dtype) != str(wanted.dtype):
            have, want = f"{array.dtype}{tuple(array.shape)}", f"{wanted.dtype}{tuple(wanted.shape)}"
            raise EngineFailure("invalid_inputs", f"{name} is {have}, the model takes {want}")
    return arrays


def run(bundle: str, inputs: str | None, outputs: str | None, threads: int) -> list[Json]:
    """Run once and write the outputs; returns their specs. Without inputs they are random."""
    loaded = load(bundle)
    speedups.use_threads(threads)
    return run_loaded(loaded, inputs, outputs)


def run_loaded(loaded: Loaded, inputs: str | None, outputs: str | None) -> list[Json]:
    feed_or_fill(loaded, inputs)
    loaded.executor.run()
    arrays = {name: loaded.executor.get_output(place).numpy() for place, name in enumerate(loaded.outputs)}
    if outputs:
        _save(outputs, arrays)
    return [{"name": name, "dtype": str(each.dtype), "shape": list(each.shape)} for name, each in arrays.items()]


def sample(bundle: str, inputs: str | None, threads: int, number: int, repeat: int) -> list[float]:
    """Seconds per run, one value per repeat, each the mean over ``number`` runs; one run before warms up."""
    loaded = load(bundle)
    speedups.use_threads(threads)
    return sample_loaded(loaded, inputs, number, repeat)


def sample_loaded(loaded: Loaded, inputs: str | None, number: int, repeat: int) -> list[float]:
    feed_or_fill(loaded, inputs)
    timer = loaded.executor.module.time_evaluator("run", loaded.device, number=number, repeat=repeat)
    return [float(seconds) for seconds in timer().results]


def feed_or_fill(loaded: Loaded, inputs: str | None) -> None:
    """Set the inputs from an ``.npz`` file, or from a seed. Raises EngineFailure ``invalid_inputs``."""
    if inputs:
        feed(loaded, inputs)
    else:
        _fill(loaded)


def _fill(loaded: Loaded) -> None:
    generator = np.random.default_rng(0)
    for name, array in loaded.inputs.items():
        floating = np.issubdtype(np.dtype(array.dtype), np.floating)
        values = generator.random(array.shape) if floating else generator.integers(0, 2, array.shape)
        loaded.executor.set_input(name, values.astype(array.dtype))


def _save(path: str, arrays: Arrays) -> None:
    # Through a handle: given a path, numpy would append ".npz".
    with Path(path).open("wb") as file:
        np.savez(file, **arrays)
