"""Running and timing compiled files with the Relax virtual machine."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relax import compiling, cuda

Arrays = dict[str, Any]

_config_threadpool = tvm.get_global_func("runtime.config_threadpool")
_BIG_CORES = 1
_FILES = (compiling.LIBRARY, compiling.SIGNATURE)
ENTRY = "main"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    machine: Any
    """``tvm.relax.VirtualMachine``"""
    device: Any
    inputs: list[Json]
    outputs: list[Json]
    fed: list[Any] = field(default_factory=list)
    """Arguments of the next run, on the device."""


def use_threads(threads: int) -> None:
    """Let TVM's pool run ``threads`` threads."""
    _config_threadpool(_BIG_CORES, threads)


def load(bundle: str) -> Loaded:
    """Load a directory with the compiled files, once. Raises EngineFailure ``invalid_bundle`` and ``no_device``."""
    return _load(bundle, modified_ns(bundle))


def modified_ns(bundle: str) -> tuple[int, ...]:
    """When each file was written. Raises EngineFailure ``invalid_bundle`` when one is missing."""
    try:
        return tuple((Path(bundle) / name).stat().st_mtime_ns for name in _FILES)
    except OSError as error:
        raise EngineFailure("invalid_bundle", f"{error.filename} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=4)
def _load(bundle: str, modified_ns: tuple[int, ...]) -> Loaded:  # noqa: ARG001 - part of the key
    return assemble(bundle, lambda kind: (_load_library(Path(bundle) / compiling.LIBRARY), _device(kind)))


def assemble(bundle: str, library_on_device: Callable[[str], tuple[Any, Any]]) -> Loaded:
    """Make a machine on the device, of the kind ``cpu`` or ``cuda``, that the library was loaded on.

    Raises EngineFailure ``invalid_bundle``.
    """
    try:
        signature = json.loads((Path(bundle) / compiling.SIGNATURE).read_text())
        inputs, outputs = signature["inputs"], signature["outputs"]
        library, device = library_on_device(signature["device"])
        machine = relax.VirtualMachine(library, device)
    except EngineFailure:
        raise
    except Exception as error:
        # Loading raises TVMError, OSError, ValueError or KeyError, depending on which file is damaged.
        raise EngineFailure("invalid_bundle", f"TVM cannot load the compiled files: {error}"[:1500]) from error
    return Loaded(machine=machine, device=device, inputs=inputs, outputs=outputs)


def _device(kind: str) -> Any:
    if kind != "cuda":
        return tvm.cpu(0)
    if not cuda.device_exists():
        raise EngineFailure("no_device", "the bundle needs a CUDA GPU, and this machine has none")
    return tvm.cuda(0)


def _load_library(path: Path) -> Any:
    # The dynamic loader knows libraries by name: a file compiled anew under the old name would not be read.
    with tempfile.TemporaryDirectory(prefix="tunesmith-load-") as folder:
        return tvm.runtime.load_module(shutil.copyfile(path, Path(folder) / path.name).as_posix())


def feed(loaded: Loaded, path: str | None) -> None:
    arrays = _arrays(path, loaded) if path else _random(loaded)
    loaded.fed[:] = [tvm.runtime.tensor(arrays[spec["name"]], loaded.device) for spec in loaded.inputs]


def _arrays(path: str, loaded: Loaded) -> Arrays:
    """Raises EngineFailure ``invalid_inputs``."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:
        # zipfile, zlib, OSError and ValueError: all mean that this is no plain .npz.
        raise EngineFailure("invalid_inputs", f"not an .npz file of arrays: {error}") from error
    names = {spec["name"] for spec in loaded.inputs}
    if set(arrays) != names:
        message = f"the model takes {', '.join(sorted(names))}; the file holds {', '.join(sorted(arrays))}"
        raise EngineFailure("invalid_inputs", message)
    for spec in loaded.inputs:
        array = arrays[spec["name"]]
        if list(array.shape) != spec["shape"] or str(array.dtype) != spec["dtype"]:
            have, want = f"{array.dtype}{tuple(array.shape)}", f"{spec['dtype']}{tuple(spec['shape'])}"
            raise EngineFailure("invalid_inputs", f"{spec['name']} is {have}, the model takes {want}")
    return arrays


def _random(loaded: Loaded) -> Arrays:
    generator = np.random.default_rng(0)
    arrays = {}
    for spec in loaded.inputs:
        floating = np.issubdtype(np.dtype(spec["dtype"]), np.floating)
        values = generator.random(spec["shape"]) if floating else generator.integers(0, 2, spec["shape"])
        arrays[spec["name"]] = values.astype(spec["dtype"])
    return arrays


def run(bundle: str, inputs: str | None, outputs: str | None, threads: int) -> list[Json]:
    """Run once and write the outputs; returns their specs. Without inputs they are random."""
    loaded = load(bundle)
    use_threads(threads)
    feed(loaded, inputs)
    answer = loaded.machine[ENTRY](*loaded.fed)
    return keep(loaded, answer, outputs)


def keep(loaded: Loaded, answer: Any, outputs: str | None) -> list[Json]:
    """Write what a run returned, a tensor or several; returns the specs."""
    values = [answer] if isinstance(answer, tvm.runtime.Tensor) else list(answer)
    named = zip(loaded.outputs, values, strict=True)
    arrays = {spec["name"]: value.numpy() for spec, value in named}
    if outputs:
        # Through a handle: given a path, numpy would append ".npz".
        with Path(outputs).open("wb") as file:
            np.savez(file, **arrays)
    return [{"name": name, "dtype": str(each.dtype), "shape": list(each.shape)} for name, each in arrays.items()]


def sample(bundle: str, inputs: str | None, threads: int, number: int, repeat: int) -> list[float]:
    """Seconds per run, one value per repeat, each the mean over ``number`` runs; one run before warms up."""
    loaded = load(bundle)
    use_threads(threads)
    feed(loaded, inputs)
    timer = loaded.machine.time_evaluator(ENTRY, loaded.device, number=number, repeat=repeat)
    return [float(seconds) for seconds in timer(*loaded.fed).results]
