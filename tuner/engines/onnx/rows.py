"""Rows of a user's data set: what an uploaded file holds, and the files of single runs."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tuner.engines.onnx import arrays
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure

LABELS = "labels"
_KINDS = "fiub"
"""Of dtypes: floating point, integers, booleans."""
_MOST_ARRAYS = 256


def inspect(path: str) -> Json:
    """Return ``{rows, arrays: [{name, dtype, shape}]}`` of an ``.npz`` file, whose arrays are read one by one.

    Raises EngineFailure ``invalid_data_set`` if it is no such file, or arrays differ in their number of rows, have
    other dtypes than numbers, or numbers that are not finite.
    """
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise _invalid("the file is one array, not an .npz file of arrays")
        with loaded as archive:
            _check_names(archive.zip.namelist())
            specs = [_spec(name, archive[name]) for name in archive.files]
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise _invalid(f"not an .npz file of arrays: {error}") from error
    rows = {spec["name"]: spec["shape"][0] for spec in specs}
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{name!r} {count}" for name, count in rows.items())
        raise _invalid(f"the arrays differ in their number of rows: {counts}", rows=rows)
    return {"rows": next(iter(rows.values())), "arrays": specs}


def _check_names(members: Sequence[str]) -> None:
    if not members:
        raise _invalid("the file has no arrays")
    if len(members) > _MOST_ARRAYS:
        raise _invalid(f"the file has {len(members)} arrays; the limit is {_MOST_ARRAYS}")
    others = [name for name in members if not name.endswith(".npy")]
    if others:
        raise _invalid(f"the file contains {others[0][:80]!r}, which is no array")
    name, count = Counter(members).most_common(1)[0]
    if count > 1:
        raise _invalid(f"the file contains {name[:80]!r} twice")


def _spec(name: str, array: Any) -> Json:
    if not name or not name.isprintable() or len(name) > 200:
        raise _invalid(f"{name[:80]!r} is not a name of an input")
    if array.ndim == 0 or array.shape[0] == 0:
        raise _invalid(f"array {name!r} has no rows; the first axis of each array is the rows", array=name)
    if array.dtype.kind not in _KINDS or not array.dtype.isnative:
        raise _invalid(f"array {name!r} is {array.dtype}, not of numbers in this machine's byte order", array=name)
    if array.dtype.kind == "f":
        finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            raise _invalid(f"row {row} of array {name!r} has numbers that are not finite", array=name, row=row)
    return {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}


def split(path: str, inputs: Sequence[Json], rows: int, runs: Sequence[int], out_dir: str) -> Json:
    """Write the inputs of these ``runs``, of ``rows`` rows each, and return ``{paths, labels}``.

    ``labels`` are files with the array ``labels`` of each run; none if the data set has no labels.
    """
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    known = arrays.load(path)
    whole = {spec["name"]: list(known[spec["name"]].shape[1:]) == list(spec["shape"]) for spec in inputs}
    labels = known.get(LABELS) if LABELS not in whole else None
    paths, labelled = [], []
    for run in runs:
        start = run * rows
        given = {
            name: known[name][run] if is_whole else known[name][start : start + rows]
            for name, is_whole in whole.items()
        }
        paths.append(_saved(folder / f"rows-{run}.npz", given))
        if labels is not None:
            labelled.append(_saved(folder / f"labels-{run}.npz", {LABELS: labels[start : start + rows]}))
    return {"paths": paths, "labels": labelled}


def _saved(path: Path, given: arrays.Arrays) -> str:
    arrays.save(str(path), given)
    return str(path)


def _invalid(message: str, **details: Any) -> EngineFailure:
    return EngineFailure("invalid_data_set", message, details=details)
