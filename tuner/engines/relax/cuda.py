"""The compiler of CUDA sources: TVM writes CUDA C++, which nvcc or NVRTC turns into code for a GPU."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import tvm

from tuner.engines.protocol.serving import EngineFailure

_MODE = "TVM_CUDA_COMPILE_MODE"
_HOMES = ("CUDA_HOME", "CUDA_PATH")
_DEFAULT_HOME = "/usr/local/cuda"


def require_compiler() -> None:
    """Let TVM use the compiler that is here. Raises EngineFailure ``compiler_missing``."""
    if _nvcc():
        os.environ[_MODE] = "nvcc"
    elif importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings"):
        os.environ[_MODE] = "nvrtc"
    else:
        raise EngineFailure(
            "compiler_missing",
            "CUDA code cannot be compiled here: there is neither nvcc nor NVRTC",
            hint="Install the CUDA toolkit so that nvcc is on the PATH or under CUDA_HOME; no GPU is needed to build.",
        )


def device_exists() -> bool:
    return bool(tvm.cuda(0).exist)


def _nvcc() -> str | None:
    found = shutil.which("nvcc")
    if found:
        return found
    # A home that is named is meant, be it wrong.
    homes = [os.environ[name] for name in _HOMES if os.environ.get(name)] or [_DEFAULT_HOME]
    paths = [Path(home) / "bin" / "nvcc" for home in homes]
    place = next((path for path in paths if os.access(path, os.X_OK)), None)
    if place is None:
        return None
    # TVM itself looks on the PATH.
    os.environ["PATH"] = f"{place.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return str(place)
