"""Arrays in ``.npz`` files: seeded inputs, reading and writing."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx import kinds, models
from tuner.engines.onnx.kinds import Kind
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure

_GRID = 6
"""Cells per side of the coarse grid that shades an image."""
_SHAPES = 6
"""Rectangles of one color per image: networks look for edges."""
_LINES = 3
"""Lines of imitated writing per image: rows of dark and light strokes."""
_GRAIN = 0.02
_MEAN, _STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
"""Normalization commonly used by ImageNet training scripts; gray images use the first channel."""
_TONES = 5
_STATE_STD = 0.1
_PLAIN_AT_FIRST = (kinds.MASK, kinds.STATE, kinds.TYPES)
"""Kinds whose values are all alike with seed 0."""


def values(kind: Kind, spec: Json, generator: Any, seed: int) -> Any:
    """Return an array of the spec's shape and dtype. Raises EngineFailure ``unsupported_dtype``.

    ``seed`` also selects the variant: images are 0 to 1, normalized, or -1 to 1 in turn; the first mask is full; the
    first state is zero; values that the model compares an input with are used in turn.
    """
    try:
        dtype = np.dtype(spec["dtype"])
    except TypeError as error:
        raise _unsupported(spec["dtype"]) from error
    shape = tuple(spec["shape"])
    if kind.values:
        # A single number is each value in turn, so that a few seeds reach them all.
        in_turn = np.full(shape, kind.values[seed % len(kind.values)])
        return (in_turn if in_turn.size == 1 else generator.choice(kind.values, shape)).astype(dtype)
    if kind.name in _MAKERS:
        return _MAKERS[kind.name](generator, shape, seed, kind.limit).astype(dtype)
    return _uniform(generator, shape, dtype, kind)


def _uniform(generator: Any, shape: tuple[int, ...], dtype: Any, kind: Kind) -> Any:
    if dtype.kind == "f":
        return generator.random(shape).astype(dtype)
    if dtype.kind == "c":
        return (generator.random(shape) + 1j * generator.random(shape)).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    if kind.name == kinds.BYTES:
        limits = np.iinfo(dtype) if dtype.itemsize == 1 else None
        lowest, highest = (limits.min, limits.max) if limits else (0, (kind.limit or 256) - 1)
        return generator.integers(lowest, highest, shape, dtype=dtype, endpoint=True)
    if dtype.kind in "iu":
        # Unidentified integers may be indices, and the smallest table has two rows.
        return generator.integers(0, 2, shape, dtype=dtype)
    raise _unsupported(dtype.name)


def _unsupported(name: str) -> EngineFailure:
    return EngineFailure("unsupported_dtype", f"cannot generate inputs of type {name}")


def _image(generator: Any, shape: tuple[int, ...], seed: int, _: int | None) -> Any:
    pixels = _pictures(generator, shape)
    if seed % 3 == 1:
        axis = _channel_axis(shape)
        count = shape[axis]
        sizes = [count if place == axis else 1 for place in range(len(shape))]
        return (pixels - _MEAN[:count].reshape(sizes)) / _STD[:count].reshape(sizes)
    return pixels * 2 - 1 if seed % 3 == 2 else pixels


def _byte_image(generator: Any, shape: tuple[int, ...], _: int, __: int | None) -> Any:
    return np.rint(_pictures(generator, shape) * 255)


def _pictures(generator: Any, shape: tuple[int, ...]) -> Any:
    """Return images of shade, edges and a little grain, from 0 to 1, each image of the batch different."""
    axis = _channel_axis(shape)
    height, width = (shape[2], shape[3]) if axis == 1 else (shape[1], shape[2])
    made = np.stack([_picture(generator, shape[axis], height, width) for _ in range(shape[0])])
    return made if axis == 1 else np.moveaxis(made, 1, 3)


def _picture(generator: Any, channels: int, height: int, width: int) -> Any:
    shade = _smooth(generator, height, width)
    picture = np.stack([shade + 0.5 * _smooth(generator, height, width) for _ in range(channels)])
    for _ in range(_SHAPES):
        top, left = generator.integers(0, height), generator.integers(0, width)
        bottom, right = top + generator.integers(1, height), left + generator.integers(1, width)
        color = generator.standard_normal((channels, 1, 1))
        picture[:, top:bottom, left:right] = 0.3 * picture[:, top:bottom, left:right] + 0.7 * color
    for _ in range(_LINES):
        _write(picture, generator)
    picture += _GRAIN * generator.standard_normal(picture.shape)
    lowest, highest = picture.min(), picture.max()
    return (picture - lowest) / (highest - lowest)


def _write(picture: Any, generator: Any) -> None:
    """Draw strokes one or two pixels wide on a plain background, in a line across part of the image."""
    _, height, width = picture.shape
    tall, wide = max(4, height // 16), max(4, width // 2)
    top, left = generator.integers(0, max(1, height - tall)), generator.integers(0, max(1, width - wide))
    strokes = generator.random((4, (wide + 1) // 2)) < 0.5
    line = np.kron(strokes, np.ones((-(-tall // 4), 2)))[:tall, :wide]
    ground = generator.standard_normal()
    part = picture[:, top : top + tall, left : left + wide]
    part[...] = (ground + 3.0 * line - 1.5)[: part.shape[1], : part.shape[2]]


def _smooth(generator: Any, height: int, width: int) -> Any:
    """Return normal values on a coarse grid, linearly interpolated."""
    grid = generator.standard_normal((_GRID, _GRID))
    return _weights(height) @ grid @ _weights(width).T


def _weights(size: int) -> Any:
    places = np.linspace(0, _GRID - 1, size)
    return np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(_GRID)[None, :]))


def _channel_axis(shape: tuple[int, ...]) -> int:
    return 1 if shape[1] in (1, 3) and min(shape[2:]) > 3 else 3


def _signal(generator: Any, shape: tuple[int, ...], _: int, __: int | None) -> Any:
    """Return a few tones of varying volume with a little noise, from -1 to 1; time is the longest dimension."""
    axis = int(np.argmax(shape))
    time = np.arange(shape[axis]) / shape[axis]
    found = 0.01 * generator.standard_normal(shape[axis])
    for _tone in range(_TONES):
        cycles, phase = shape[axis] * 10 ** generator.uniform(-3, -1), generator.uniform(0, 2 * np.pi)
        swell = 0.5 + 0.5 * np.sin(2 * np.pi * (generator.uniform(0, 4) * time + generator.uniform()))
        found += swell * np.sin(2 * np.pi * cycles * time + phase) / _TONES
    sizes = [shape[axis] if place == axis else 1 for place in range(len(shape))]
    return np.clip(np.broadcast_to(found.reshape(sizes), shape), -1, 1)


def _state(generator: Any, shape: tuple[int, ...], seed: int, _: int | None) -> Any:
    return np.zeros(shape) if seed == 0 else _STATE_STD * generator.standard_normal(shape)


def _ids(generator: Any, shape: tuple[int, ...], _: int, limit: int | None) -> Any:
    return generator.integers(0, limit or 2, shape)


def _types(_: Any, shape: tuple[int, ...], seed: int, limit: int | None) -> Any:
    """Return zeros, followed by ones from some position on."""
    found = np.zeros(shape, dtype=np.int64)
    if (limit or 2) > 1 and shape:
        found[..., shape[-1] - shape[-1] * (seed % 3) // 4 :] = 1
    return found


def _positions(_: Any, shape: tuple[int, ...], __: int, limit: int | None) -> Any:
    line = np.arange(shape[-1] if shape else 1) % (limit or np.iinfo(np.int32).max)
    return np.broadcast_to(line if shape else line[0], shape)


def _mask(_: Any, shape: tuple[int, ...], seed: int, __: int | None) -> Any:
    """Return ones, with zeros at the end except for every third seed."""
    found = np.ones(shape)
    if shape:
        kept = max(1, shape[-1] - shape[-1] * (seed % 3) // 4)
        found[..., kept:] = 0
    return found


_MAKERS: dict[str, Callable[[Any, tuple[int, ...], int, int | None], Any]] = {
    kinds.IMAGE: _image,
    kinds.BYTE_IMAGE: _byte_image,
    kinds.SIGNAL: _signal,
    kinds.STATE: _state,
    kinds.IDS: _ids,
    kinds.TYPES: _types,
    kinds.POSITIONS: _positions,
    kinds.MASK: _mask,
}


Arrays = dict[str, Any]


def load(path: str) -> Arrays:
    """Read a plain ``.npz`` file, without pickled objects. Raises EngineFailure ``invalid_inputs``."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise EngineFailure("invalid_inputs", f"not an .npz file of arrays: {error}") from error


def save(path: str, arrays: Mapping[str, Any]) -> None:
    # numpy would append ".npz" to a path but not to an open file, and keyword arguments could not be named "file".
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def make(specs: Sequence[Json], seed: int, graph: onnx.GraphProto | None = None) -> Arrays:
    """Return seeded inputs for static ``specs``, of kinds inferred from them and from a ``graph`` that reads them.

    Raises EngineFailure ``unsupported_dtype``.
    """
    return _make(specs, seed, kinds.of_inputs(specs, graph))


def make_for_checks(specs: Sequence[Json], graph: onnx.GraphProto) -> list[Arrays]:
    """Return one or two sets of inputs with which changes of a model are checked. Raises as ``make``.

    The second one has masks that are not full, states that are not zero and other token types. Models without these run
    once: a large one takes seconds, of the minute in which it has to be prepared.
    """
    found = kinds.of_inputs(specs, graph)
    seeds = (0, 1) if any(kind.name in _PLAIN_AT_FIRST for kind in found.values()) else (0,)
    return [_make(specs, seed, found) for seed in seeds]


def make_files(specs: Sequence[Json], seeds: Sequence[int], out_dir: str, model: str | None = None) -> Json:
    """Write input files and return ``{paths, kinds: {input: kind}}``.

    ``model`` is a prepared file, from which the kinds are inferred if it is ONNX.
    """
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
    return {spec["name"]: values(found[spec["name"]], spec, generator, seed) for spec in specs}
