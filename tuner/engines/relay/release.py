"""The ``Release`` of TVM 0.19."""

from __future__ import annotations

import tvm
from tvm.contrib import cc

from tuner.engines.runtime.compiling import Release

RELEASE = Release(
    tvm=tvm,
    package="tuner.engines.relay",
    cc=cc,
    tir="tir",
    tensor=tvm.nd.array,
    empty=tvm.nd.empty,
    fill="tvm.contrib.random.random_fill",
    session_errors=(tvm.TVMError,),
)
