"""Which channels of a padded tensor are real, and what the others hold. Columns of dense layers are channels, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Channels:
    """Of one axis of a tensor; real ones stay in their order."""

    axis: int
    is_real: Any
    """bool [padded]"""
    fill: Any
    """float64 [padded]: what a position of padding holds everywhere, whatever the network is fed; 0 at real ones."""
    origins: frozenset[str]
    """Outputs of the convolutions and dense layers whose padding this is."""

    @classmethod
    def at_end(cls, real: int, whole: int, origin: str, *, axis: int = 1) -> Channels:
        return cls(axis=axis, is_real=np.arange(whole) < real, fill=np.zeros(whole), origins=frozenset([origin]))

    @classmethod
    def real(cls, count: int) -> Channels:
        return cls(axis=1, is_real=np.ones(count, dtype=bool), fill=np.zeros(count), origins=frozenset())

    @classmethod
    def side_by_side(cls, parts: Sequence[Channels]) -> Channels:
        return cls(
            axis=1,
            is_real=np.concatenate([part.is_real for part in parts]),
            fill=np.concatenate([part.fill for part in parts]),
            origins=frozenset().union(*(part.origins for part in parts)),
        )

    @property
    def whole(self) -> int:
        return len(self.is_real)

    @property
    def count(self) -> int:
        """Of real channels."""
        return int(self.is_real.sum())

    @property
    def positions(self) -> Any:
        """int64 [count]: of real channels, ascending."""
        return np.flatnonzero(self.is_real)

    @property
    def are_first(self) -> bool:
        """Whether all padding comes after the real channels."""
        return bool(self.is_real[: self.count].all())

    def is_like(self, other: Channels) -> bool:
        return self.axis == other.axis and np.array_equal(self.is_real, other.is_real)

    def along(self, axis: int) -> Channels:
        """The same of a tensor of another shape."""
        return replace(self, axis=axis)

    def holding(self, fill: Any, *others: Channels) -> Channels:
        """The same channels of another tensor, made of this one and ``others``."""
        origins = self.origins.union(*(other.origins for other in others))
        return replace(self, fill=np.where(self.is_real, 0.0, fill), origins=origins)

    def repeated(self, times: int) -> Channels:
        """Each channel ``times`` times, padding holding 0."""
        return replace(self, is_real=np.repeat(self.is_real, times), fill=np.zeros(self.whole * times))

    def spread(self, array: Any, axis: int, value: float = 0.0) -> Any:
        """``array``, whose ``axis`` has the real channels, with ``value`` at the padding."""
        shape = list(array.shape)
        shape[axis] = self.whole
        result = np.full(shape, value, dtype=array.dtype)
        index: list[Any] = [slice(None)] * array.ndim
        index[axis] = self.positions
        result[tuple(index)] = array
        return result
