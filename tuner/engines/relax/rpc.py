"""Child-process functions for a session on an RPC device."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import te

from tuner.engines.relax import targets
from tuner.engines.relax.candidates import CANDIDATES
from tuner.engines.relax.release import RELEASE
from tuner.engines.relax.running import BUNDLES
from tuner.engines.runtime.rpc_session import Session


def _build_probe(tensors: list[Any], target: str, threads: int, path: str) -> None:
    resolved = targets.resolve(target, threads)
    processor = resolved.host if targets.is_gpu(resolved) else resolved
    function = te.create_prim_func(tensors).with_attr("global_symbol", "probe")
    library = tvm.tirx.build(tvm.IRModule({"probe": function}), target=processor)
    library.export_library(path, fcompile=CANDIDATES.linker(processor))


set_up = targets.leave_out_intrinsics
FUNCTIONS = Session(RELEASE, CANDIDATES, BUNDLES, _build_probe).functions
