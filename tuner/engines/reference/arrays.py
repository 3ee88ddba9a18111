"""Arrays as ``.npz`` files: making seeded inputs, reading, writing."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure

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


def make(specs: Sequence[Json], seed: int) -> Arrays:
    """Seeded inputs of static ``specs``. Raises EngineFailure ``unsupported_dtype``."""
    generator = np.random.default_rng(seed)
    return {spec["name"]: _values(generator, spec["dtype"], spec["shape"]) for spec in specs}


def make_files(specs: Sequence[Json], seeds: Sequence[int], out_dir: str) -> list[str]:
    paths = []
    for seed in seeds:
        path = str(Path(out_dir) / f"inputs-{seed}.npz")
        save(path, make(specs, seed))
        paths.append(path)
    return paths


def _values(generator: Any, name: str, shape: list[int]) -> Any:
    try:
        dtype = np.dtype(name)
    except TypeError as error:
        raise EngineFailure("unsupported_dtype", f"inputs of type {name} cannot be made") from error
    if dtype.kind == "f":
        return generator.random(shape).astype(dtype)
    if dtype.kind == "c":
        return (generator.random(shape) + 1j * generator.random(shape)).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.itemsize == 1 and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    if dtype.kind in "iu":
        # Wide integers are token ids, masks and segment ids, and the smallest table has two rows.
        return generator.integers(0, 2, shape, dtype=dtype)
    raise EngineFailure("unsupported_dtype", f"inputs of type {name} cannot be made")
