"""Whether a compiled variant computes what the reference computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from domain.artifacts import OutputError, Variant, Verification
from domain.ports import Engine
from domain.tensors import TensorSpec

SEEDS = (0, 1, 2)
_LARGEST = 1e308


def make_inputs(
    reference: Engine, inputs: Sequence[TensorSpec], folder: Path, *, seeds: Sequence[int] = SEEDS, timeout: float = 120
) -> list[Path]:
    """One ``.npz`` of random arrays a seed, made by the reference engine. Raises EngineError."""
    specs = [asdict(spec) for spec in inputs]
    params = {"inputs": specs, "seeds": list(seeds), "out_dir": str(folder)}
    return [Path(path) for path in reference.request("make_inputs", params, timeout=timeout)["paths"]]


def run_reference(
    reference: Engine,
    model: Path,
    inputs: Sequence[Path],
    folder: Path,
    *,
    threads: int,
    timeout: float = 600,
    canceled: Callable[[], bool] | None = None,
) -> list[Path]:
    """The reference's outputs for each of ``inputs``. Raises EngineError, Canceled."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for position, given in enumerate(inputs):
        output = folder / f"expected-{position}.npz"
        params = {"path": str(model), "inputs": str(given), "outputs": str(output), "threads": threads}
        reference.request("run", params, timeout=timeout, canceled=canceled)
        paths.append(output)
    return paths


def run_plain(
    engine: Engine,
    bundle: Path,
    inputs: Sequence[Path],
    folder: Path,
    *,
    timeout: float = 600,
    canceled: Callable[[], bool] | None = None,
) -> list[Path]:
    """The same of a plain build, which an engine runs on this machine's CPU. Raises EngineError, Canceled."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for position, given in enumerate(inputs):
        output = folder / f"expected-{position}.npz"
        params = {
            "bundle": str(bundle), "inputs": str(given), "outputs": str(output),
            "threads": 1, "target": "llvm", "runner": None, "number": 1, "repeat": 0,
        }  # fmt: skip
        engine.request("run", params, timeout=timeout, canceled=canceled)
        paths.append(output)
    return paths


def verify(
    reference: Engine,
    compiler: Engine,
    *,
    variant: Variant,
    bundle: Path,
    inputs: Sequence[Path],
    expected: Sequence[Path],
    folder: Path,
    place: Mapping[str, Any],
    precision: str = "f32",
    seeds: Sequence[int] = SEEDS,
    timeout: float = 600,
    canceled: Callable[[], bool] | None = None,
) -> Verification:
    """Run the variant on every input and compare each output with the reference's; keeps the worst over all seeds.

    ``bundle`` is the folder of ``mod.so``; ``inputs``, ``expected`` and ``seeds`` go together. ``place`` has
    ``threads`` and, where it is not this machine's CPU, ``target`` and ``runner``; ``precision`` decides the
    tolerances. A variant that does not pass is an outcome, not an error. Raises EngineError, Canceled.
    """
    folder.mkdir(parents=True, exist_ok=True)
    worst: dict[str, OutputError] = {}
    for position, (given, wanted) in enumerate(zip(inputs, expected, strict=True)):
        actual = folder / f"{variant}-{position}.npz"
        params = {
            "bundle": str(bundle), "inputs": str(given), "outputs": str(actual),
            **place, "number": 1, "repeat": 0,
        }  # fmt: skip
        compiler.request("run", params, timeout=timeout, canceled=canceled)
        pair = {"expected": str(wanted), "actual": str(actual), "precision": precision}
        compared = reference.request("compare", pair, timeout=timeout, canceled=canceled)
        for data in compared["outputs"]:
            error = _output_error(data)
            worst[error.output] = _worse(worst.get(error.output, error), error)
    return Verification(variant=variant, seeds=tuple(seeds), outputs=tuple(worst.values()), precision=precision)


def _output_error(data: dict[str, Any]) -> OutputError:
    return OutputError(
        output=str(data["output"]),
        dtype=str(data["dtype"]),
        max_abs=_bounded(data["max_abs"]),
        max_rel=_bounded(data["max_rel"]),
        atol=float(data["atol"]),
        rtol=float(data["rtol"]),
        passed=bool(data["passed"]),
    )


def _worse(first: OutputError, second: OutputError) -> OutputError:
    return OutputError(
        output=first.output,
        dtype=first.dtype,
        max_abs=max(first.max_abs, second.max_abs),
        max_rel=max(first.max_rel, second.max_rel),
        atol=first.atol,
        rtol=first.rtol,
        passed=first.passed and second.passed,
    )


def _bounded(value: Any) -> float:
    """A number that JSON can carry, whatever an engine sent."""
    number = float(value)
    return number if number <= _LARGEST else _LARGEST
