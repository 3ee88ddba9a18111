"""Arrays as ``.npz`` files: making seeded inputs, reading, writing."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.reference import kinds, models, seeding
from tuner.engines.reference.kinds import Kind

Arrays = dict[str, Any]


def load(path: str) -> Arrays:
    """Raises EngineFailure ``invalid_inputs`` for what is no plain ``.npz`` file; pickled objects are refused."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise EngineFailure("invalid_inputs", f"not an .npz file of arrays: {error}") from error


def save(path: str, arrays: Mapping[str, Any]) -> None:
    # Through a handle: given a path, numpy would append ".npz"; and keyword arguments could not be named "file".
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def make(specs: Sequence[Json], seed: int, graph: onnx.GraphProto | None = None) -> Arrays:
    """Seeded inputs of static ``specs``, suited to what each input takes; a ``graph`` that reads them tells more.

    Raises EngineFailure ``unsupported_dtype``.
    """
    return _make(specs, seed, kinds.of_inputs(specs, graph))


def make_files(specs: Sequence[Json], seeds: Sequence[int], out_dir: str, model: str | None = None) -> Json:
    """``{paths, kinds: {input: kind}}``; ``model`` is a prepared file, which tells the kinds where it is ONNX."""
    graph = models.read(model).graph if model and Path(model).suffix == ".onnx" else None
    found = kinds.of_inputs(specs, graph)
    paths = []
    for seed in seeds:
        path = str(Path(out_dir) / f"inputs-{seed}.npz")
        save(path, _make(specs, seed, found))
        paths.append(path)
    return {"paths": paths, "kinds": {name: kind.name for name, kind in found.items()}}


def _make(specs: Sequence[Json], seed: int, found: Mapping[str, Kind]) -> Arrays:
    generator = np.random.default_rng(seed)
    return {spec["name"]: seeding.values(found[spec["name"]], spec, generator, seed) for spec in specs}
