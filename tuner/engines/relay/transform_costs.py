"""What rearranging a tensor costs on this machine: a handful of kernels, measured once for a CPU and a thread count.

``AlterOpLayout``'s transforms are kernels of their own: convolutions fuse with elementwise operators alone. How long
one takes is told by the elements and by how vectors meet blocks: on a Zen 4, in ns per element from 30 thousand to a
million of them, packing NCHW 0.15 whatever the block, splitting blocks 0.05 to 0.21, merging or mixing them 0.40 to
0.48 (one element at a time), unpacking 0.34 from blocks of 8 and 0.65 from 16.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
from tvm import te, topi

from tuner.engines.relay import corrections
from tuner.engines.runtime.targets import native_cpu

LAUNCH_SECONDS = 5e-7
"""Of any kernel in a graph executor, however small the tensor."""
_SHAPE = (1, 48, 26, 26)
"""Of the tensor that is rearranged: 127 KiB, as most of those between convolutions lies in the second cache."""
_REPEATS = 15
_RUNS = 40
_CACHE = "transform-costs.json"


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds per element; the defaults are a Zen 4's."""

    pack: float = 0.15e-9
    unpack_8: float = 0.34e-9
    unpack_16: float = 0.65e-9
    split: float = 0.12e-9
    merge: float = 0.42e-9

    def seconds(self, elements: int, block: int, other: int) -> float:
        """To rearrange a tensor from channel blocks of one size into another's; 0 is NCHW."""
        return 0.0 if block == other else LAUNCH_SECONDS + elements * self._rate(block, other)

    def _rate(self, block: int, other: int) -> float:
        if not block:
            return self.pack
        if not other:
            slope = (self.unpack_16 - self.unpack_8) / 8
            return max(self.pack, self.unpack_8 + slope * (min(block, 16) - 8))
        return self.split if block % other == 0 else self.merge


_MEASURED = {"pack": (0, 16), "unpack_8": (8, 0), "unpack_16": (16, 0), "split": (16, 8), "merge": (8, 16)}


def of(target: Any, threads: int) -> Costs:
    """For builds for this machine as measured, else the defaults."""
    if "mtriple" in target.attrs or str(target.attrs.get("mcpu", "")) != native_cpu(tvm):
        return Costs()
    return _of(str(target), threads)


@lru_cache(maxsize=8)
def _of(target: str, threads: int) -> Costs:
    key = f"{target} t{threads} {tvm.__version__}"
    known = _load().get(key)
    if known and set(known) == set(_MEASURED):
        return Costs(**known)
    measured = measure(tvm.target.Target(target), threads)
    _keep(key, measured)
    return measured


def measure(target: Any, threads: int) -> Costs:
    """Takes under a second."""
    corrections.use_threads(threads)
    try:
        return Costs(**{name: _per_element(target, *pair) for name, pair in _MEASURED.items()})
    finally:
        corrections.use_threads(1)


def _per_element(target: Any, block: int, other: int) -> float:
    library, shapes = _kernel(target, block, other)
    arrays = [tvm.nd.empty(shape, "float32") for shape in shapes]
    evaluator = library.time_evaluator(library.entry_name, tvm.cpu(), number=_RUNS, repeat=_REPEATS)
    return float(min(evaluator(*arrays).results)) / math.prod(_SHAPE)


def _kernel(target: Any, block: int, other: int) -> tuple[Any, list[tuple[int, ...]]]:
    batch, channels, height, width = _SHAPE
    shape = (batch, channels // block, height, width, block) if block else _SHAPE
    source = te.placeholder(shape, name="source")
    with target, tvm.transform.PassContext(opt_level=3):
        moved = topi.layout_transform(source, _name(block), _name(other))
        library = tvm.build(topi.x86.schedule_injective(moved), [source, moved], target)
    return library, [shape, tuple(int(size) for size in moved.shape)]


def _name(block: int) -> str:
    return f"NCHW{block}c" if block else "NCHW"


def _path() -> Path | None:
    """In the environment that this engine runs in, if we made it: such folders are caches."""
    folder = Path(sys.prefix)
    return folder / _CACHE if (folder / "CACHEDIR.TAG").is_file() else None


def _load() -> dict[str, Any]:
    path = _path()
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _keep(key: str, costs: Costs) -> None:
    path = _path()
    if path is None:
        return
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump({**_load(), key: asdict(costs)}, file, indent=1)
        Path(file.name).replace(path)
    except OSError:
        # Of someone else's environment, or a full disk: measured again by the next process.
        return
