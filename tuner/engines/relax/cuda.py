"""Builds for NVIDIA GPUs, with or without one: TVM generates CUDA C++, which nvcc or NVRTC compiles."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import tvm

from tuner.engines.protocol.serving import EngineFailure

_MODE = "TVM_CUDA_COMPILE_MODE"
_HOMES = ("CUDA_HOME", "CUDA_PATH")
_DEFAULT_HOME = "/usr/local/cuda"
_DRIVER = "libcuda.so.1"
_DRIVER_FUNCTIONS = (
    "cuDeviceGetName",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuLaunchKernelEx",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuTensorMapEncodeTiled",
)
"""Functions that ``libtvm_runtime_cuda.so`` of TVM 0.27 imports from the driver."""
_NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""


def require_compiler() -> None:
    """Configure TVM for the installed compiler. Raises EngineFailure ``compiler_missing``."""
    if _nvcc():
        os.environ[_MODE] = "nvcc"
    elif _has_nvrtc():
        os.environ[_MODE] = "nvrtc"
    else:
        raise _missing("neither nvcc nor NVRTC was found")
    if tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True) is None:
        _load_runtime()


def device_exists() -> bool:
    return bool(tvm.cuda(0).exist)


def _load_runtime() -> None:
    """Load TVM's CUDA runtime, which packages kernels; without it TVM packages their source, which nothing can run.

    The runtime needs the driver library, which is only installed with a GPU; CUDA's toolkit has a stub of it for
    linking. Without a driver a stub built here is loaded, whose functions all report that there is no device.
    """
    runtime = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
    try:
        with contextlib.suppress(OSError):
            ctypes.CDLL(_DRIVER, mode=ctypes.RTLD_GLOBAL)
            ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
            return
        with tempfile.TemporaryDirectory(prefix="tunesmith-cuda-") as folder:
            ctypes.CDLL(_driver_stub(Path(folder)), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise _missing(f"cannot load TVM's CUDA runtime: {error}") from error


def _driver_stub(folder: Path) -> str:
    source, library = folder / "driver.c", folder / _DRIVER
    source.write_text("\n".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}" for name in _DRIVER_FUNCTIONS) + "\n")
    compiler = os.environ.get("CC") or "cc"
    options = ["-shared", "-fPIC", f"-Wl,-soname,{_DRIVER}", "-o", str(library)]
    subprocess.run([compiler, *options, str(source)], check=True, capture_output=True)
    return str(library)


def _has_nvrtc() -> bool:
    return bool(importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings"))


def _nvcc() -> str | None:
    found = shutil.which("nvcc")
    if found:
        return found
    # A home set explicitly is used even if it is wrong.
    homes = [os.environ[name] for name in _HOMES if os.environ.get(name)] or [_DEFAULT_HOME]
    paths = [Path(home) / "bin" / "nvcc" for home in homes]
    place = next((path for path in paths if os.access(path, os.X_OK)), None)
    if place is None:
        return None
    # TVM itself searches the PATH.
    os.environ["PATH"] = f"{place.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return str(place)


def _missing(why: str) -> EngineFailure:
    return EngineFailure(
        "compiler_missing",
        f"cannot compile CUDA code: {why}",
        hint="Install the CUDA 13 toolkit, with nvcc on the PATH or under CUDA_HOME. Building needs no GPU.",
    )
