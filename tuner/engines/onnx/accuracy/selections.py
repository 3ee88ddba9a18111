"""Outputs whose rows a model selects, such as boxes and indices: their number and order depend on data.

Near ties decide whether a row is selected and which of two comes first. One row more moves all rows after it, so that
place by place nearly everything differs between two right results, and a handful of ties goes in more ways together
than the runs of the reference show. The rows are compared as a set instead, in any order that ties explain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

_MOST_DIFFERENCES = 5e7
_SAME = 1e-2
"""Rows of two runs are the same if no element differs by more than this share of its column's root mean square."""

Key = tuple[int, int]
"""Number of a row, and how many equal ones come before it in its output."""


class Selection:
    """The rows of an output of the reference, ``[rows, ...]``, and of its runs with perturbed operands."""

    def __init__(self, expected: Any, runs: Sequence[tuple[int, Any]], steps: Any) -> None:
        self._ulps = [ulps for ulps, _ in runs]
        self._outputs = [expected, *(output for _, output in runs)]
        self._steps = steps
        self._known = _flat(expected)[:0]
        for output in self._outputs:
            rows = _flat(output)
            is_new = self._distances(rows).min(axis=1, initial=np.inf) > 1
            self._known = np.concatenate([self._known, rows[is_new]])
        self._keys = [self._keys_of(output) for output in self._outputs]

    @property
    def has_ties(self) -> bool:
        """Whether the runs select other rows or order the same ones otherwise."""
        lengths = {len(keys) for keys in self._keys}
        permuted = len({frozenset(keys) for keys in self._keys}) == 1 and any(
            keys != self._keys[0] for keys in self._keys
        )
        return len(lengths) > 1 or permuted

    def align(self, actual: Any) -> tuple[Any, list[tuple[int, Any]], int] | None:
        """Return the expected output and the runs with the rows of ``actual``, in its order, and how many have moved.

        None if the runs do not explain the selection: each row of ``actual`` is in one of them, no more often than
        there; rows that all of them have are in ``actual``; and two rows come in an order in which one of them has
        them, unless none has both.
        """
        first = self._outputs[0]
        if actual is None or actual.dtype != first.dtype or actual.shape[1:] != first.shape[1:]:
            return None
        selected = self._keys_of(actual)
        if not np.isfinite(actual).all() or not _is_explained(selected, self._keys):
            return None
        rows_of = [dict(zip(keys, output, strict=True)) for keys, output in zip(self._keys, self._outputs, strict=True)]
        # An output without a row counts with that of another one.
        values = {key: row for rows in reversed(rows_of) for key, row in rows.items()}
        aligned = [
            np.stack([rows.get(key, values[key]) for key in selected]) if selected else first[:0] for rows in rows_of
        ]
        usual = self._keys[0]
        moved = sum(place >= len(usual) or usual[place] != key for place, key in enumerate(selected))
        return aligned[0], list(zip(self._ulps, aligned[1:], strict=True)), moved

    def _keys_of(self, output: Any) -> list[Key]:
        """Return the nearest known row of each, which may be far away."""
        distances = self._distances(_flat(output))
        before: Counter[int] = Counter()
        found = []
        for number in distances.argmin(axis=1).tolist() if distances.size else []:
            found.append((number, before[number]))
            before[number] += 1
        return found

    def _distances(self, rows: Any) -> Any:
        """Return the largest difference of each row to each known one, in steps."""
        distances = np.zeros((len(rows), len(self._known)))
        for column, step in enumerate(self._steps):
            np.maximum(distances, np.abs(rows[:, column, None] - self._known[None, :, column]) / step, out=distances)
        return distances


def find(expected: Any, runs: Sequence[tuple[int, Any]]) -> Selection | None:
    """Return the selection that an output is; None if its runs have the same rows in the same order."""
    outputs = [expected, *(output for _, output in runs)]
    if not runs or not _are_rows(outputs):
        return None
    every = np.concatenate([_flat(output) for output in outputs])
    size = np.sqrt(np.mean(np.square(every), axis=0)) if len(every) else np.ones(every.shape[1])
    steps = np.full(every.shape[1], 0.5) if expected.dtype.kind != "f" else np.maximum(_SAME * size, 1e-12)
    if all(each.shape == expected.shape and _is_same(expected, each, steps) for each in outputs):
        return None
    if len(every) * max(map(len, outputs)) * every.shape[1] > _MOST_DIFFERENCES:
        return None
    selection = Selection(expected, runs, steps)
    return selection if selection.has_ties else None


def _are_rows(outputs: Sequence[Any]) -> bool:
    first = outputs[0]
    return (
        first.ndim > 0
        and first.dtype.kind in "iuf"
        and max(map(len, outputs)) > 1
        and all(each.shape[1:] == first.shape[1:] and bool(np.isfinite(each).all()) for each in outputs)
    )


def _is_same(one: Any, other: Any, steps: Any) -> bool:
    return bool((np.abs(_flat(one) - _flat(other)) <= steps).all())


def _flat(output: Any) -> Any:
    return output.reshape(len(output), int(np.prod(output.shape[1:]))).astype(np.float64)


def _is_explained(selected: Sequence[Key], outputs: Sequence[Sequence[Key]]) -> bool:
    known = {key: place for place, key in enumerate(dict.fromkeys(key for keys in outputs for key in keys))}
    if not known.keys() >= set(selected) or not set(selected) >= set(outputs[0]).intersection(*outputs[1:]):
        return False
    earlier = np.logical_or.reduce([_earlier(keys, known) for keys in outputs])
    # In the selection, though the outputs that have both rows all have them the other way round.
    return not (_earlier(selected, known) & earlier.T & ~earlier).any()


def _earlier(keys: Iterable[Key], known: dict[Key, int]) -> Any:
    """Return which known rows come before which others."""
    places = np.full(len(known), np.nan)
    for place, key in enumerate(keys):
        places[known[key]] = place
    return places[:, None] < places[None, :]
