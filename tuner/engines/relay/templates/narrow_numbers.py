"""Numbers that one instruction multiplies in groups, adding each group's products to a 32-bit sum of a lane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Numbers:
    name: str
    """Part of the names of templates."""
    group: int
    """Numbers whose products one lane adds up; together they have 32 bits."""
    data: str
    weights: str
    """Dtypes."""
    stored: str
    """Dtype in which a function may keep data."""
    value: Callable[[Any], Any]
    """Returns a number of data or weights in the dtype of the sums."""
    bits: Callable[[Any], Any]
    """Returns a number as a function may keep it."""
    available: Callable[[Any], bool]
    """Whether a ``tvm.target.Target`` has the instruction."""
    function: Callable[[int], str]
    """LLVM IR for the pragma ``import_llvm`` of a loop that calls ``product``, by number of lanes."""
    product: Callable[[str, str, int], Any]
    """``te.TensorIntrin`` of a lane's sum, by dtypes of data and weights and number of lanes."""

    def are(self, data: Any, weights: Any) -> bool:
        """Return whether tensors, or types of tensors, hold these numbers."""
        return (data.dtype, weights.dtype) == (self.data, self.weights)
