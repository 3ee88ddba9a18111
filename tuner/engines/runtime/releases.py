"""What differs between the releases of TVM that the engines run: 0.19 (relay) and 0.27 (relax)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Release:
    tvm: Any
    """The package."""
    package: str
    """The engine's, whose modules ``candidates``, ``comparing`` and ``rpc`` processes are started with."""
    cc: Any
    """``tvm.contrib.cc``, since moved to ``tvm.support.cc``."""
    tir: str
    """How options of passes over tensor functions begin: ``tir`` or ``tirx``."""
    tensor: Callable[..., Any]
    """``tensor(array, device)``: a tensor of TVM's."""
    empty: Callable[..., Any]
    """``empty(shape, dtype, device)``: one that holds anything."""
    fill: str
    """The global function that fills a tensor with random data."""
    session_errors: tuple[type[BaseException], ...]
    """What TVM raises for whatever goes wrong in an RPC session."""
