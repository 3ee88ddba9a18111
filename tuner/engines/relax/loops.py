"""Lowering of scheduled tensor functions to loops over flat buffers."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx

_PASSES = [
    s_tir.transform.CanonicalizeLoop(),
    s_tir.transform.LowerCrossThreadReduction(),
    s_tir.transform.LowerInitBlock(),
    s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
    s_tir.transform.ConvertBlocksToOpaque(),
    s_tir.transform.LiftThreadBinding(),
    s_tir.transform.ManifestSharedMemoryLocalStage(),
    s_tir.transform.CompactBufferAllocation(),
    s_tir.transform.LowerAutoCopy(),
    s_tir.transform.UnifyThreadBinding(),
    s_tir.transform.LowerMatchBuffer(),
    s_tir.transform.StmtSimplify(),
    s_tir.transform.AnnotateIrregularLoop(),
    s_tir.transform.LowerOpaqueBlock(),
    tirx.transform.FlattenBuffer(),
]
"""The first passes of TVM's own pipeline for CPUs (``tvm.s_tir.pipeline``), which then find nothing left to do."""


def lower(module: Any) -> Any:
    """Return an ``IRModule`` whose functions are loops over flat buffers, without blocks."""
    return tvm.transform.Sequential(_PASSES)(module)
