"""Runs of libraries for machines that this one is not, by an emulator of their programs (qemu's user mode).

The results are those of the code. Times would be the emulator's, so nothing is timed.
"""

from __future__ import annotations

import math
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime.library.linking import DRIVER, LIBRARY
from tuner.engines.runtime.running import Arrays, Network

NOT_EMULATED = "not_emulated"
"""Code of a failure that says nothing about the library: the emulator lacks instructions that it needs."""
FAILED = "emulation_failed"
_SOURCE = Path(__file__).parent / "library" / "emulated" / "run.c"
_LACKS_INSTRUCTIONS = 2
"""Exit status of ``run.c``."""


@dataclass(frozen=True)
class Emulator:
    name: str
    triple: str
    loader: str
    """File name of the dynamic loader of the machine's glibc."""
    packages: tuple[str, str]
    """Debian's, of the emulator and of the compiler with libc."""

    @property
    def compiler(self) -> str:
        return f"{self.triple}-gcc"

    def root(self) -> Path | None:
        """Return the folder in which the machine's programs find ``lib`` with its libc; None if it is not installed."""
        asked = [self.compiler, f"-print-file-name={self.loader}"]
        path = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
        return path.resolve().parents[1] if path.is_absolute() else None

    def lacks(self) -> str | None:
        """Return what of it is not installed, and how to install it; None if nothing is missing."""
        emulator, compiler = self.packages
        if not shutil.which(self.name):
            return f"{self.name} is not installed (Debian: apt install {emulator})"
        if not shutil.which(self.compiler) or self.root() is None:
            return f"{self.compiler} with its libc is not installed (Debian: apt install {compiler})"
        return None


EMULATORS = {
    "aarch64": Emulator(
        name="qemu-aarch64",
        triple="aarch64-linux-gnu",
        loader="ld-linux-aarch64.so.1",
        packages=("qemu-user", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
    )
}
"""By the machine in a target's triple."""


def known() -> Json:
    """Return the emulators for the engine's hello: ``{machine: {name, lacks}}``, with ``lacks`` as in ``Emulator``."""
    return {machine: {"name": each.name, "lacks": each.lacks()} for machine, each in EMULATORS.items()}


class EmulatedNetwork(Network):
    """The library of a build for another machine."""

    def __init__(self, folder: Path, machine: str, threads: int) -> None:
        """Raises EngineFailure ``emulation_failed``."""
        self._emulator = EMULATORS[machine]
        self.runtime = self._emulator.name
        self._library, self._threads = folder / LIBRARY, threads
        self._scratch = tempfile.TemporaryDirectory(prefix="tunesmith-emulated-")
        self._folder = Path(self._scratch.name)
        compiled = [self._emulator.compiler, "-std=gnu11", "-O1", "-I", DRIVER, _SOURCE, "-o", self._folder / "run"]
        subprocess.run([*map(str, compiled), "-ldl"], check=True, capture_output=True, stdin=subprocess.DEVNULL)
        specs = [_spec(line) for line in self._call().splitlines()]
        self.inputs = [spec for kind, spec in specs if kind == "input"]
        self._made = [spec for kind, spec in specs if kind == "output"]
        self.outputs = [spec["name"] for spec in self._made]
        [first] = [spec["shape"] for kind, spec in specs if kind == "sizes"]
        self.sizes = {f"d{place}": size for place, size in enumerate(first)}
        self._fed = ""

    def feed(self, arrays: Arrays) -> None:
        with (self._folder / "inputs").open("wb") as file:
            file.writelines(np.ascontiguousarray(arrays[spec["name"]]).tobytes() for spec in self.inputs)
        self._fed = "".join(f"{size}," for spec in self.inputs for size in arrays[spec["name"]].shape)

    def run(self) -> Sequence[Any]:
        told = self._call(self._folder / "inputs", self._folder / "outputs", self._fed)
        shapes = [list(map(int, filter(None, line.split(",")))) for line in told.splitlines()]
        with (self._folder / "outputs").open("rb") as file:
            return [_array(file.read, spec, shape) for spec, shape in zip(self._made, shapes, strict=True)]

    def sample(self, number: int, repeat: int) -> list[float]:  # noqa: ARG002
        raise EngineFailure(FAILED, f"runs under {self._emulator.name} are not timed")

    def _call(self, *more: Path | str) -> str:
        root = ["-L", self._emulator.root(), "-cpu", "max"]
        command = [self._emulator.name, *root, self._folder / "run", self._library, self._threads, *more]
        done = subprocess.run(
            list(map(str, command)), check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode < 0:
            reason = signal.strsignal(-done.returncode) or f"signal {-done.returncode}"
            raise EngineFailure(FAILED, f"the library crashes under {self._emulator.name}: {reason}")
        if done.returncode:
            code = NOT_EMULATED if done.returncode == _LACKS_INSTRUCTIONS else FAILED
            raise EngineFailure(code, f"under {self._emulator.name}: {done.stderr.strip()[-1500:]}")
        return done.stdout


@lru_cache(maxsize=2)
def _loaded(bundle: str, machine: str, threads: int, modified_ns: int) -> EmulatedNetwork:  # noqa: ARG001 - of the key
    return EmulatedNetwork(Path(bundle), machine, threads)


def load(machine: str, bundle: str, threads: int) -> Network:
    """Load the library in the folder ``bundle``, cached. Raises EngineFailure ``emulation_failed``."""
    return _loaded(bundle, machine, threads, (Path(bundle) / LIBRARY).stat().st_mtime_ns)


def _spec(line: str) -> tuple[str, Json]:
    kind, dtype, sizes, name = line.split("\t", 3)
    shape = [int(size) if size.isdigit() else size for size in sizes.split(",") if size]
    return kind, {"name": name, "dtype": dtype, "shape": shape}


def _array(read: Any, spec: Json, shape: Sequence[int]) -> Any:
    dtype = np.dtype(spec["dtype"])
    return np.frombuffer(read(math.prod(shape) * dtype.itemsize), dtype).reshape(shape)
