"""Child-process functions for a session on an RPC device."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import te

from tuner.engines.relay import corrections, targets
from tuner.engines.relay.candidates import CANDIDATES
from tuner.engines.relay.release import RELEASE
from tuner.engines.relay.running import BUNDLES
from tuner.engines.runtime.rpc_session import Session


def _build_probe(tensors: list[Any], target: str, threads: int, path: str) -> None:
    resolved = targets.resolve(target, threads)
    library = tvm.build(te.create_schedule(tensors[-1].op), tensors, target=resolved, name="probe")
    library.export_library(path, fcompile=CANDIDATES.linker(resolved))


set_up = corrections.install
FUNCTIONS = Session(RELEASE, CANDIDATES, BUNDLES, _build_probe).functions
