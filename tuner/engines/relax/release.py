"""The ``Release`` of TVM 0.27."""

from __future__ import annotations

import tvm
from tvm.support import cc

from tuner.engines.runtime.compiling import Release

RELEASE = Release(
    tvm=tvm,
    package="tuner.engines.relax",
    cc=cc,
    tir="tirx",
    tensor=tvm.runtime.tensor,
    empty=tvm.runtime.empty,
    fill="tvm.contrib.random.random_fill_for_measure",
    session_errors=(tvm.error.RPCError, tvm.error.InternalError),
)
